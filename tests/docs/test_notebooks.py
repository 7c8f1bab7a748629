"""The notebooks of docs/ run from the first cell to the last, in a kernel of their own."""

from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient", reason="needs pip install 'rst_tune[dev]'")
pytest.importorskip("ipykernel", reason="needs pip install 'rst_tune[dev]'")
nbformat = pytest.importorskip("nbformat")

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.ipynb")))
def test_a_notebook_runs(name):
    notebook = nbformat.read(FOLDER / name, as_version=4)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(FOLDER)}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert any("data" in output or "text" in output for output in shown)
