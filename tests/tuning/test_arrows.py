"""The arrow diagram as a test: who may import whom, and what `import rst_tune` brings along."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import rst_tune

ROOT = Path(rst_tune.__file__).parent
SHARED = {"errors", "registry"}
# Room -> the rooms of rst_tune it may import. `cli` and `workflow` delegate to everything.
ROOMS = {
    "method": set(),
    "training": {"method"},
    "analysis": set(),
    "report": {"analysis"},
    "tracking": {"analysis"},
    "tuning": {"method", "training", "tracking", "analysis"},
}
# Heavy package -> the rooms (or the one file) that may import it.
DOORS = {
    "ray": {"tuning"},
    "mlflow": {"tracking"},
    "optuna": {"tuning", "analysis/importance.py"},
    "plotly": {"report"},
    "moocore": {"analysis", "tuning"},
    "torch": {"method", "training", "tuning", "tracking/models.py"},
    "torchvision": {"training"},
    "timm": {"training"},
    "pytorchcv": {"training"},
    "pydantic": {"training", "tuning"},
    "sklearn": {"analysis", "training"},
    "scipy": {"analysis", "tuning"},
    "numpy": {"training", "analysis", "report", "tuning", "tracking"},
}
FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))


def imports(path: Path) -> set[str]:
    """Return every module a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            module = node.module or ""
            deeper = {f"{module}.{alias.name}" for alias in node.names} if module == "rst_tune" else {module}
            found.update(deeper)
    return found


@pytest.mark.parametrize("file", FILES)
def test_a_file_imports_only_along_the_arrows(file: str):
    room = file.split("/")[0] if "/" in file else None
    for module in imports(ROOT / file):
        top, _, rest = module.partition(".")
        if top == "rst_tune" and room is not None:
            other = rest.split(".")[0]
            assert other == room or other in SHARED | ROOMS[room], f"{room} must not import {module}"
        if top in DOORS and room is not None:
            assert room in DOORS[top] or file in DOORS[top], f"{top} has its own door: {DOORS[top]}"


def test_the_top_of_the_house_imports_nothing_heavy_by_itself():
    for file in (f for f in FILES if "/" not in f and f not in ("cli.py", "workflow.py")):
        tops = {module.partition(".")[0] for module in imports(ROOT / file)}
        assert not tops & {"ray", "mlflow", "optuna", "pydantic", "plotly", "torchvision"}, file


def test_the_rooms_are_all_there():
    assert {f.split("/")[0] for f in FILES if "/" in f} == set(ROOMS)


def test_importing_the_library_brings_torch_and_nothing_heavier():
    code = (
        "import sys, rst_tune; heavy = ('ray', 'mlflow', 'optuna', 'pydantic', 'plotly', 'torchvision');"
        "assert 'torch' in sys.modules; print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"
