from pathlib import Path

import pytest

from rst_tune.errors import InputError
from rst_tune.tuning import yaml_files
from rst_tune.tuning.experiment import load_experiment


def written(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [1, 2", "not valid YAML: line 1"),
        ("a: 1\na: 2", "line 2: the key 'a' is given twice"),
        ("- 1\n- 2", "`key: value` lines, but it holds list"),
        ("", "`key: value` lines"),
        ("a: !!python/object/apply:os.system [echo]", "not valid YAML"),
        ("a: " + "[" * 500, "not valid YAML"),
    ],
)
def test_a_file_that_is_not_a_mapping_is_named_with_its_line(tmp_path: Path, text: str, says: str):
    path = written(tmp_path, text)
    with pytest.raises(InputError) as caught:
        yaml_files.read_yaml(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert says in str(caught.value)


def test_numbers_are_read_as_people_write_them(tmp_path: Path):
    assert yaml_files.read_yaml(written(tmp_path, "a: 1e-3\nb: 5e6\nc: 2.0e+4")) == {"a": 0.001, "b": 5e6, "c": 2e4}


@pytest.mark.parametrize(
    ("setting", "says"),
    [("budget.pairs", "key=value"), ("=3", "key=value"), ("a=[1", "not valid YAML"), ("seed.x=1", "has no fields")],
)
def test_a_wrong_setting_is_quoted(setting: str, says: str):
    with pytest.raises(InputError, match="--set") as caught:
        yaml_files.override({"seed": 1}, [setting])
    assert says in str(caught.value)
    assert setting in str(caught.value)


def test_settings_reach_into_names_and_read_yaml():
    content = yaml_files.override(
        {"task": {"recipe": "digits"}}, ["task.recipe.epochs=3", "resources.gpus_per_worker=0.5", "space.rules=[sam]"]
    )
    assert content["task"]["recipe"] == {"base": "digits", "epochs": 3}
    assert (content["resources"], content["space"]) == ({"gpus_per_worker": 0.5}, {"rules": ["sam"]})


def test_an_unknown_name_or_path_hints_at_what_is_shipped():
    with pytest.raises(InputError, match="did you mean 'digits'"):
        yaml_files.find("experiments", "digitz")
    with pytest.raises(InputError, match=r"no file nowhere/digit\.yaml"):
        yaml_files.find("experiments", "nowhere/digit.yaml")
    assert yaml_files.find("experiments", "paper/constant") == yaml_files.find(
        "experiments", "experiments/paper/constant.yaml"
    )


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["stopping.name=pareto_asha"], "stopping.name: .*'pareto_asha'.*did you mean 'pareto-asha'"),
        (["budjet.pairs=3"], "budjet: .*did you mean 'budget'"),
        (["task.recipe.epoch=3"], "task.recipe.epoch: .*did you mean 'epochs'"),
        (["task.recipe=digitz"], "task.recipe: .*'digitz'.*did you mean 'digits'"),
        (["task.model.name=cnn-tny"], "task.model.name: .*did you mean 'cnn-tiny'"),
        (["space=grts"], "space: .*'grts'.*did you mean 'grst'"),
        (["space.gama_rst=1"], "space: gama_rst: .*did you mean 'gamma_rst'"),
        (["space=3"], "space: .*got 3"),
        (["task.recipe.epochs=abc"], "task.recipe.epochs: .*integer.*'abc'"),
        (["seed=-1"], "seed: .*greater.*-1"),
        (["seed=4611686018427387904"], "seed: .*less than 4611686018427387904"),
        (["budget.trials=3"], r"budget: .*exactly one.*\['pairs', 'trials'\]"),
        (["resources.gpus_per_worker=1.5"], "resources: gpus_per_worker: .*fraction of one.*1.5.*workers"),
        (["task.recipe.epochs=1"], "task.recipe.epochs: 1 .*fidelity.kind: full"),
        (["space.horizon=0"], "space: horizon: .*above 0.*starts at 0"),
        (["task.recipe.epochs=5"], "space.horizon: .*0.15 of 5 epochs is 0.75: .*at 0.2 or .*epochs to 7"),
        (
            ["space=grst", "space.points_to_evaluate=[{family: constant, c: 0.5, horizon: 0.02}]"],
            "space.horizon: .*0.02 of 20 epochs",
        ),
        (["space.rules={sma: {rho: 1}}"], "space: rules.sma: .*did you mean 'sam'"),
        (["space.policies=[con]"], "space: policies: .*did you mean 'coin'"),
        (["space.rules={looksam: {kk: 1}}"], "space: rules.looksam: .*'kk'.*did you mean 'k'"),
        (["space.rules=[s2sam]"], "space: gamma_rst: .*'s2sam'.*vary rho"),
        (["task.recipe.rho=0"], "space.rho_unit: .*task.recipe.rho, which is 0"),
        (["confirm.min_seeds=11"], "confirm.min_seeds: 11 .*confirm.max_seeds: 10"),
        (["sampler.name=grid"], "sampler.name: .*extra_propagation is the range"),
        (
            ["space={parametrization: native, families: {}, points_to_evaluate: [{schedule: {family: cos1}}]}"],
            "sampler.name: .*grid",
        ),
        (["task=3"], "task: .*needed"),
        (["name=a b"], "name: .*'a b'"),
    ],
)
def test_a_wrong_experiment_names_file_field_value_and_nearest(settings: list[str], says: str):
    with pytest.raises(InputError, match=says) as caught:
        load_experiment("digits", settings)
    assert "experiments/digits.yaml: " in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [("x = 1", "must define `def space"), ("1/0", "ZeroDivisionError"), ("def space(", "SyntaxError")],
)
def test_a_python_space_that_cannot_be_used_is_named(tmp_path: Path, text: str, says: str):
    path = written(tmp_path, text, "mine.py")
    with pytest.raises(InputError, match=r"mine\.py") as caught:
        load_experiment("digits", [f"space={path}"])
    assert says in str(caught.value)
