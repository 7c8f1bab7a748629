"""The suite of search benchmarks: its trainer follows the optimizer, its table grows on demand, results are kept."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

SUITE = Path(__file__).parents[1] / "experiments" / "benchmarks" / "suite"
sys.path.insert(0, str(SUITE))

import ensemble  # noqa: E402
from bank import Bank  # noqa: E402
from grid_space import compute_space, rounded  # noqa: E402
from simulated_tasks import FORMULAS, simulated_bank  # noqa: E402
from tasks import ALL, TASKS  # noqa: E402

from rst_tune import RST, schedules  # noqa: E402
from rst_tune.training.optimization import learning_rate  # noqa: E402
from rst_tune.tuning.points import SGD  # noqa: E402
from rst_tune.tuning.sampler import RandomSuggester  # noqa: E402

TASK = TASKS["clusters-hot"]
LATE = {"family": "step-up", "c": 0.5, "shape": 1.0, "gamma_rst": 1.0, "rule": "sam", "rho": 0.6, "rho_unit": "recipe",
        "horizon": 0.42}  # fmt: skip
AHEAD = {"schedule": {"family": "constant", "p": 0.7}, "rule": "s2sam", "rho": 0.3, "rho_unit": "recipe",
         "horizon": 0.42}  # fmt: skip


def by_the_optimizer(bank: Bank, params: dict, seed: int, epochs: int) -> float:
    """Train one member with `rst_tune.RST`, on the same data, weights and batches."""
    task, config = bank.task, bank.config(params)
    train, labels, validation = ensemble.split(task, seed)
    x, y = task.examples()
    weights = ensemble.initial_weights(task, seed)
    sizes = [w.shape for w in weights[::2]]
    layers = [nn.Linear(*size) for size in sizes]
    for layer, weight, bias in zip(layers, weights[::2], weights[1::2], strict=True):
        layer.weight.data, layer.bias.data = weight.T.clone(), bias.flatten().clone()
    network = nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU())))[:-1]
    base = torch.optim.SGD(network.parameters(), lr=task.lr, momentum=task.momentum)
    total = epochs * task.steps_per_epoch
    opt = RST(
        base, network, schedule=schedules.from_dict(config.schedule), total_steps=total, rho=config.rho,
        gamma_gnr=config.gamma_gnr, rule=config.rule, seed=seed,
    )  # fmt: skip
    rng, t = np.random.default_rng([seed, 2]), 0
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(task.train)[: task.steps_per_epoch * task.batch_size])
        for at in order.split(task.batch_size):
            t += 1
            base.param_groups[0]["lr"] = learning_rate(t, total, peak=task.lr)
            batch, target = x[train[at]], labels[at]
            opt.step(lambda batch=batch, target=target: nn.functional.cross_entropy(network(batch), target))
    with torch.no_grad():
        return float(100 * (network(x[validation]).argmax(1) != y[validation]).float().mean())


@pytest.mark.parametrize("params", [SGD, LATE, AHEAD], ids=["base", "late SAM", "one pass"])
def test_a_member_of_the_ensemble_trains_as_the_optimizer_does(params: dict):
    bank = Bank(TASK, keep=False)
    config = bank.config(params)
    epochs = bank.scale.epochs_of(params)
    others = [ensemble.Member(bank.config(p), 3, bank.scale.epochs_of(p)) for p in (SGD, LATE, AHEAD)]
    found = ensemble.train(TASK, [ensemble.Member(config, 5, epochs), *others])[0]
    # Sums in another order: a few validation examples may change sides.
    assert found[epochs] == pytest.approx(by_the_optimizer(bank, params, 5, epochs), abs=1.0)


def test_searches_at_once_get_the_trainings_they_would_get_alone():
    alone, together = Bank(TASK, keep=False), Bank(TASK, keep=False)
    params = [{**SGD, "horizon": 0.15}, {**LATE, "horizon": 0.15}]
    expected = [alone.run([lambda p=p: alone.error(alone.config(p), 1)])[0] for p in params]
    found = together.run([lambda p=p: together.error(together.config(p), 1) for p in params])
    assert found == pytest.approx(expected, abs=0.5)
    assert together.trained == 2


def test_samples_lie_on_the_grid():
    rng, space = np.random.default_rng(0), compute_space()
    samples = [space.sample(RandomSuggester(rng)) for _ in range(50)]
    assert all(rounded(params) == params for params in samples)
    assert {params["rule"] for params in samples} == {"sam", "s2sam"}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_simulated_task_has_the_errors_of_its_formula(name: str):
    bank = simulated_bank(name)
    for params in (SGD, LATE):
        config, twin = bank.config(params), bank.config({**SGD, "horizon": 2.0})
        errors, others = (np.array([bank.error(c, seed) for seed in range(4000)]) for c in (config, twin))
        assert errors.mean() == pytest.approx(bank.truth([config])[0, 0], rel=0.01)
        assert np.corrcoef(errors, others)[0, 1] > 0.2, "a seed is lucky for all configurations alike"
    assert bank.curve(config, 7) == bank.curve(config, 7)


def test_the_simulated_tasks_differ_in_what_pays():
    pays, nothing, harms = (simulated_bank(name) for name in FORMULAS)
    sam = {**SGD, "schedule": {"family": "constant", "p": 1.0}}
    for bank, sign in ((pays, -1), (nothing, 0), (harms, 1)):
        errors = bank.truth([bank.config(p) for p in (SGD, sam, {**SGD, "horizon": 2.0})])[:, 0]
        assert np.sign(errors[1] - errors[0]) == sign
        assert errors[2] < errors[0]


def test_the_sentences_of_the_kept_searches_are_judged():
    import decisions

    simulated = [r for r in decisions.load() if r["task"] in FORMULAS]
    assert len(simulated) == 3 * 16 * len(decisions.BUDGETS)
    lines = decisions.table(decisions.scores(simulated[:8])).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == [
        "| simulated-pays", "| all", "| version 0.1.0, its two tables",
    ]  # fmt: skip
    assert [line.split(" | ")[1] for line in lines[2:]] == ["8", "8", "32"]


def test_the_kept_results_are_judged_without_any_data_set(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SUITE_DATA", raising=False)
    import run

    rows = run.load()
    assert {r["task"] for r in rows if r["method"] == "ours"} == set(ALL)
    one = run.judged([r for r in rows if r["task"] == "fashion-adam"])
    at = [r for r in one if r["budget"] == 40.0]
    ours, random = (np.mean([r["true"] for r in at if r["method"] == method]) for method in ("ours", "random"))
    assert 0.5 < random < ours < 1.1
