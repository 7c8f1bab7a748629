"""Ray Tune: every sample of the space makes an RST, and the front is that of plain dominance."""

from types import SimpleNamespace

import own_functions
import pytest
from small_nets import mlp, sgd, train

from rst_tune import RST, schedules
from rst_tune.errors import InputError

tune = pytest.importorskip("ray.tune", reason="Ray Tune is not installed: pip install 'rst_tune[tune]'")
from ray.tune.schedulers import ASHAScheduler, TrialScheduler  # noqa: E402

from rst_tune.integrations.ray import (  # noqa: E402
    FrontSearch,
    ParetoScheduler,
    front_of,
    rst_from_config,
    search_space,
    trainable,
)


def sampled(space):
    return {name: axis.sample() if hasattr(axis, "sample") else axis for name, axis in space.items()}


@pytest.mark.parametrize("_", range(10))
def test_every_sample_makes_an_rst(_):
    model, config = mlp(), sampled(search_space(rule=tune.choice(["sam", "asam"]), seed=3))
    opt = rst_from_config(config, sgd(model), model, total_steps=12, cap=3.0)
    assert (opt.rho, opt.gamma_gnr, opt.rule.name) == (config["rho"], config["gamma_gnr"], config["rule"])
    assert (opt.seed, opt.cap) == (3, 3.0)
    assert opt.schedule.extra_propagation(12) == pytest.approx(config["extra_propagation"])
    train(model, opt)


def test_a_configuration_without_a_schedule_is_refused():
    model = mlp()
    with pytest.raises(InputError, match=r"\['extra_propagation', 'shape'\] are missing: use search_space"):
        rst_from_config({"family": "constant", "rho": 0.1}, sgd(model), model, total_steps=3)


def test_the_front_has_what_nothing_dominates():
    points = [(3.0, 10), (2.0, 20), (2.5, 20), (1.0, 40), (float("nan"), 1), (4.0, 12), (2.0, 20)]
    results = [SimpleNamespace(metrics={"error": e, "pairs": c}, error=None) for e, c in points]
    results += [
        SimpleNamespace(metrics={"error": 0.0, "pairs": 1}, error=RuntimeError()),
        SimpleNamespace(metrics={"pairs": 1}, error=None),
        SimpleNamespace(metrics=None, error=None),
    ]
    front = front_of(results)
    assert [(r.metrics["error"], r.metrics["pairs"]) for r in front] == [(3.0, 10), (2.0, 20), (2.0, 20), (1.0, 40)]


# --- the trainable, the scheduler and the searcher --------------------------------------------------------------


def asked(scheduler, trials):
    """Return the trials, of (error, compute), that a scheduler lets pass its first rung."""
    passed = []
    for number, (error, compute) in enumerate(trials):
        trial = SimpleNamespace(trial_id=str(number), status="RUNNING", evaluated_params={})
        scheduler.on_trial_add(None, trial)
        result = {"error": error, "compute": compute, "epochs": 9, "training_iteration": 3}
        if scheduler.on_trial_result(None, trial, result) == TrialScheduler.CONTINUE:
            passed.append((error, compute))
    return passed


def test_both_ends_of_the_front_pass_where_asha_loses_the_cheap_one():
    cheap, dear = [(4.0 + 0.01 * i, 1.0 + 0.001 * i) for i in range(6)], [(3.0 + 0.1 * i, 2.0) for i in range(24)]
    trials = [dear[4 * i + j] for i in range(6) for j in range(4)]
    for place, point in enumerate(cheap):
        trials.insert(9 + 4 * place, point)
    stock = ASHAScheduler(metric="error", mode="min", max_t=9, grace_period=3, reduction_factor=3)
    mine, theirs = asked(ParetoScheduler(9, rungs=1), trials), asked(stock, trials)
    assert min(c for _, c in mine) == 1.0
    assert min(c for _, c in theirs) == 2.0
    assert (3.0, 2.0) in mine
    assert len(mine) < len(trials) / 2, "it stops as much as halving does"


def test_a_diverged_trial_stops_at_its_rung_and_a_missing_metric_is_named():
    assert asked(ParetoScheduler(9, rungs=1), [(float("inf"), 1.0)]) == []
    trial = SimpleNamespace(trial_id="a")
    with pytest.raises(InputError, match=r"\['compute'\] are missing: report them"):
        ParetoScheduler(9).on_trial_result(None, trial, {"error": 1.0, "training_iteration": 3})


def test_the_searcher_gives_ordinary_values_and_is_saved_and_restored(tmp_path):
    def run(searcher, number):
        config = searcher.suggest(str(number))
        result = {"error": 3.0 + config["rho"], "compute": config["horizon"] * 1.5, "complete": number % 5 != 4}
        searcher.on_trial_complete(str(number), result)
        return config

    searcher = FrontSearch("compute", epochs=20, n_startup_trials=6)
    configs = [run(searcher, number) for number in range(12)]
    assert {"schedule", "rule", "rho", "gamma_gnr", "horizon"} <= set(configs[0])
    for config in configs:
        model = mlp()
        own = {name: config[name] for name in ("rule", "rho", "gamma_gnr")}
        train(model, RST(sgd(model), model, schedule=schedules.from_dict(config["schedule"]), total_steps=12, **own))
    states = [t.state.name for t in searcher._ot_study.trials]
    assert states.count("PRUNED") == 2, "a stopped trial is not told as a complete one"
    searcher.save(str(tmp_path / "searcher.pkl"))
    again = FrontSearch("compute", epochs=20, n_startup_trials=6)
    again.restore(str(tmp_path / "searcher.pkl"))
    assert again.suggest("next") == searcher.suggest("next")


@pytest.fixture
def connected(cluster):
    import ray

    ray.init(address=cluster.address, log_to_driver=False)
    yield
    ray.shutdown()


def test_a_training_function_is_a_conventional_trainable(connected, tmp_path):
    space = search_space(flag=tune.grid_search(["", str(tmp_path / "flag")]), lr=0.05, seed=5, rho=0.05)
    fixed = {"family": "constant", "extra_propagation": 0.5, "shape": 0.0, "gamma_gnr": 2.0}
    results = tune.Tuner(
        trainable(own_functions.breaking, epochs=4, metric="MSE"),
        param_space=space | fixed,
        tune_config=tune.TuneConfig(metric="error", mode="min", max_concurrent_trials=1),
        run_config=tune.RunConfig(
            storage_path=str(tmp_path), name="own", verbose=0, failure_config=tune.FailureConfig(max_failures=1)
        ),
    ).fit()
    assert not results.errors
    plain, broken = sorted(results, key=lambda r: r.config["flag"])
    assert (tmp_path / "flag").exists()
    assert broken.metrics["MSE"] == plain.metrics["MSE"], "it continued from Tune's own checkpoint, to the last bit"
    assert plain.metrics["complete"]
    assert plain.metrics["epochs"] == plain.metrics["training_iteration"] == 4
    assert plain.metrics["compute"] == 1.5
    assert plain.config["lr"] == 0.05
    assert front_of(results, cost="compute")
    assert tune.Tuner.can_restore(str(tmp_path / "own"))
