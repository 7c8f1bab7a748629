"""The sampler `front`: its acquisition function, what it observes, and that it is an Optuna sampler."""

from dataclasses import replace

import numpy as np
import optuna
import pytest
from scipy import stats

from rst_tune.analysis import pareto
from rst_tune.records import Role, Status, Trial, TrialConfig, config_id
from rst_tune.tuning.experiment import load_space
from rst_tune.tuning.sampler import NEIGHBOUR_SCALE, FrontSampler, RandomSuggester, ehvi
from rst_tune.tuning.space import Space, trial_config

REFERENCE = (12.0, 1.1)


def made(number: int, family: str, c: float, gamma: float, error: float | None, **more: object) -> Trial:
    point = {"family": family, "c": c, "gamma_rst": gamma, "rule": "sam"}
    point |= {} if family == "constant" else {"shape": 1.0}
    return Trial(
        key=str(number), number=number, role=Role.SEARCH, config_id=config_id(point),
        config=trial_config(point, total_steps=100, rho=0.1), seed=number, epochs=10, full_horizon=True,
        sampled_at=float(number), ended_at=float(number), **({"status": Status.COMPLETE, "error": error} | more),
    )  # fmt: skip


def truth(c: float, gamma: float) -> float:
    """Cost helps, and gamma_rst 1 is best."""
    return 4 + 4 * np.exp(-5 * c) + 3 * np.log(gamma) ** 2


def seen(count: int = 30, seed: int = 0) -> list[Trial]:
    rng = np.random.default_rng(seed)
    draws = [(rng.uniform(0.05, 1.0), rng.uniform(0.4, 1.5)) for _ in range(count)]
    return [made(n, "constant", c, g, truth(c, g) + 0.1 * rng.normal()) for n, (c, g) in enumerate(draws)]


def sampler(trials: list[Trial], **changes: object) -> FrontSampler:
    """Return a sampler that has observed the trials."""
    space = load_space("grst")
    assert isinstance(space, Space)
    made = FrontSampler(space.model_copy(update=changes).sample, rho=0.1, n_startup_trials=8, steps=8)
    for trial in trials:
        made.observe(trial)
    return made


def propose(use: FrontSampler, pending: list[Trial], reference: tuple[float, float] | None, seed: int) -> dict:
    use.prepare(pending, reference, seed)
    return use.propose()


@pytest.mark.parametrize("cost", [0.05, 0.3, 0.5, 0.9])
def test_the_expected_improvement_is_the_mean_over_many_draws(cost):
    rng = np.random.default_rng(0)
    tried = np.array([[6.0, 0.2], [5.0, 0.5], [9.0, 0.6]])
    mean, sd = np.log(5.2), 0.2
    before = pareto.hypervolume(tried, REFERENCE)
    drawn = np.exp(mean + sd * rng.normal(size=4000))
    gains = [pareto.hypervolume([*tried.tolist(), (error, cost)], REFERENCE) - before for error in drawn]
    (found,) = ehvi(np.array([mean]), np.array([sd]), np.array([cost]), tried, REFERENCE)
    assert found == pytest.approx(np.mean(gains), abs=4 * stats.sem(gains) + 1e-9)


def test_with_nothing_below_the_reference_every_improvement_counts():
    far = np.array([[50.0, 0.5]])
    gain = ehvi(np.log([6.0, 20.0]), np.array([1e-9, 1e-9]), np.array([0.1, 0.1]), far, REFERENCE)
    assert gain.tolist() == pytest.approx([6.0, 0.0])


def test_too_few_finished_trials_propose_nothing():
    assert propose(sampler(seen(7)), [], REFERENCE, 0) is None
    assert propose(sampler(seen(8)), [], None, 0) is None


def volume_after(draws: int, seed: int, *, chosen: bool) -> float:
    """Return the true hypervolume of what was drawn, chosen or at random."""
    trials, rng = seen(10, seed), np.random.default_rng(100 + seed)
    use = sampler(trials, families=["constant"])
    for number in range(10, 10 + draws):
        params = propose(use, [], REFERENCE, number) if chosen else None
        c, gamma = (params["c"], params["gamma_rst"]) if params else (rng.uniform(0.05, 1), rng.uniform(0.4, 1.5))
        trials.append(made(number, "constant", c, gamma, truth(c, gamma) + 0.1 * rng.normal()))
        use.observe(trials[-1])
    points = [(truth(t.extra_propagation, t.config.gamma_rst), t.extra_propagation) for t in trials]
    return pareto.hypervolume(points, REFERENCE)


def test_the_draws_go_where_the_front_can_grow():
    gains = [volume_after(12, seed, chosen=True) - volume_after(12, seed, chosen=False) for seed in range(4)]
    assert min(gains) > 0, gains


def test_the_same_trials_and_seed_choose_the_same_whatever_was_asked_before():
    """A resumed search has asked nothing yet, and must draw what the undisturbed one draws."""
    fresh, used = sampler(seen(50)), sampler(seen(50)[:10])
    for trial in seen(50)[10:]:
        propose(used, [], REFERENCE, trial.number)
        used.observe(trial)
    assert propose(fresh, [], REFERENCE, 1) == propose(used, [], REFERENCE, 1)
    assert propose(fresh, [], REFERENCE, 1) != propose(fresh, [], REFERENCE, 2)


