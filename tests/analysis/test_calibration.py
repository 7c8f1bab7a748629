"""The surrogate's 90 % interval on real trainings that it has not seen: the table of the search benchmark."""

from pathlib import Path

import numpy as np
import pytest

from rst_tune.analysis import surrogate
from rst_tune.records import Role, Status, Trial
from tests.analysis.interval_coverage import coverage
from tests.analysis.synthetic import make_config

TABLE = Path(__file__).parents[2] / "experiments" / "benchmarks" / "digits_table.npz"
pytestmark = pytest.mark.skipif(not TABLE.exists(), reason="the table is made by experiments/benchmarks/make_table.py")


def trained() -> list[Trial]:
    """Return every full training of the table as a trial of a search."""
    with np.load(TABLE) as file:
        rows = {name: file[name] for name in ("family", "c", "gamma_rst", "epochs", "seed", "curve", "complete")}
    full = np.flatnonzero((rows["epochs"] == rows["epochs"].max()) & rows["complete"])
    return [_trial(n, {name: column[i] for name, column in rows.items()}) for n, i in enumerate(full)]


def _trial(number: int, row: dict[str, np.ndarray]) -> Trial:
    family, cost, gamma = str(row["family"]), float(row["c"]), float(row["gamma_rst"])
    name, _, shape = family.partition("@")
    return Trial(
        key=str(number),
        number=number,
        role=Role.SEARCH,
        config_id=f"{family}-{cost}-{gamma}",
        config=make_config(name, cost, gamma, shape=float(shape or 1.0)),
        seed=int(row["seed"]),
        epochs=20,
        full_horizon=True,
        sampled_at=0.0,
        status=Status.COMPLETE,
        error=float(row["curve"][-1]),
    )


@pytest.mark.parametrize("seen", [40, 100])
def test_the_interval_covers_what_it_says_on_real_trainings(seen: int) -> None:
    trials = trained()
    shares = []
    for split in range(6):
        order = np.random.default_rng(split).permutation(len(trials))
        fitted = surrogate.fit_surrogate([trials[i] for i in order[:seen]])
        shares.append(coverage(fitted, [trials[i] for i in order[seen:]], level=0.9))
    assert 0.8 <= np.mean(shares) <= 0.97, shares


def test_whole_configurations_that_were_never_tried_are_covered_too() -> None:
    """Of those that train. Where a region that was never tried breaks down, no neighbour tells it."""
    trials = [t for t in trained() if (t.error or 0.0) < 20]
    names = sorted({t.config_id for t in trials if 0 < t.extra_propagation < 1})
    shares = []
    for split in range(6):
        held = set(np.random.default_rng(split).permutation(names)[: len(names) // 4])
        fitted = surrogate.fit_surrogate([t for t in trials if t.config_id not in held])
        shares.append(coverage(fitted, [t for t in trials if t.config_id in held], level=0.9))
    assert 0.8 <= np.mean(shares) <= 0.97, shares


def test_a_family_that_the_sample_of_a_long_search_missed_is_still_predicted() -> None:
    trials = trained()
    rare = next(t for t in trials if t.config.family == "step-up")
    common = [t for t in trials if t.config.family != "step-up"]
    many = [*common, *common, rare]
    assert len(many) > surrogate.MAX_TRIALS
    for seed in range(4):
        shuffled = [many[i] for i in np.random.default_rng(seed).permutation(len(many))]
        (low,), (high,) = surrogate.fit_surrogate(shuffled).interval([rare.config])
        assert 0 < low < high
