"""The sampler `front`: its acquisition function, what it observes, and that it is an Optuna sampler."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import optuna
import pytest
from scipy import stats

from rst_tune.analysis import pareto
from rst_tune.analysis.surrogate import NO_SEED, Surrogate, fit_surrogate
from rst_tune.records import Role, Status, Trial, TrialConfig, config_id
from rst_tune.tuning import model
from rst_tune.tuning import sampler as module
from rst_tune.tuning.experiment import load_space
from rst_tune.tuning.sampler import (
    NEIGHBOUR_SCALE,
    OVERHEAD,
    FrontSampler,
    RandomSuggester,
    knowledge_gradient,
)
from rst_tune.tuning.space import Space, TaskScale, trial_config

REFERENCE = (12.0, 2.2)
SCALE = TaskScale(epochs=10, steps_per_epoch=10, rho=0.1)


def made(number: int, family: str, c: float, gamma: float, error: float | None, **more: object) -> Trial:
    point = {"family": family, "c": c, "gamma_rst": gamma, "rule": "sam"}
    point |= {} if family == "constant" else {"shape": 1.0}
    return trial_of(number, point, error, **more)


def trial_of(number: int, point: dict, error: float | None, **more: object) -> Trial:
    return Trial(
        key=str(number), number=number, role=Role.SEARCH, config_id=config_id(point),
        config=trial_config(point, SCALE), seed=number, epochs=10, full_horizon=True,
        sampled_at=float(number), ended_at=float(number), **({"status": Status.COMPLETE, "error": error} | more),
    )  # fmt: skip


def truth(c: float, gamma: float) -> float:
    """Cost helps, and gamma_rst 1 is best."""
    return 4 + 4 * np.exp(-5 * c) + 3 * np.log(gamma) ** 2


def seen(count: int = 30, seed: int = 0) -> list[Trial]:
    rng = np.random.default_rng(seed)
    draws = [(rng.uniform(0.05, 1.0), rng.uniform(0.4, 1.5)) for _ in range(count)]
    return [made(n, "constant", c, g, truth(c, g) + 0.1 * rng.normal()) for n, (c, g) in enumerate(draws)]


def space_of(**changes: object) -> Space:
    """Return the space of families, costs and gammas at one length and radius, or what it is changed to."""
    space = load_space("grst")
    assert isinstance(space, Space)
    return space.model_copy(update={"rho": None, **changes})


def sampler(trials: list[Trial], **changes: object) -> FrontSampler:
    """Return a sampler that has observed the trials."""
    space = space_of(**changes)
    made = FrontSampler(space.sample, replace(SCALE, exact=False), n_startup_trials=8)
    for trial in trials:
        made.model.observe(trial)
    return made


def propose(use: FrontSampler, pending: list[Trial], reference: tuple[float, float] | None, seed: int) -> dict | None:
    use.prepare(pending, reference, seed)
    proposal = use.propose(replicates=False)
    assert not isinstance(proposal, TrialConfig)
    return proposal


@pytest.mark.parametrize("kind", ["new and cheap", "new and dear", "replicate"])
def test_the_knowledge_gradient_is_the_mean_gain_over_many_outcomes(kind: str, monkeypatch: pytest.MonkeyPatch):
    """Each outcome is drawn, the surrogate is conditioned on it, and the front of its posterior means is measured."""
    monkeypatch.setattr(module, "REPEATS", 1.0)
    trials = seen(12)
    delivered = [t.config for t in trials]
    # Without a seed effect, because the drawn training has a seed of its own.
    surrogate = with_seed_share(fit_surrogate(trials), 0.0)
    new = {"new and cheap": (0.06, 1.3), "new and dear": (0.9, 0.8)}
    best = delivered[int(np.argmax(gradient(surrogate, delivered, delivered)))]
    config = made(99, "constant", *new[kind], None).config if kind in new else best
    noise = surrogate.params.noise
    (mean,), (sd,) = surrogate.log_errors([config])
    outcomes = np.random.default_rng(0).normal(mean - 0.5 * noise**2, np.hypot(sd, noise), 3000)
    gains = [front_after(surrogate, [*delivered, config], config, y) for y in outcomes]
    gains = np.array(gains) - volume(surrogate, delivered)
    (found,) = gradient(surrogate, [config], delivered)
    assert found == pytest.approx(gains.mean(), abs=4 * stats.sem(gains) + 0.03 * abs(gains.mean()))
    assert found > 0


def with_seed_share(surrogate: Surrogate, share: float) -> Surrogate:
    return replace(surrogate, params=replace(surrogate.params, seed_share=share))


def gradient(
    surrogate: Surrogate,
    candidates: list[TrialConfig],
    delivered: list[TrialConfig],
    reference: tuple[float, float] = REFERENCE,
    seeds: Sequence[int] | None = None,
) -> np.ndarray:
    """Return the knowledge gradient; without seeds each training has one of its own."""
    return knowledge_gradient(surrogate, candidates, delivered, reference, seeds or [NO_SEED] * len(candidates))


def test_a_replicate_on_a_seed_that_others_were_trained_with_is_worth_more():
    """Most of the noise is common to the trainings of a seed, so its outcome is compared with theirs."""
    trials = [replace(t, seed=t.number % 2) for t in seen(12)]
    surrogate, delivered = with_seed_share(fit_surrogate(trials), 0.9), [t.config for t in trials]
    alone = gradient(surrogate, delivered, delivered)
    shared = gradient(surrogate, delivered, delivered, seeds=[1 - t.seed for t in trials])
    same = gradient(surrogate, delivered, delivered, seeds=[t.seed for t in trials])
    assert alone.max() > 0
    assert shared.max() > 1.2 * alone.max()
    assert same.max() < 0.5 * shared.max(), "the same training again says little"


def test_the_outcome_of_a_training_moves_the_means_as_conditioning_on_it_does():
    """`lookahead` against the posterior of the surrogate that has seen the outcome, on a shared seed."""
    trials = [replace(t, seed=t.number % 2) for t in seen(12)]
    surrogate, delivered = with_seed_share(fit_surrogate(trials), 0.8), [t.config for t in trials]
    config = made(99, "constant", 0.3, 1.2, None).config
    mean, own_mean, shift, own_shift = surrogate.lookahead(delivered, [config], np.array([1]))
    after = surrogate.condition_on([config], [1])
    assert after.log_errors(delivered)[0] == pytest.approx(mean), "the predicted outcome moves nothing"
    variance = surrogate.log_errors([*delivered, config])[1] ** 2 - after.log_errors([*delivered, config])[1] ** 2
    assert np.append(shift[0], own_shift) ** 2 == pytest.approx(variance, rel=1e-6, abs=1e-12)
    assert own_mean == pytest.approx(surrogate.log_errors([config])[0])


def front_after(surrogate: Surrogate, delivered: list[TrialConfig], config: TrialConfig, outcome: float) -> float:
    """Return the hypervolume of the posterior means once a training of the configuration had this log error.

    The mean of a lognormal error also falls with its variance, by which it is known better now.
    """
    after = replace(
        surrogate,
        configs=(*surrogate.configs, config),
        seeds=np.append(surrogate.seeds, -1),
        target=np.append(surrogate.target, outcome),
    )
    shrunk = (after.log_errors(delivered)[1] ** 2 - surrogate.log_errors(delivered)[1] ** 2) / 2
    return volume(after, delivered, np.exp(shrunk))


def volume(surrogate: Surrogate, configs: list[TrialConfig], factor: np.ndarray | float = 1.0) -> float:
    errors = surrogate.errors(configs) * factor
    return pareto.hypervolume([(e, c.compute) for e, c in zip(errors, configs, strict=True)], REFERENCE)


def test_a_replicate_of_a_front_member_is_worth_more_than_one_of_a_hopeless_configuration():
    trials = [*seen(12), *(made(12 + k, "constant", 0.95, 0.4, 11.0 + 0.1 * k) for k in range(3))]
    surrogate, delivered = fit_surrogate(trials), [t.config for t in trials]
    gains = gradient(surrogate, delivered, delivered)
    errors = surrogate.errors(delivered)
    on_front = pareto.nondominated([(e, c.compute) for e, c in zip(errors, delivered, strict=True)])
    assert gains[on_front].max() > 0
    assert gains[on_front].max() > 10 * gains[-1]


def test_a_replicate_is_proposed_where_no_new_configuration_promises_more():
    """The space is narrow and all of it is tried; which of the configurations are on the front is not known."""
    costs = [0.5 + 0.005 * k for k in range(20)]
    rng = np.random.default_rng(0)
    trials = [made(n, "constant", c, 1.0, 5.0 * np.exp(0.2 * rng.normal())) for n, c in enumerate(costs)]
    narrow = {"families": ["constant"], "extra_propagation": [0.595], "gamma_rst": [1.0]}
    use = sampler(trials, **narrow)
    use.prepare((), REFERENCE, 0)
    assert use.propose() in [t.config for t in trials]
    assert use.propose(replicates=False) is None, "a known configuration is no new one"


def test_with_nothing_below_the_reference_only_what_may_get_below_it_counts():
    trials = [replace(t, error=50.0 + t.number) for t in seen(8)]
    surrogate = fit_surrogate(trials)
    configs = [t.config for t in trials]
    assert gradient(surrogate, configs, configs, (1.0, 2.2)).max() < 1e-6
    assert gradient(surrogate, configs, configs, (60.0, 2.2)).max() > 0


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
        use.model.observe(trials[-1])
    points = [(truth(t.extra_propagation, t.config.gamma_rst), t.compute) for t in trials]
    return pareto.hypervolume(points, REFERENCE)


def test_the_draws_go_where_the_front_can_grow():
    gains = [volume_after(12, seed, chosen=True) - volume_after(12, seed, chosen=False) for seed in range(4)]
    assert min(gains) > 0, gains


def test_the_same_trials_and_seed_choose_the_same_whatever_was_asked_before():
    """A resumed search has asked nothing yet, and must draw what the undisturbed one draws."""
    fresh, used = sampler(seen(50)), sampler(seen(50)[:10])
    for trial in seen(50)[10:]:
        propose(used, [], REFERENCE, trial.number)
        used.model.observe(trial)
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
    near = {RandomSuggester(np.random.default_rng(i), {"k": 5}).suggest_int("k", 2, 10) for i in range(50)}
    assert {4, 5, 6} <= near <= set(range(2, 9))
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
    surrogate = use.model.surrogate()
    able = use.model.deliverable()
    delivered = [able[i] for i in surrogate.contenders(able)]
    assert any(a != b for a, b in pairs)
    for a, b in pairs:
        configs = [_configured(p) for p in (a, b)]
        value = gradient(surrogate, configs, delivered) / (OVERHEAD + np.array([c.compute for c in configs]))
        assert value[0] >= value[1]


def _configured(params: dict[str, float]) -> TrialConfig:
    point = {"family": "constant", "c": params["c"], "gamma_rst": params["gamma_rst"], "rule": "sam"}
    return trial_config(point, SCALE)


def test_it_is_an_optuna_sampler_that_any_study_can_ask():
    """Until enough has finished it samples at random, and then what it proposes is what the trial gets."""
    space = space_of()
    for trials in (seen(3), seen()):
        use = sampler(trials)
        use.prepare((), REFERENCE, 7)
        proposed = use.propose(replicates=False)
        assert (proposed is None) == (len(trials) == 3)
        study = optuna.create_study(directions=["minimize", "minimize"], sampler=use)
        asked = study.ask()
        params = space.sample(asked)
        assert space.sampled_params(params) is not None
        assert proposed is None or asked.params == proposed


# --- every axis of the space `compute` --------------------------------------------------------------------------


def world(config: TrialConfig) -> float:
    """Twice the length gains a little, the recipe's radius and gamma_rst 1 are best."""
    strength = config.gamma_rst * config.rho / SCALE.rho
    return truth(max(config.extra_propagation, 0.05), max(strength, 0.1)) - 0.8 * np.log2(config.horizon)


