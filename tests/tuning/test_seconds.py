"""`cost: seconds`: times are measured once, every cost follows from them, and a front is drawn over either cost."""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from rst_tune import cli
from rst_tune.analysis.analysis import analyze
from rst_tune.analysis.cost import in_cost, recorded_times
from rst_tune.errors import InputError
from rst_tune.records import LOG_NAME, RuleTimes, Search, SearchStarted, Trial, load
from rst_tune.report.cost_axis import CostAxis
from rst_tune.training.function import FunctionTask
from rst_tune.tuning import search as module
from rst_tune.tuning.backend.resources import Resources
from rst_tune.tuning.backend.simulator import InMemoryLog
from rst_tune.tuning.budget import BudgetTracker
from rst_tune.tuning.estimate import estimate, measure_times
from rst_tune.tuning.experiment import Experiment, function_experiment, load_experiment
from rst_tune.tuning.search import run_search
from rst_tune.tuning.space import trial_config
from tests.tuning.simulated import STEPS, World, controller_of, drive, experiment
from tests.tuning.test_experiment import SMOKE

FIRST, SECOND, LOOKING = 0.002, 0.1, 0.01
SAM = {"family": "constant", "c": 1.0, "gamma_gnr": 1.0, "rule": "sam"}
ESAM = {**SAM, "rule": "esam"}
TIMES = RuleTimes(step=0.01, second=0.9, work={"esam": 0.5})


def slow_second_pass(trial):
    """Sleep fifty times as long in the second pass of a step as in its first, and long in the validation."""
    model = nn.Linear(1, 1)
    opt = trial.optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, steps_per_epoch=4)
    x = torch.ones(2, 1)
    for _ in trial.epochs():
        for _ in range(4):
            passes = []

            def loss(passes=passes):
                time.sleep(SECOND if passes else FIRST)
                passes.append(1)
                return mse_loss(model(x), x)

            opt.step(loss)
        time.sleep(LOOKING)
        trial.report(mse_loss(model(x), x).item() + 0.1)


def test_a_second_pass_that_takes_long_costs_more_in_seconds_than_in_pairs():
    workload = FunctionTask.of(slow_second_pass, epochs=3).workload()
    times = measure_times(workload, rules=["sam"], resources=Resources(), seconds=0.1)
    assert times.step > FIRST
    assert times.second > 1.5
    exp = experiment("cost=seconds").timed(times)
    assert trial_config(SAM, exp.scale(STEPS)).compute > 2.5
    assert trial_config(SAM, experiment().scale(STEPS)).compute == 2.0


def test_every_rule_is_timed_on_the_built_in_workload():
    exp = load_experiment("digits", [*SMOKE, "cost=seconds", "space.rules=[sam, esam, looksam, msam]"])
    times = measure_times(exp.workload(), rules=["sam", "esam", "looksam"], resources=exp.resources, seconds=0.01)
    assert times.step > 0
    assert set(times.work) == {"esam", "looksam"}


def test_the_cost_of_a_configuration_is_that_of_its_pairs_and_of_its_rules_work():
    scale = experiment().timed(TIMES).scale(STEPS)
    sam, esam = trial_config(SAM, scale), trial_config(ESAM, scale)
    assert sam.compute == pytest.approx(1.9)
    assert esam.compute == pytest.approx(1 + 0.9 * esam.extra_propagation + 0.5)
    assert (sam.cost, esam.timed(None).cost) == ("seconds", "compute")
    assert esam.timed(None).compute == pytest.approx(1 + esam.extra_propagation)
    assert esam.timed(None).compute < sam.timed(None).compute
    assert esam.compute > sam.compute
    assert trial_config({**SAM, "c": 0.0, "horizon": 1.0}, scale).compute == 1.0


@pytest.mark.parametrize(("unit", "share"), [("trainings: 10", 1.9), ("pairs: 20", 2.0)])
def test_a_budget_in_pairs_counts_pairs_and_any_other_their_time(unit, share):
    exp = experiment("cost=seconds", f"budget={{{unit}}}").timed(TIMES)
    config, recipe = trial_config(SAM, exp.scale(STEPS)), 9 * STEPS
    trial = Trial(key="a", number=0, role="search", config_id="a", config=config, seed=0, epochs=9, full_horizon=True,
                  sampled_at=0.0, pairs=2.0 * recipe)  # fmt: skip
    budget = BudgetTracker(exp, STEPS)
    assert budget.expected_pairs(trial) == pytest.approx(share * recipe)
    budget.commit(trial)
    assert budget.spent == pytest.approx(share * recipe if "pairs" in unit else share)


def simulated(exp: Experiment, log: InMemoryLog) -> Search:
    if not log.events:
        log.append(SearchStarted(experiment=exp.public(), steps_per_epoch=STEPS, times=exp.scale(1).times))
    return drive(controller_of(exp, log), World())


SEARCH = ("budget={trials: 12}", "confirm={min_seeds: 2, max_seeds: 2, candidates: 2}", "space=rules")