def test_running_trials_spread_the_draws():
    """Workers that draw at once must not all get the same point."""
    use, running, places = sampler(seen()), [], []
    for number in range(6):
        params = propose(use, running, REFERENCE, 0)
        places.append((params["family"], round(params["c"], 2), round(params["gamma_rst"], 2)))
        drawn = made(100 + number, params["family"], params["c"], params["gamma_rst"], None)
        running.append(replace(drawn, status=Status.RUNNING, ended_at=None))
    assert len(set(places)) >= 3


@pytest.mark.parametrize("status", [Status.DIVERGED, Status.OUT_OF_MEMORY])
def test_what_broke_down_is_avoided(status):
    good = seen()
    broken = [made(50 + i, "constant", 0.05 + 0.02 * i, 1.2, None, status=status) for i in range(8)]

    def near(trials: list[Trial]) -> int:
        use = sampler(trials, families=["constant"])
        chosen = [propose(use, [], REFERENCE, seed) for seed in range(15)]
        return sum(p["c"] < 0.2 and p["gamma_rst"] > 1.0 for p in chosen)

    assert near(good) > 0
    assert near([*good, *broken]) == 0


def test_a_family_that_never_finished_can_be_proposed():
    use = sampler(seen())
    families = {propose(use, [], REFERENCE, seed)["family"] for seed in range(25)}
    assert families - {"constant"}


def test_the_suggester_answers_like_an_optuna_trial():
    ask = RandomSuggester(np.random.default_rng(0))
    assert 1.0 <= ask.suggest_float("a", 1.0, 10.0, log=True) <= 10.0
    assert ask.suggest_float("b", 0.0, 1.0, step=0.25) in (0.0, 0.25, 0.5, 0.75, 1.0)
    assert ask.suggest_int("c", 1, 9, step=4) in (1, 5, 9)
    assert 1 <= ask.suggest_int("d", 1, 100, log=True) <= 100
    assert ask.suggest_categorical("e", ("x", "y")) in ("x", "y")
    assert ask.suggest_float("a", 1.0, 10.0, log=True) == ask.params["a"]
    assert list(ask.params) == ["a", "b", "c", "d", "e"]


def test_neighbours_are_near_in_the_scale_of_each_axis_and_never_outside():
    around = {"a": 9.5, "b": 0.3, "e": "y"}
    near = [RandomSuggester(np.random.default_rng(i), around) for i in range(200)]
    logs = np.log([ask.suggest_float("a", 0.1, 10.0, log=True) for ask in near])
    plain = np.array([ask.suggest_float("b", 0.0, 1.0) for ask in near])
    kinds = [ask.suggest_categorical("e", ("x", "y", "z")) for ask in near]
    assert logs.max() <= np.log(10.0) + 1e-9
    assert np.abs(logs - np.log(9.5)).mean() / np.log(100.0) < 2 * NEIGHBOUR_SCALE
    assert 0.5 * NEIGHBOUR_SCALE < plain.std() < 2 * NEIGHBOUR_SCALE
    assert 0.7 < kinds.count("y") / len(kinds) < 1.0


def test_the_proposal_is_at_least_as_good_as_the_best_random_candidate(monkeypatch):
    """Looking around the best candidate gains something: the same seed, with and without."""
    use = sampler(seen(), families=["constant"])
    with_neighbours = [propose(use, [], REFERENCE, seed) for seed in range(5)]
    monkeypatch.setattr("rst_tune.tuning.sampler.N_NEIGHBOURS", 0)
    without = [propose(use, [], REFERENCE, seed) for seed in range(5)]
    pairs = list(zip(with_neighbours, without, strict=True))
    assert any(a != b for a, b in pairs)
    for a, b in pairs:
        value = use._acquisition([], REFERENCE)([(p, _configured(p)) for p in (a, b)])
        assert value[0] >= value[1]


def test_the_posterior_standard_deviation_is_scaled(monkeypatch):
    use, there = sampler(seen(), families=["constant"]), {"c": 0.9, "gamma_rst": 1.5}

    def acquisition() -> float:
        return float(use._acquisition([], REFERENCE)([(there, _configured(there))])[0])

    shipped = acquisition()
    monkeypatch.setattr("rst_tune.tuning.sampler.EXPLORATION_SCALE", 1.0)
    assert 0 < shipped < 0.8 * acquisition()


def _configured(params: dict[str, float]) -> TrialConfig:
    point = {"family": "constant", "c": params["c"], "gamma_rst": params["gamma_rst"], "rule": "sam"}
    return trial_config(point, total_steps=8, rho=0.1)


def test_it_is_an_optuna_sampler_that_any_study_can_ask():
    """Until enough has finished it samples at random, and then what it proposes is what the trial gets."""
    space = load_space("grst")
    assert isinstance(space, Space)
    for trials in (seen(3), seen()):
        use = sampler(trials)
        use.prepare((), REFERENCE, 7)
        proposed = use.propose()
        assert (proposed is None) == (len(trials) == 3)
        study = optuna.create_study(directions=["minimize", "minimize"], sampler=use)
        asked = study.ask()
        params = space.sample(asked)
        assert space.contains(params)
        assert proposed is None or asked.params == proposed
