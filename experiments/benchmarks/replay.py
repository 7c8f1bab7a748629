"""The table of real trainings as a task that answers at once: any configuration, seed and horizon in microseconds.

Between the trained points the mean curve is multilinear in c and gamma_rst within a family, and linear in the shape
between the constant (0) and the family's extreme (1). Gamma 0 is SGD and c = 1 is one schedule for all families.
Below the lowest c and above the highest gamma the edge holds. A schedule of the paper is answered by the family and
shape nearest to it in squares; its cost is its own. The noise of a run is that of one trained seed: its curves at the
corners, interpolated, over the mean. So rungs and finals belong together, and a seed that is lucky somewhere is lucky
nearby, as in the trainings. Which trained seed a seed stands for is drawn with replacement in every repeat.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rst_tune.analysis import pareto
from rst_tune.method import schedules

Array = NDArray[np.float64]
Corner = tuple[float, int, int, int]

TABLE = Path(__file__).with_name("digits_table.npz")
EPOCHS, STEPS_PER_EPOCH = 20, 15
COST_REFERENCE = 1.1
CHANCE = 90.0


@dataclass(frozen=True)
class Place:
    """Where a configuration lies in the table."""

    family: str
    c: float
    shape: float
    gamma_rst: float


@dataclass(frozen=True)
class Table:
    """`curves[epochs]` has the axes family, c, gamma, seed, epoch; percent. Short horizons may have fewer seeds.

    `trained` names the first axis: a family, with `@0.5` behind it where it was trained half way to the constant.
    """

    trained: tuple[str, ...]
    costs: Array
    gammas: Array
    curves: Mapping[int, Array]
    reference: tuple[float, float]

    @property
    def seeds(self) -> int:
        """How often each point was trained to the full horizon."""
        return self.curves[EPOCHS].shape[3]

    @cached_property
    def means(self) -> dict[int, Array]:
        """The mean curves over the seeds."""
        return {epochs: curve.mean(axis=3) for epochs, curve in self.curves.items()}

    def corners(self, place: Place) -> list[Corner]:
        """Return (weight, family, c, gamma) of the trained points that answer for `place`; weights add up to 1."""
        if place.c <= 0:
            return [(1.0, 0, 0, 0)]
        found = []
        for share, family in self._shapes(place):
            for wc, ic in _between(self.costs, place.c):
                for wg, ig in _between(self.gammas, place.gamma_rst):
                    found.append((share * wc * wg, family, ic, ig))
        return [corner for corner in found if corner[0] > 0]

    def _shapes(self, place: Place) -> list[tuple[float, int]]:
        """Return the trained shapes around the place's own: (weight, family)."""
        if place.family == "constant":
            return [(1.0, self.trained.index("constant"))]
        own = [(family_and_shape(name)[1], i) for i, name in enumerate(self.trained) if family_of(name) == place.family]
        nodes = sorted([(0.0, self.trained.index("constant")), *own])
        grid = np.array([shape for shape, _ in nodes])
        return [(weight, nodes[i][1]) for weight, i in _between(grid, place.shape)]

    @property
    def families(self) -> tuple[str, ...]:
        """The families, whatever their shapes."""
        return tuple(dict.fromkeys(family_of(name) for name in self.trained))

    def mean_curve(self, place: Place, epochs: int = EPOCHS) -> Array:
        """Return the mean error of every epoch."""
        return sum(w * self.means[epochs][f, c, g] for w, f, c, g in self.corners(place))

    def truth(self, place: Place) -> float:
        """Return the true mean error of a full training."""
        return float(self.mean_curve(place)[-1])

    def run(self, place: Place, *, seed: int, epochs: int, world: int) -> Array:
        """Return the curve of one training; the same (place, seed, epochs) of the same world gives the same one."""
        drawn = int(np.random.default_rng([world, seed]).integers(self.seeds))
        ratios = self._ratios(place, epochs)
        return self.mean_curve(place, epochs) * ratios[drawn % len(ratios)]

    def _ratios(self, place: Place, epochs: int) -> Array:
        """Return each seed's curve over the mean one: (seeds, epochs), 1 on average.

        Curves of a seed are averaged over the corners, which takes away noise that the corners do not share: the log
        residuals are stretched to the corners' own variance at the last epoch, and by n/(n - 1), the mean being theirs.
        """
        corners = self.corners(place)
        logs = np.log(np.maximum([self.curves[epochs][f, c, g] for _, f, c, g in corners], 0.1))
        weights = np.array([corner[0] for corner in corners])
        rest = np.log(np.tensordot(weights, np.exp(logs), axes=1))
        rest -= rest.mean(axis=0)
        own, averaged = float(weights @ logs[:, :, -1].var(axis=1)), float(rest[:, -1].var())
        stretch = np.clip(np.sqrt(own / averaged), 1.0, 2.0) if averaged > 0 else 1.0
        ratio = np.exp(rest * stretch * np.sqrt(len(rest) / (len(rest) - 1)))
        return ratio / ratio.mean(axis=0)

    @cached_property
    def best(self) -> float:
        """The hypervolume of the true front over a fine grid of all that the table can answer."""
        lowest, highest = self.costs[0], self.gammas[-1]
        places = [Place("constant", 0.0, 0.0, 0.0)]
        for family in self.families:
            for c in np.linspace(lowest, 1.0, 39):
                for shape in np.linspace(0, 1, 5) if family != "constant" else (0.0,):
                    places += [Place(family, float(c), float(shape), float(g)) for g in np.linspace(0, highest, 31)]
        return self.hypervolume([(self.truth(p), p.c) for p in places])

    def hypervolume(self, points: list[tuple[float, float]]) -> float:
        """Return the hypervolume against the fixed reference point."""
        return pareto.hypervolume(points, self.reference) if points else 0.0


