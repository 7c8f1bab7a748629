"""Every shipped experiment is loaded, planned, and runs at smoke size."""

from pathlib import Path

import pytest

from rst_tune.analysis.analysis import analyze
from rst_tune.records import Role, config_id
from rst_tune.tuning import yaml_files
from rst_tune.tuning.estimate import estimate
from rst_tune.tuning.experiment import Experiment, load_experiment
from rst_tune.tuning.points import points_to_evaluate
from rst_tune.tuning.space import Space
from tests.tuning.simulated import World, simulate

SHIPPED = list(yaml_files.shipped("experiments"))
PAPER = [name for name in SHIPPED if name.startswith("paper/")]
GRIDS = [name for name in SHIPPED if load_experiment(name).sampler.name == "grid"]
SMOKE = (
    "task.data={name: digits, validation: 397, train_size: 256}",
    "task.model={name: cnn-tiny}",
    "task.recipe={base: digits, epochs: 7}",
    "resources={cpus_per_worker: 1}",
    "tracking.enabled=false",
)
OWN_SPACE = Path(__file__).with_name("own_space.py")


def smoke(name: str, *settings: str) -> Experiment:
    small = () if name in GRIDS else ("budget={trials: 8}", "confirm={min_seeds: 2, max_seeds: 2, candidates: 2}")
    return load_experiment(name, [*SMOKE, *small, *settings])


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