def test_a_search_over_seconds_keeps_its_costs_when_it_is_resumed_and_says_time():
    exp = experiment("cost=seconds", *SEARCH).timed(TIMES)
    log = InMemoryLog()
    whole = simulated(exp, log)
    resumed = simulated(exp, InMemoryLog(log.events[: len(log.events) // 2]))
    assert [(t.key, t.compute) for t in resumed.trials] == [(t.key, t.compute) for t in whole.trials]
    assert {t.config.cost for t in whole.trials} == {"seconds"}
    analysis = analyze(whole)
    assert analysis.reference[1] > TIMES.dearest
    assert "extra time" in analysis.answer
    assert CostAxis.of(analysis.summaries).title.startswith("extra time")
    assert {row["cost"] for row in analysis.rows()} == {"seconds"}
    other = analyze(whole, "compute")
    assert "extra compute" in other.answer
    assert {row["compute"] for row in other.rows()} <= {1 + t.extra_propagation for t in whole.trials}


def test_recorded_seconds_give_the_times_back_and_pairs_that_take_one_time_give_one_front():
    """In the simulator all pairs take the same time: a second pass takes that of a first, and rules do no work."""
    search = simulated(experiment(*SEARCH), InMemoryLog())
    times = recorded_times(search)
    assert times.second == pytest.approx(1.0)
    assert all(work == pytest.approx(0.0, abs=1e-9) for work in times.work.values())
    slow = replace(search, trials=tuple(_with_seconds(t, TIMES) for t in search.trials))
    found = recorded_times(slow)
    assert found.second == pytest.approx(TIMES.second)
    assert {rule: round(work, 6) for rule, work in found.work.items()} == {
        rule: TIMES.work.get(rule, 0.0) for rule in times.work
    }
    assert times.work
    known = [t for t in in_cost(slow, "seconds").trials if t.config.rule in ("sam", *found.work)]
    assert len(known) >= len(slow.finished())
    for trial in known:  # of a rule that no training was completed with, the work is not known
        assert trial.compute == pytest.approx(trial.config.timed(TIMES).compute)


def _with_seconds(trial: Trial, times: RuleTimes) -> Trial:
    """Return the trial with the seconds that its training takes by these times, and ten of validation."""
    per_step = times.per_step(trial.pairs / (trial.epochs * STEPS) - 1, trial.config.ascents, trial.config.rule)
    training = times.step * trial.epochs * STEPS * per_step
    return replace(trial, seconds=training + 10.0, history={"seconds_evaluation": [10.0]})


def test_without_a_training_of_the_base_optimizer_there_is_no_cost_in_seconds():
    search = simulated(experiment(*SEARCH), InMemoryLog())
    with pytest.raises(InputError, match=r"relative to that of the base optimizer.*use --cost compute"):
        in_cost(replace(search, trials=tuple(t for t in search.trials if not t.config.is_base)), "seconds")


def test_an_unknown_cost_is_refused_in_an_experiment():
    with pytest.raises(InputError, match=r"cost.*'compute' or 'seconds'.*minutes"):
        experiment("cost=minutes")


def test_searches_from_before_the_choice_keep_their_identity():
    assert "cost" not in experiment().identity()
    assert experiment().search_id != experiment("cost=seconds").search_id


def test_a_plan_over_seconds_counts_plain_steps():
    planned = estimate(load_experiment("digits", [*SMOKE, "cost=seconds", "space=grst", "budget={trainings: 10}"]))
    assert planned.cost == "seconds"
    assert planned.plain_trainings == pytest.approx(10)
    steps = planned.pairs_budget
    assert planned.device_hours == pytest.approx(steps * planned.seconds_per_pair / 3600)


# --- on Ray -------------------------------------------------------------------------------------------------------


def call(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["rst-tune", *map(str, words)])
    return cli._invoke()


@pytest.mark.slow
@pytest.mark.timeout(580)
def test_a_search_over_seconds_measures_on_a_worker_once_and_is_drawn_over_either_cost(tmp_path, monkeypatch, capfd):
    exp = function_experiment(
        slow_second_pass, epochs=3, cost="seconds", budget="4 trials", space="grst", sampler={"name": "random"},
        confirm={"enabled": False}, tracking={"enabled": False}, fidelity={"kind": "full"},
    )  # fmt: skip
    first = run_search(exp, tmp_path)
    assert first.header.times.second > 1.5
    sam = next(t for t in first.trials if t.config.is_sam)
    assert sam.compute > 2.5
    _forget_after(tmp_path / LOG_NAME, trials=2)
    monkeypatch.setattr(module, "timing", lambda experiment: pytest.fail("measured again"))
    again = run_search(exp, tmp_path)
    assert again.done
    assert again.header.times == first.header.times
    assert {t.config_id: t.compute for t in again.trials} == {t.config_id: t.compute for t in first.trials}
    # The recorded seconds of whole trainings tell the same of the second pass as the measurement before the search.
    assert recorded_times(again).second > 1.5

    rows = {}
    for cost in ("compute", "seconds"):
        assert call(monkeypatch, "front", tmp_path, "--cost", cost, "--json") == 0
        rows[cost] = {row["config_id"]: row for row in json.loads(capfd.readouterr().out)}
        assert call(monkeypatch, "report", tmp_path, "--cost", cost, "--output", tmp_path / f"{cost}.html") == 0
        capfd.readouterr()
    assert rows["seconds"] == {row["config_id"]: row for row in json.loads(json.dumps(analyze(load(tmp_path)).rows()))}
    for identity in rows["compute"].keys() & rows["seconds"].keys():
        mine, theirs = rows["seconds"][identity]["compute"], rows["compute"][identity]["compute"]
        assert mine == pytest.approx(theirs) if theirs == 1.0 else mine > theirs
    assert "extra time" in (tmp_path / "seconds.html").read_text()
    assert "extra time" not in (tmp_path / "compute.html").read_text()
    assert call(monkeypatch, "front", tmp_path, "--cost", "minutes") == 2
    assert "The choices are: compute, seconds" in " ".join(capfd.readouterr().err.split())


def _forget_after(log: Path, *, trials: int) -> None:
    """Cut the log off where one more than `trials` trials have been sampled, as a killed driver would leave it."""
    kept, sampled = [], 0
    for line in log.read_text().splitlines(keepends=True):
        sampled += json.loads(line)["event"] == "trial"
        if sampled > trials:
            break
        kept.append(line)
    log.write_text("".join(kept))
