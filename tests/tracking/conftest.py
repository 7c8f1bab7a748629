import shutil
from pathlib import Path

import pytest

from rst_tune.tracking.client import connect, embedded_uri
from tests.tracking.reading import Content, content


@pytest.fixture(scope="session")
def _template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated, empty database: making one takes seconds, copying one does not."""
    folder = tmp_path_factory.mktemp("template")
    connect(embedded_uri(folder))
    return folder / "mlflow.db"


@pytest.fixture(autouse=True)
def _no_team_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture
def directory(tmp_path: Path, _template: Path) -> Path:
    """The directory of a search with an empty store in it."""
    return with_store(tmp_path / "search", _template)


@pytest.fixture
def fresh_directory(tmp_path: Path, _template: Path):
    """Makes directories with an empty store."""
    return lambda name: with_store(tmp_path / name, _template)


def with_store(folder: Path, template: Path) -> Path:
    folder.mkdir()
    shutil.copy(template, folder / "mlflow.db")
    return folder


@pytest.fixture
def stored():
    """Reads all that a store has of its searches."""

    def read(folder: Path) -> Content:
        return content(embedded_uri(folder))

    return read
