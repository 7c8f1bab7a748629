"""Experiment and space files from hostile hands: never a traceback, always a message and exit 2."""

import copy
import re
import string
import time
import tracemalloc

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rst_tune.cli import _invoke
from rst_tune.errors import InputError
from rst_tune.tuning import yaml_files
from rst_tune.tuning.experiment import Experiment, load_experiment, load_space
from rst_tune.tuning.space import Space

quick = settings(deadline=None, max_examples=120, suppress_health_check=list(HealthCheck))

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
    | st.sampled_from([0, -1, 1e308, 10**30, "grst", "sam", "constant", "!!python/object:os.system", "../..", ""])
)  # fmt: skip
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


def shipped(kind: str) -> list[dict]:
    return [yaml_files.read_yaml(path) for path in yaml_files.shipped(kind).values()]


def places(content: object, place: tuple = ()) -> list[tuple]:
    """Return the path of every value in nested mappings."""
    if not isinstance(content, dict):
        return [place]
    return [place, *(p for key, inner in content.items() for p in places(inner, (*place, key)))]


def changed(content: dict, place: tuple, value: object) -> dict:
    content = copy.deepcopy(content)
    if not place:
        return content
    inner = content
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return content


# Every field that a file may have, also those that the shipped ones leave out.
WHOLE = {
    "experiments": [*shipped("experiments"), load_experiment("digits").model_dump(mode="json")],
    "search_spaces": [*shipped("search_spaces"), load_space("grst").model_dump(mode="json")],
}


def accepts_or_explains(load, *arguments) -> None:
    """Load a file: either it is a valid one, or the error is one that a user can read. All else is a bug."""
    message = ""
    try:
        loaded = load(*arguments)
    except InputError as error:
        message = str(error)
    else:
        assert isinstance(loaded, Experiment | Space)
        return
    assert message.strip()
    assert "Traceback" not in message


LOADERS = {"experiments": load_experiment, "search_spaces": load_space}


@pytest.mark.parametrize("kind", LOADERS)
@given(data=st.data())
@quick
def test_one_wrong_value_anywhere(kind, tmp_path, data):
    content = data.draw(st.sampled_from(WHOLE[kind]))
    place = data.draw(st.sampled_from(places(content)))
    path = tmp_path / "fuzz.yaml"
    path.write_text(yaml.safe_dump(changed(content, place, data.draw(values))))
    accepts_or_explains(LOADERS[kind], str(path))


@pytest.mark.parametrize("kind", LOADERS)
@given(
    content=st.dictionaries(st.sampled_from(["task", "space", "budget", "families", "name", "x"]), values, max_size=5)
)
@quick
def test_any_mapping(kind, tmp_path, content):
    path = tmp_path / "fuzz.yaml"
    path.write_text(yaml.safe_dump(content))
    accepts_or_explains(LOADERS[kind], str(path))


@pytest.mark.parametrize("kind", LOADERS)
@given(content=st.binary(max_size=200) | st.text(alphabet=string.printable, max_size=200).map(str.encode))
@quick
def test_any_bytes(kind, tmp_path, content):
    path = tmp_path / "fuzz.yaml"
    path.write_bytes(content)
    accepts_or_explains(LOADERS[kind], str(path))


@given(setting=st.text(max_size=30) | st.tuples(st.sampled_from(
    ["task.recipe.epochs", "budget.pairs", "space.families", "resources.gpus_per_worker", "task", "seed", "a..b", ".",
     "space.base"]
), st.text(alphabet=string.printable, max_size=12)).map("=".join))  # fmt: skip
@quick
def test_any_setting(setting):
    accepts_or_explains(load_experiment, "digits", [setting])


@pytest.mark.parametrize(
    "setting",
    [
        "task.recipe.base=[]",
        "task.recipe={base: {}}",
        "task.data.name=[]",
        "task.model.name={}",
        "space={base: grst, rules: [[]]}",
        "space={base: grst, families: [{}]}",
        "space={base: grst, extra_propagation: {low: .nan, high: .inf}}",
        "budget.pairs=.nan",
        "resources.gpus_per_worker=.inf",
        "task.data.validation=.inf",
        "task.recipe.lr=.inf",
        "task.recipe.epochs=1e400",
        "resources.time_limit_minutes=.nan",
        "name=../../etc",
        "seed=-1",
    ],
)
def test_a_wrong_value_is_named(setting):
    with pytest.raises(InputError, match=re.escape(setting.split("=")[0].split(".")[-1])):
        load_experiment("digits", [setting])


def alias_bomb() -> str:
    """Nine lists of the one before, nine times: small to write, large to walk."""
    lines = ["a: &a [1,1,1,1,1,1,1,1,1]"]
    lines += [f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    return "\n".join(lines)


def merge_bomb() -> str:
    """Mappings that merge nine times the one inside them, nine deep: 480 bytes, half a billion keys."""
    inner = "{k: 1}"
    for depth in range(9):
        inner = f"{{<<: [&x{depth} {inner}{f', *x{depth}' * 8}]}}"
    return f"name: {inner}"


BOMBS = {
    "code": "name: !!python/object/apply:os.system ['true']\n",
    "nested": "name: " + "[" * 3000 + "]" * 3000,
    "aliases": alias_bomb(),
    "merges": merge_bomb(),
    "long": "name: [" + "1, " * 200_000 + "1]",
    "itself": "task: &t {data: *t}\n",
    "twice": "name: a\nname: b\n",
    "empty": "",
    "list": "- a\n",
    "zero byte": "name: a\0b\n",
}


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("verb", [["plan"], ["run"]], ids=["plan", "run"])
def test_a_bomb_is_exit_2_with_one_message(name, verb, tmp_path, monkeypatch, capsys):
    path = tmp_path / "bomb.yaml"
    path.write_text(BOMBS[name])
    monkeypatch.setattr("sys.argv", ["rst-tune", *verb, str(path)])
    assert _invoke() == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: ")
    assert "Traceback" not in shown
    assert len(shown) < 2000


@pytest.mark.parametrize("name", ["aliases", "merges", "long", "itself"])
def test_a_bomb_is_refused_quickly_and_takes_little_memory(name, tmp_path):
    """Without its limits the loader needs minutes and gigabytes for some of them."""
    path = tmp_path / "bomb.yaml"
    path.write_text(BOMBS[name])
    tracemalloc.start()
    begun = time.process_time()
    with pytest.raises(InputError, match="bomb"):
        yaml_files.read_yaml(path)
    seconds, (_, peak) = time.process_time() - begun, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 10
    assert peak < 100e6


@pytest.mark.parametrize("name", ["aliases", "merges"])
def test_a_bomb_in_a_setting_is_refused_as_well(name):
    text = BOMBS[name] if name == "merges" else "{" + BOMBS[name].replace("\n", ", ") + "}"
    with pytest.raises(InputError, match="--set"):
        load_experiment("digits", [f"description={text.removeprefix('name: ')}"])
