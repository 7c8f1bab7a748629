"""Every shipped experiment is loaded, planned, and runs at smoke size."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from rst_tune.analysis.analysis import analyze
from rst_tune.errors import InputError
from rst_tune.records import Role, config_id
from rst_tune.training.function import FunctionTask
from rst_tune.tuning import yaml_files
from rst_tune.tuning.estimate import Estimate, estimate
from rst_tune.tuning.experiment import Experiment, load_experiment
from rst_tune.tuning.points import points_to_evaluate
from rst_tune.tuning.space import Space
from tests.tuning.simulated import World, simulate

SHIPPED = list(yaml_files.shipped("experiments"))
PAPER = [name for name in SHIPPED if name.startswith("paper/")]
GRIDS = [name for name in SHIPPED if load_experiment(name).sampler.name == "grid"]
FUNCTIONS = [name for name in SHIPPED if isinstance(load_experiment(name).task, FunctionTask)]
HERE = ("resources={cpus_per_worker: 1}", "tracking.enabled=false")
SMOKE = (
    "task.data={name: digits, validation: 397, train_size: 256}",
    "task.model={name: cnn-tiny}",
    "task.recipe={base: digits, epochs: 7}",
    *HERE,
)
OWN_SPACE = Path(__file__).with_name("own_space.py")


def smoke(name: str, *settings: str) -> Experiment:
    small = () if name in GRIDS else ("budget={trials: 8}", "confirm={min_seeds: 2, max_seeds: 2, candidates: 2}")
    task = ("task.epochs=7", *HERE) if name in FUNCTIONS else SMOKE
    return load_experiment(name, [*task, *small, *settings])


@pytest.mark.parametrize("name", SHIPPED)
def test_it_loads_with_one_line_of_description_and_a_stable_identity(name: str):
    experiment = load_experiment(name)
    assert experiment.description
    assert "\n" not in experiment.description
    assert load_experiment(name).search_id == experiment.search_id
    assert (
        load_experiment(name, ["resources.cpus_per_worker=3", "tracking.enabled=false"]).search_id
        == experiment.search_id
    )
    assert load_experiment(name, ["seed=99"]).search_id != experiment.search_id
    again = Experiment.model_validate(experiment.model_dump(mode="json"))
    assert again.search_id == experiment.search_id


@pytest.mark.parametrize("name", SHIPPED)
def test_it_is_planned(name: str):
    planned = estimate(smoke(name), measure=False)
    assert planned.trials_unstopped >= 1
    assert planned.pairs_budget > 0
    assert planned.device_hours is None
    assert planned.plain_trainings == pytest.approx(planned.pairs_budget / (7 * planned.steps_per_epoch))
    assert planned.pairs_budget == pytest.approx(planned.pairs_search + planned.pairs_confirm)
    json.dumps(asdict(planned))


def test_a_plan_says_what_is_varied_and_what_the_baselines_cost():
    planned = estimate(load_experiment("digits"), measure=False)
    axes = {axis["name"]: axis["values"] for axis in planned.axes}
    everywhere = {"family", "rule", "extra_propagation", "shape", "horizon"}
    assert set(axes) == everywhere | {"gamma_rst", "sam.rho", "s2sam.rho"}
    assert axes["rule"] == ["sam", "s2sam"]
    assert axes["horizon"] == {"low": 0.15, "high": 2.0, "log": True}
    recipe = 20 * planned.steps_per_epoch
    assert planned.plain_trainings == 120
    assert planned.pairs_baselines == pytest.approx(recipe * (1 + 2 + 0.15 + 0.3 + 0.55 + 2)), (
        "SGD at five lengths, and SAM"
    )
    assert 0.5 * recipe < planned.pairs_per_trial < 1.5 * recipe
    assert planned.trials_unstopped * planned.pairs_per_trial < planned.pairs_search * 1.5
    assert planned.trials_stopped == planned.trials_unstopped, "nothing is stopped unless it is asked for"
    halved = estimate(load_experiment("digits", ["stopping.name=pareto-asha"]), measure=False)
    assert halved.trials_stopped > 3 * halved.trials_unstopped
    in_trainings = estimate(load_experiment("digits", ["budget={trainings: 160}"]), measure=False)
    assert in_trainings.pairs_budget == 160 * recipe


def test_a_plan_predicts_what_a_decided_front_takes():
    def planned(*settings: str) -> Estimate:
        return estimate(load_experiment("digits", list(settings)), measure=False)

    usual = planned("confirm.min_seeds=3")
    assert usual.trainings_decided == pytest.approx(40, abs=2), "the budget at which the suite has such fronts"
    five = planned()
    assert (five.front_points, five.front_seeds) == (3, 5)
    assert 1.2 * usual.trainings_decided < five.trainings_decided < 60
    assert planned("budget=20 trainings", "confirm.min_seeds=1").trainings_decided == usual.trainings_decided
    assert planned("confirm.enabled=false").trainings_decided is None


def test_a_plan_of_a_grid_is_its_exact_cost():
    planned = estimate(smoke("paper/constant"), measure=False)
    recipe = 7 * planned.steps_per_epoch
    assert planned.axes == [{"name": "constant.p", "values": [i / 10 for i in range(1, 10)]}]
    assert planned.pairs_search == pytest.approx(5 * recipe * (1 + 2 + sum(1 + i / 10 for i in range(1, 10))))
    assert (planned.trials_unstopped, planned.pairs_confirm) == (11, 0.0)


def test_a_plan_of_a_python_space_says_what_it_suggests():
    planned = estimate(smoke("digits", f"space={OWN_SPACE}"), measure=False)
    axes = {axis["name"]: axis["values"] for axis in planned.axes}
    assert axes["family"] == ["ramp-up", "step-up"]
    assert 0.1 <= axes["c"]["low"] < axes["c"]["high"] <= 0.9
    assert planned.pairs_per_trial == pytest.approx(7 * planned.steps_per_epoch * 1.5, rel=0.1)


@pytest.mark.parametrize("name", PAPER)
def test_a_table_of_the_paper_is_a_whole_grid_on_its_seeds(name: str):
    experiment = load_experiment(name)
    assert isinstance(experiment.space, Space)
    assert (experiment.sampler.name, experiment.stopping.name, experiment.fidelity.kind) == ("grid", "none", "full")
    assert experiment.seeds == (3 if "imagenet" in name else 5)
    assert not experiment.confirm.enabled
    assert experiment.resources.gpus_per_worker > 0
    points = {config_id(p) for p in (*points_to_evaluate(experiment.space), *experiment.space.grid())}
    assert experiment.budget.trials == len(points)


@pytest.mark.parametrize("name", SHIPPED)
def test_it_runs_at_smoke_size(name: str):
    experiment = smoke(name, *(["seeds=2"] if name in GRIDS else []))
    search = simulate(experiment, World(), workers=4)
    assert search.done
    assert analyze(search).points
    drawn = {t.config_id for t in search.trials if t.role is Role.SEARCH}
    assert len(drawn) == experiment.budget.trials


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["space=rules", "task.recipe.momentum=0"], "space.rules: rule 'msam' .*momentum"),
        (["space.rules=[sam, sam-on]", "task.model={name: tests.tuning.own_model:plain}"], "'sam-on' .*normalization"),
    ],
)
def test_a_rule_that_does_not_fit_the_model_is_named_before_anything_starts(settings: list[str], says: str):
    experiment = load_experiment("digits", settings)
    with pytest.raises(InputError, match=says):
        experiment.workload().check(experiment.rules, experiment.resources.workers)


def test_the_papers_groups_have_a_file_each():
    groups = "constant piecewise1 piecewise2 piecewise3 linear1 linear2 trigonometric gamma_map sgd_and_sam"
    tables = "cutout_constant cutout_piecewise1 cutout_linear1 cutout_trigonometric vgg16bn_constant vit_s_constant"
    models = "vgg16bn resnet18 wrn28_10 pyramidnet164 vit_ti vit_s vit_b"
    rules = "variants_asam variants_gsam efficient_looksam efficient_esam efficient_ssam"
    expected = [*groups.split(), *tables.split(), *rules.split(), *(f"grst_{m}" for m in models.split())]
    assert set(PAPER) == {f"paper/{name}" for name in [*expected, "imagenet_resnet50", "imagenet_resnet101"]}


def test_a_python_space_is_searched():
    experiment = load_experiment(
        "digits", [*SMOKE, f"space={OWN_SPACE}", "budget={trials: 8}", "confirm.enabled=false"]
    )
    search = simulate(experiment, World())
    drawn = search.trials[2:]
    assert {t.config.family for t in drawn} <= {"step-up", "ramp-up"}
    assert all(t.config.gamma_rst <= 1.5 - 0.5 * t.extra_propagation for t in drawn)
    assert len(drawn) == 6


@pytest.mark.parametrize(
    ("kind", "reduction", "rungs", "horizon", "expected"),
    [("prefix", 3, 2, 20, [3, 7]), ("prefix", 3, 2, 27, [3, 9]), ("full", 3, 2, 27, []), ("prefix", 2, 3, 3, [1, 2])],
)
def test_rungs_stand_at_shares_of_the_horizon(kind, reduction, rungs, horizon, expected):
    fidelity = f"fidelity={{kind: {kind}, reduction_factor: {reduction}, rungs: {rungs}}}"
    assert load_experiment("digits", [fidelity]).fidelity.epochs(horizon) == expected


@pytest.mark.parametrize(
    ("budget", "given", "seeds"),
    [
        ("{trainings: 20}", "{}", 1),
        ("{trainings: 20}", "{min_seeds: 3}", 3),
        ("{trainings: 30}", "{}", 3),
        ("{epochs: 100}", "{}", 1),
        ("{epochs: 1000}", "{}", 3),
        ("{pairs: 100}", "{}", 3),
    ],
)
def test_a_budget_that_is_too_small_for_replicates_delivers_one_seed_per_point(budget, given, seeds):
    experiment = load_experiment("digits", [f"budget={budget}", f"confirm={given}"])
    assert experiment.confirm.min_seeds == seeds
    assert Experiment.model_validate(experiment.model_dump()).confirm.min_seeds == seeds
