"""The arrow diagram of docs/architecture.md as a test: who may import what, and what `import rst_tune` brings along."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import rst_tune

ROOT = Path(rst_tune.__file__).parent
ARCHITECTURE = ROOT.parent / "docs" / "architecture.md"
SHARED = {"errors", "registry", "files", "redaction"}
FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))


def table(head: str) -> dict[str, list[str]]:
    """Return the rows of the table in "Rooms and arrows" whose first column is called `head`."""
    section = ARCHITECTURE.read_text().partition("## Rooms and arrows")[2].partition("\n## ")[0]
    rows = section.partition(f"| {head} |")[2].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip().strip("`") for cell in row.strip("|").split("|")] for row in rows]
    return {name: [each for each in allowed.split(", ") if each != "–"] for name, allowed in cells}


ROOMS, DOORS = table("room"), table("package")
FOLDERS = [name for name in ROOMS if not name.endswith(".py")]


def room_of(file: str) -> str:
    """Return the row that a file belongs to: the innermost room that holds it, or the file itself."""
    inside = [room for room in FOLDERS if file.startswith(room.replace(".", "/") + "/")]
    return max(inside, key=len, default=file)


def imports(source: str) -> set[str]:
    """Return every module that a source imports, anywhere in it: inside functions and for type checking as well."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            # `from rst_tune.tuning import backend` imports the room `backend`, not only `tuning`.
            own = (node.module or "").partition(".")[0] == "rst_tune"
            found.update(f"{node.module}.{alias.name}" if own else node.module or "" for alias in node.names)
    return found


def target_of(module: str) -> str | None:
    """Return the row of a module of ours: a room, a file at the top, or None for the package itself and its names."""
    path = module.partition(".")[2].replace(".", "/")
    if room := max((r for r in FOLDERS if f"{path}/".startswith(r.replace(".", "/") + "/")), key=len, default=None):
        return room
    top = path.split("/")[0]
    return f"{top}.py" if f"{top}.py" in FILES else None


def forbidden(file: str, source: str) -> list[str]:
    """Return the imports of a file that the tables do not show."""
    room, wrong = room_of(file), []
    allowed = {ours if "." in ours or ours in FOLDERS else f"{ours}.py" for ours in ROOMS.get(room, [])}
    for module in sorted(imports(source)):
        top = module.partition(".")[0]
        if top == "rst_tune":
            target = target_of(module)
            own = target is None or target == room or target.startswith(f"{room}.")
            shared = target is not None and target.removesuffix(".py") in SHARED
            any_room = ROOMS.get(room) == ["every room"] and target in FOLDERS
            if not (own or shared or any_room or target in allowed):
                wrong.append(f"{room} must not import {module}")
        elif top not in sys.stdlib_module_names:
            doors = DOORS.get(top, [])
            if file not in doors and not any(room == door or room.startswith(f"{door}.") for door in doors):
                wrong.append(f"{file} must not import {top}: its doors are {doors or 'not in the table'}")
    return wrong


@pytest.mark.parametrize("file", FILES)
def test_a_file_imports_only_along_the_arrows(file: str):
    assert forbidden(file, (ROOT / file).read_text()) == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("method/optimizer.py", "from rst_tune.training import loop"),
        ("records/log.py", "from rst_tune import analysis"),
        ("tracking/mapping.py", "from rst_tune.tuning.experiment import Experiment"),
        ("tuning/controller.py", "import ray"),
        ("tuning/controller.py", "from rst_tune import tracking"),
        ("tuning/backend/runner.py", "from rst_tune.analysis import pareto"),
        ("tuning/backend/ray.py", "import mlflow"),
        ("tracking/mapping.py", "import torch"),
        ("analysis/pareto.py", "def late():\n    import optuna"),
        ("cli.py", "from rst_tune.tuning import search"),
        ("errors.py", "import yaml"),
        ("files.py", "from rst_tune.records import load"),
        ("__init__.py", "import rst_tune.tuning.space"),
        ("analysis/pareto.py", "import pandas"),
    ],
)
def test_an_arrow_that_is_not_in_the_tables_is_found(file: str, line: str):
    assert forbidden(file, line)


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("api.py", "from rst_tune.tuning.backend.runner import model_path"),
        ("cli.py", "from rst_tune import api, errors"),
        ("tuning/search.py", "from rst_tune.tuning.backend.cluster import connected"),
        ("tracking/models.py", "import torch"),
        ("analysis/importance.py", "from optuna.importance import FanovaImportanceEvaluator"),
    ],
)
def test_an_arrow_that_is_in_the_tables_is_allowed(file: str, line: str):
    assert forbidden(file, line) == []


def test_the_tables_name_every_room_and_nothing_that_is_not_there():
    assert {f.split("/")[0] for f in FILES if "/" in f} == {room.split(".")[0] for room in FOLDERS}
    assert all(any(room_of(file) == room for file in FILES) for room in ROOMS)
    at_top = {f for f in FILES if "/" not in f}
    assert at_top == {room for room in ROOMS if room.endswith(".py")} | {f"{name}.py" for name in SHARED}
    assert {each for row in ROOMS.values() for each in row} <= {*FOLDERS, "api", "every room"}
    paths = {each for row in DOORS.values() for each in row}
    assert paths - set(FILES) <= set(FOLDERS), "a door is a room or a file that is there"


def test_importing_the_library_brings_torch_and_nothing_heavier():
    code = (
        "import sys, rst_tune; assert 'torch' in sys.modules;"
        f"print([name for name in {sorted(set(DOORS) - {'torch', 'numpy'})} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.strip() == "[]"