def family_and_shape(name: str) -> tuple[str, float]:
    """Return what the name of a row's family means.

    >>> family_and_shape("step-up"), family_and_shape("step-up@0.5")
    (('step-up', 1.0), ('step-up', 0.5))
    """
    family, _, shape = name.partition("@")
    return family, float(shape or 1.0)


def family_of(name: str) -> str:
    """Return the family of a row's name."""
    return family_and_shape(name)[0]


def _between(grid: Array, value: float) -> list[tuple[float, int]]:
    right = int(np.clip(np.searchsorted(grid, value), 1, len(grid) - 1))
    share = float(np.clip((value - grid[right - 1]) / (grid[right] - grid[right - 1]), 0.0, 1.0))
    return [(1 - share, right - 1), (share, right)]


def load_table(path: Path = TABLE) -> Table:
    """Return the table in `path`."""
    with np.load(path) as file:
        rows = {name: file[name] for name in ("family", "c", "gamma_rst", "epochs", "seed", "curve")}
        reference = (float(json.loads(str(file["about"]))["reference"]), COST_REFERENCE)
    families = tuple(dict.fromkeys(rows["family"].tolist()))
    costs, gammas = (np.unique(rows[name][rows["c"] > 0]) for name in ("c", "gamma_rst"))
    gammas = np.concatenate([[0.0], gammas])
    horizons = np.unique(rows["epochs"]).tolist()
    curves = {e: _curves(rows, e, families, costs, gammas) for e in horizons}
    return Table(families, costs, gammas, curves, reference)


def _curves(rows: Mapping[str, Any], epochs: int, families: tuple[str, ...], costs: Array, gammas: Array) -> Array:
    """Return the curves of one horizon, SGD and c = 1 filled in where they belong; a divergence counts as chance."""
    chosen = np.flatnonzero(rows["epochs"] == epochs)
    seeds = int(rows["seed"][chosen].max()) + 1
    curve = np.full((len(families), len(costs), len(gammas), seeds, epochs), np.nan)
    for i in chosen:
        c = rows["c"][i]
        at_family = slice(None) if c in (0.0, 1.0) else families.index(str(rows["family"][i]))
        at_cost = slice(None) if c == 0.0 else int(np.searchsorted(costs, c))
        at_gamma = int(np.searchsorted(gammas, rows["gamma_rst"][i]))
        curve[at_family, at_cost, at_gamma, rows["seed"][i]] = np.nan_to_num(rows["curve"][i, :epochs], nan=CHANCE)
    if missing := int(np.isnan(curve[..., 0]).sum()):
        raise ValueError(f"{missing} trainings of {epochs} epochs are missing: run make_table.py to its end")
    return curve


@cache
def _nearest(schedule: str, families: tuple[str, ...]) -> tuple[str, float, float]:
    """Return the family, mean and shape of the table that come nearest to a schedule, in squares over the steps."""
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


def place_of(config: Mapping[str, Any], table: Table) -> Place:
    """Return where a configuration of the record lies in the table."""
    family, c, shape = _nearest(json.dumps(config["schedule"]), table.families)
    return Place(family, c, shape, float(config["gamma_rst"]) if c > 0 else 0.0)


def pairs_until(config: Mapping[str, Any], epochs: int) -> Array:
    """Return the expected pairs spent at the end of each epoch of a training of `epochs` epochs."""
    return _pairs(json.dumps(config["schedule"]), epochs)


@cache
def _pairs(schedule: str, epochs: int) -> Array:
    p = np.array(schedules.from_dict(json.loads(schedule)).values(epochs * STEPS_PER_EPOCH))
    return np.cumsum(1 + p)[STEPS_PER_EPOCH - 1 :: STEPS_PER_EPOCH]