def drawn(count: int, seed: int = 0, **more: object) -> list[Trial]:
    """Return random trainings of the space `compute`."""
    space, rng = load_space("compute"), np.random.default_rng(seed)
    points = [space.sample(RandomSuggester(rng)) for _ in range(count)]
    return [trial_of(n, p, world(trial_config(p, SCALE)) * np.exp(0.02 * rng.normal()), **more)
            for n, p in enumerate(points)]  # fmt: skip


def compute_sampler(trials: list[Trial]) -> FrontSampler:
    use = FrontSampler(load_space("compute").sample, replace(SCALE, exact=False), n_startup_trials=8)
    for trial in trials:
        use.model.observe(trial)
    return use


def asked(use: FrontSampler, seed: int) -> dict:
    """Return the parameters that the proposal means."""
    proposal = propose(use, [], REFERENCE, seed)
    return load_space("compute").sample(FixedSuggester(proposal))


class FixedSuggester(RandomSuggester):
    """Answers with given values."""

    def __init__(self, values: dict) -> None:
        super().__init__(np.random.default_rng(0))
        self.params = dict(values)


def test_over_length_radius_and_rule_the_proposals_beat_random_ones():
    def after(seed: int, *, chosen: bool) -> float:
        trials = drawn(12, seed)
        use, more = compute_sampler(trials), drawn(24, 100 + seed)
        for number in range(12, 24):
            point = asked(use, number) if chosen else dict(more[number].config.params)
            error = world(trial_config(point, SCALE))
            trials.append(trial_of(number, point, error))
            use.model.observe(trials[-1])
        return pareto.hypervolume([(world(t.config), t.compute) for t in trials], (12.0, 4.3))

    gains = [after(seed, chosen=True) - after(seed, chosen=False) for seed in range(4)]
    assert np.mean(gains) > 0, gains
    assert sum(gain > 0 for gain in gains) >= 3, gains


