"""The surrogate's kernel parameters with few and with many trials, and the effect of diverged trainings."""

import numpy as np
import pytest

from rst_tune.analysis.surrogate import PRIOR, Surrogate, fit_surrogate
from rst_tune.records import TrialConfig
from tests.analysis import builders
from tests.analysis.synthetic import make_config


def config(cost: float, gamma: float) -> TrialConfig:
    return make_config("constant", cost, gamma)


def trials(cost: float, gamma: float, errors) -> list:
    return builders.runs(cost, [float(e) for e in errors], gamma)


def calm(count: int, seed: int = 0) -> list:
    """Trainings of about 5 % anywhere."""
    rng = np.random.default_rng(seed)
    points = zip(rng.uniform(0.2, 1, count), rng.uniform(0.4, 1.5, count), rng.normal(0, 0.1, count), strict=True)
    return [t for c, g, e in points for t in trials(float(c), float(g), [5 * np.exp(e)])]


def _moved(trials: list) -> float:
    return abs(np.log(fit_surrogate(trials).params.length / PRIOR.kernel[3]))


def test_a_few_trials_leave_the_length_scale_near_its_prior_and_many_move_them():
    rng = np.random.default_rng(1)
    wavy = [t for g in rng.uniform(0.1, 3, 150) for t in trials(1.0, float(g), [5 * np.exp(0.5 * np.sin(5 * g))])]
    few, many = (_moved(t) for t in (wavy[:8], wavy))
    assert few < 0.3
    assert many > 0.5


def broken_at(error: float) -> Surrogate:
    """Thirty calm trainings, and ten of one configuration, the last of which ends with `error`."""
    return fit_surrogate([*calm(30), *trials(0.3, 1.4, [5.0] * 9 + [error])])


def test_a_breakdown_raises_the_mean_error_near_it_and_not_far_away():
    sound, broken = broken_at(5.0), broken_at(50.0)
    near = [fitted.errors([config(0.3, 1.4)])[0] for fitted in (sound, broken)]
    far = [fitted.errors([config(1.0, 0.4)])[0] for fitted in (sound, broken)]
    assert near[0] == pytest.approx(5.0, rel=0.1)
    # The mean of the ten is 9.5; their neighbours and the prior lower it.
    assert 5.5 < near[1] < 9.5
    assert far[1] == pytest.approx(far[0], rel=0.12)
    assert near[1] / near[0] > far[1] / far[0]


def test_how_badly_a_training_broke_down_does_not_matter():
    assert broken_at(70.0).errors([config(0.3, 1.4)]) == pytest.approx(broken_at(95.0).errors([config(0.3, 1.4)]))


def test_errors_above_the_base_optimizer_are_clipped_and_do_not_stretch_the_scale():
    """With errors of 10 and 11 the 20 % of others would hide the difference; the base optimizer has 12."""
    rng = np.random.default_rng(2)
    base = trials(0.0, 0.0, [12.0] * 3)
    good = trials(0.5, 0.9, 10 * np.exp(0.02 * rng.normal(size=4)))
    fair = trials(0.5, 0.45, 11 * np.exp(0.02 * rng.normal(size=4)))

    def predicted(worse: float) -> np.ndarray:
        bad = trials(0.1, 1.5, [worse] * 6)
        return fit_surrogate([*base, *good, *fair, *bad]).errors([config(0.5, 0.9), config(0.5, 0.45)])

    assert predicted(16.0) == pytest.approx(predicted(20.0), rel=0.05)
    assert predicted(20.0)[1] - predicted(20.0)[0] > 0.4
