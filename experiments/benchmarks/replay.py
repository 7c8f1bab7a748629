"""Tables of real trainings as a workload of the simulator: any configuration and seed, answered in microseconds.

Between the trained points the mean curve is multilinear in c and gamma_rst within a family, and linear in the shape
between the constant (0) and the family's extreme (1). Gamma 0 is SGD and c = 1 is one schedule for all families. Below
the lowest c and above the highest gamma the value at the edge is used. A schedule of the paper is answered by the
family and shape nearest to it in squares; its cost is its own. The noise of a run is that of one trained seed: its
curves at the corners, interpolated, over the mean curve. Rungs and finals are therefore correlated, and so are the
errors of one seed at neighbouring configurations, as in the trainings. Which trained seed a seed stands for is drawn
with replacement in every repeat.

The tables hold trainings of one length and one radius. Their hypervolume is linear in the extra propagation, against a
fixed reference of 1.1, as it was for the kept results: not the area over the logarithm of the compute that a search
reports.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import moocore
import numpy as np
from numpy.typing import NDArray

from rst_tune.method import schedules
from rst_tune.records import TrialConfig

Array = NDArray[np.float64]
Corner = tuple[float, int, int, int]

TABLE = Path(__file__).with_name("digits_table.npz")
EPOCHS, STEPS_PER_EPOCH = 20, 15
CHANCE_ERROR = 90.0
COST_REFERENCE = 1.1  # a little beyond SAM


@dataclass(frozen=True)
class Location:
    """Where a configuration lies in the table."""

    family: str
    c: float
    shape: float
    gamma_rst: float


@dataclass(frozen=True)
class Table:
    """Validation errors in percent: `curves` has the axes family, c, gamma, seed, epoch.

    `reference` is (error, extra propagation).

    `trained` names the first axis: a family, with `@0.5` behind it where it was trained half way to the constant.
    """

    trained: tuple[str, ...]
    costs: Array
    gammas: Array
    curves: Array
    reference: tuple[float, float]

    @property
    def seeds(self) -> int:
        """How often each point was trained."""
        return self.curves.shape[3]

    @cached_property
    def means(self) -> Array:
        """The mean curves over the seeds."""
        return self.curves.mean(axis=3)

    @property
    def families(self) -> tuple[str, ...]:
        """The families, whatever their shapes."""
        return tuple(dict.fromkeys(family_of(name) for name in self.trained))

    def corners(self, location: Location) -> list[Corner]:
        """Return (weight, family, c, gamma) of the trained points around a location; the weights sum to 1."""
        if location.c <= 0:
            return [(1.0, 0, 0, 0)]
        found = []
        for share, family in self._shapes(location):
            for wc, ic in _between(self.costs, location.c):
                for wg, ig in _between(self.gammas, location.gamma_rst):
                    found.append((share * wc * wg, family, ic, ig))
        return [corner for corner in found if corner[0] > 0]

    def _shapes(self, location: Location) -> list[tuple[float, int]]:
        """Return (weight, family) of the trained shapes around that of the location."""
        constant = self.trained.index("constant")
        if location.family == "constant":
            return [(1.0, constant)]
        own = [(shape_of(name), i) for i, name in enumerate(self.trained) if family_of(name) == location.family]
        nodes = sorted([(0.0, constant), *own])
        grid = np.array([shape for shape, _ in nodes])
        return [(weight, nodes[i][1]) for weight, i in _between(grid, location.shape)]

    def mean_curve(self, location: Location) -> Array:
        """Return the mean error of every epoch."""
        return sum(w * self.means[f, c, g] for w, f, c, g in self.corners(location))

    def true_error(self, location: Location) -> float:
        """Return the true mean error of a full training."""
        return float(self.mean_curve(location)[-1])

    def run(self, location: Location, *, seed: int, world: int) -> Array:
        """Return the curve of one training; the same location and seed of the same world give the same curve."""
        drawn = int(np.random.default_rng([world, seed]).integers(self.seeds))
        return self.mean_curve(location) * self._ratios(location)[drawn]

    def _ratios(self, location: Location) -> Array:
        """Return each seed's curve over the mean one: (seeds, epochs), 1 on average.

        The curves of a seed are averaged over the corners, which removes noise that the corners do not share: the log
        residuals are stretched to the corners' own variance at the last epoch, and by n/(n - 1), since the mean is
        theirs.
        """
        corners = self.corners(location)
        logs = np.log(np.maximum([self.curves[f, c, g] for _, f, c, g in corners], 0.1))
        weights = np.array([corner[0] for corner in corners])
        rest = np.log(np.tensordot(weights, np.exp(logs), axes=1))
        rest -= rest.mean(axis=0)
        own, averaged = float(weights @ logs[:, :, -1].var(axis=1)), float(rest[:, -1].var())
        stretch = np.clip(np.sqrt(own / averaged), 1.0, 2.0) if averaged > 0 else 1.0
        ratio = np.exp(rest * stretch * np.sqrt(len(rest) / (len(rest) - 1)))
        return ratio / ratio.mean(axis=0)

    @cached_property
    def best(self) -> float:
        """The hypervolume of the true front over a fine grid of the table."""
        lowest, highest = self.costs[0], self.gammas[-1]
        grid = [Location("constant", 0.0, 0.0, 0.0)]
        for family in self.families:
            for c in np.linspace(lowest, 1.0, 39):
                for shape in np.linspace(0, 1, 5) if family != "constant" else (0.0,):
                    grid += [Location(family, float(c), float(shape), float(g)) for g in np.linspace(0, highest, 31)]
        return self.hypervolume([(self.true_error(each), each.c) for each in grid])

    def hypervolume(self, points: list[tuple[float, float]]) -> float:
        """Return the hypervolume of (error, extra propagation) against the fixed reference point, linear in both."""
        return float(moocore.hypervolume(np.asarray(points), ref=self.reference)) if points else 0.0


def family_of(name: str) -> str:
    """Return the family of a trained row.

    >>> family_of("step-up"), family_of("step-up@0.5")
    ('step-up', 'step-up')
    """
    return name.partition("@")[0]


def shape_of(name: str) -> float:
    """Return the shape of a trained row.

    >>> shape_of("step-up"), shape_of("step-up@0.5")
    (1.0, 0.5)
    """
    return float(name.partition("@")[2] or 1.0)


def _between(grid: Array, value: float) -> list[tuple[float, int]]:
    right = int(np.clip(np.searchsorted(grid, value), 1, len(grid) - 1))
    share = float(np.clip((value - grid[right - 1]) / (grid[right] - grid[right - 1]), 0.0, 1.0))
    return [(1 - share, right - 1), (share, right)]


@cache
def load_table(path: Path = TABLE) -> Table:
    """Return the table in `path`."""
    with np.load(path) as file:
        rows = {name: file[name] for name in ("family", "c", "gamma_rst", "epochs", "seed", "curve")}
        reference = (float(json.loads(str(file["about"]))["reference"]), COST_REFERENCE)
    families = tuple(dict.fromkeys(rows["family"].tolist()))
    costs, gammas = (np.unique(rows[name][rows["c"] > 0]) for name in ("c", "gamma_rst"))
    gammas = np.concatenate([[0.0], gammas])
    return Table(families, costs, gammas, _curves(rows, families, costs, gammas), reference)


def _curves(rows: Mapping[str, Any], families: tuple[str, ...], costs: Array, gammas: Array) -> Array:
    """Return the curves of the full horizon, with SGD and c = 1 filled in; a divergence counts as chance."""
    chosen = np.flatnonzero(rows["epochs"] == EPOCHS)
    seeds = int(rows["seed"][chosen].max()) + 1
    curve = np.full((len(families), len(costs), len(gammas), seeds, EPOCHS), np.nan)
    for i in chosen:
        c = rows["c"][i]
        at_family = slice(None) if c in (0.0, 1.0) else families.index(str(rows["family"][i]))
        at_cost = slice(None) if c == 0.0 else int(np.searchsorted(costs, c))
        at_gamma = int(np.searchsorted(gammas, rows["gamma_rst"][i]))
        errors = np.nan_to_num(rows["curve"][i, :EPOCHS], nan=CHANCE_ERROR)
        curve[at_family, at_cost, at_gamma, rows["seed"][i]] = errors
    if missing := int(np.isnan(curve[..., 0]).sum()):
        raise ValueError(f"a table needs every training, but {missing} are missing: run make_table.py to its end")
    return curve


@cache
def _nearest(schedule: str, families: tuple[str, ...]) -> tuple[str, float, float]:
    """Return the family, mean and shape of the table nearest to a schedule, in squares over the steps."""
    steps = EPOCHS * STEPS_PER_EPOCH
    p = np.array(schedules.from_dict(json.loads(schedule)).values(steps))
    c = float(p.mean())
    best = ("constant", c, 0.0)
    least = float(((p - c) ** 2).sum())
    for family in families:
        away = np.array(schedules.with_mean(family, min(c, 1.0), steps).values(steps)) - c
        if (length := float(away @ away)) > 1e-9:
            shape = float(np.clip((p - c) @ away / length, 0.0, 1.0))
            rest = float(((p - c - shape * away) ** 2).sum())
            if rest < least - 1e-9:
                best, least = (family, c, shape), rest
    return best


def locate(config: TrialConfig, table: Table) -> Location:
    """Return where a configuration lies in the table."""
    family, c, shape = _nearest(json.dumps(config.schedule), table.families)
    return Location(family, c, shape, config.gamma_rst if c > 0 else 0.0)


def cumulative_pairs(config: TrialConfig) -> Array:
    """Return the expected pairs spent by the end of each epoch."""
    return _cumulative_pairs(json.dumps(config.schedule))


@cache
def _cumulative_pairs(schedule: str) -> Array:
    p = np.array(schedules.from_dict(json.loads(schedule)).values(EPOCHS * STEPS_PER_EPOCH))
    return np.cumsum(1 + p)[STEPS_PER_EPOCH - 1 :: STEPS_PER_EPOCH]