def test_the_kernel_does_not_depend_on_which_candidates_were_drawn():
    first, second = compute_sampler(drawn(20)), compute_sampler(drawn(20))
    propose(first, [], REFERENCE, 1)
    propose(second, [], REFERENCE, 2)
    assert first.model._kernel_params == second.model._kernel_params
    assert propose(first, [], REFERENCE, 3) == propose(second, [], REFERENCE, 3)


def test_of_many_trials_the_front_and_the_baselines_stay_in_view(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(model, "MAX_FITTED", 20)
    base = trial_of(0, {"schedule": {"family": "constant", "p": 0.0}, "rule": "sam"}, 12.0)
    best = replace(drawn(1)[0], error=0.5, config_id="best")
    use = compute_sampler([base, best, *drawn(100)])
    use.model.surrogate()
    observed = use.model._used
    assert len(observed) == 20
    assert {base.config_id, "best"} <= {t.config_id for t in observed}
    assert observed[-1].number == 99


def test_what_was_stopped_or_broke_down_is_not_delivered(monkeypatch: pytest.MonkeyPatch):
    seen_by: list[set[str]] = []

    def spy(surrogate, candidates, delivered, reference, seeds):
        seen_by.append({config_id(c.params) for c in delivered})
        return np.zeros(len(candidates))

    monkeypatch.setattr(module, "knowledge_gradient", spy)
    *good, stopped, broken, running = drawn(13)
    use = compute_sampler(good)
    use.model.observe(replace(stopped, status=Status.STOPPED, error=None), expected_final=1.0)
    use.model.observe(replace(broken, status=Status.DIVERGED, error=None))
    propose(use, [replace(running, status=Status.RUNNING, error=None)], REFERENCE, 0)
    assert seen_by[0] == {t.config_id for t in (*good, running)}
