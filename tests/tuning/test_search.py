"""A whole `run_search` without Ray: lock, identity, overwriting, credentials. Only the backend is simulated."""

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from optuna.storages import InMemoryStorage

from rst_tune import files
from rst_tune.analysis.analysis import analyze
from rst_tune.api import search_function
from rst_tune.errors import InputError
from rst_tune.records import LOG_NAME, EventLog, Search, Status, load
from rst_tune.training.data import load_dataset
from rst_tune.tuning import search as module
from rst_tune.tuning.backend.cluster import resolve_address
from rst_tune.tuning.backend.simulator import SimulatorBackend
from rst_tune.tuning.controller import SearchFailedError
from rst_tune.tuning.doctor import examine
from rst_tune.tuning.experiment import Experiment, load_experiment
from rst_tune.tuning.model import ROUGHNESS
from rst_tune.tuning.search import OVERWRITE_NAME, OWN_FILES, output_directory, run_search
from rst_tune.tuning.study import SearchStudy
from rst_tune.tuning.warm_start import warm_started
from tests.tuning.simulated import SECONDS_PER_PAIR, Killed, World
from tests.tuning.test_experiment import OWN_SPACE, SMOKE

SMALL = (*SMOKE, "budget={trials: 4}", "confirm={min_seeds: 2, max_seeds: 2, candidates: 2}", "sampler.name=random")


def small(*settings: str) -> Experiment:
    return load_experiment("digits", [*SMALL, *settings])


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Run trials in the simulator instead of on Ray; a test may change the world between two runs."""
    world = World()

    class Simulated:
        slots = 2

        def __init__(self, context, resources) -> None:
            self.directory = context.directory

        def wait_for_room(self, minutes, say) -> None:
            """There is room."""

        def run_trials(self, controller, on_progress) -> None:
            (self.directory / "checkpoints").mkdir()
            SimulatorBackend(world, workers=2, seconds_per_pair=SECONDS_PER_PAIR).run_trials(controller, on_progress)

    monkeypatch.setattr("rst_tune.tuning.backend.ray.RayBackend", Simulated)
    monkeypatch.setattr("rst_tune.tuning.backend.ray.cluster_devices", lambda: {"CPU": 2.0})
    monkeypatch.setattr(module, "connected", lambda address, log: nullcontext())
    return world


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """Return a function that resumes a search up to the point where it would connect, and says whether it got there."""
    reached: list[Experiment] = []
    monkeypatch.setattr(module, "_run", lambda experiment, *_: reached.append(experiment))

    def resume(experiment: Experiment, directory: Path) -> bool:
        reached.clear()
        run_search(experiment, directory)
        return bool(reached)

    return resume


def begin(experiment: Experiment, directory: Path) -> None:
    """Write the event log of a search that has just begun."""
    log = EventLog(directory)
    log.append(module._header(experiment, experiment.workload()))
    log.close()


def test_a_search_runs_is_done_and_run_again_returns_at_once(world: World, tmp_path: Path):
    seen: list[int] = []
    search = run_search(small(), tmp_path, on_progress=lambda controller: seen.append(controller.running))
    assert search.done
    assert seen
    assert search.header.devices == {"CPU": 2.0}
    before = (tmp_path / LOG_NAME).read_bytes()
    said: list[str] = []
    assert run_search(small(), tmp_path, say=said.append) == search
    assert said == ["it is finished and nothing is trained; --overwrite starts it again"]
    with pytest.raises(InputError, match="--overwrite to move it aside"):
        run_search(small("seed=1"), tmp_path, say=said.append)
    assert len(said) == 1, "a search that is refused is not called finished"
    assert (tmp_path / LOG_NAME).read_bytes() == before


def test_a_search_in_which_everything_failed_is_no_result_and_can_be_resumed(world: World, tmp_path: Path):
    world.fate = lambda config, seed: Status.FAILED
    with pytest.raises(SearchFailedError, match="all 4 trials failed"):
        run_search(small(), tmp_path)
    failed = load(tmp_path)
    assert not failed.done
    assert {t.status for t in failed.trials} == {Status.FAILED}
    assert all(t.pairs > 0 for t in failed.trials)
    (tmp_path / "checkpoints").rmdir()
    world.fate = lambda config, seed: Status.COMPLETE
    search = run_search(small(), tmp_path)
    assert search.done
    assert {t.status for t in search.trials} == {Status.COMPLETE}


@pytest.mark.parametrize(
    "content", ['{"foo": 1}\n', "not ours\n", '{"event": "phase", "phase": "search"}\n', "\0" * 90]
)
@pytest.mark.filterwarnings("ignore:.*damaged line")
def test_a_log_that_is_damaged_or_of_another_program_gets_no_search_appended(content, world: World, tmp_path: Path):
    (tmp_path / LOG_NAME).write_text(content)
    with pytest.raises(InputError, match=r"must begin with the description .* --overwrite to move it aside"):
        run_search(small(), tmp_path)
    assert (tmp_path / LOG_NAME).read_text() == content
    assert run_search(small(), tmp_path, overwrite=True).done
    assert next(tmp_path.glob("previous-*")).joinpath(LOG_NAME).read_text() == content


@pytest.mark.filterwarnings("ignore:.*damaged line")
def test_a_search_that_was_killed_within_its_first_line_begins_again(world: World, tmp_path: Path):
    begin(small(), tmp_path)
    whole = (tmp_path / LOG_NAME).read_bytes()
    (tmp_path / LOG_NAME).write_bytes(whole[:9] + b"\n" + whole[:60])
    assert run_search(small(), tmp_path).done


# --- what a resumed search must share with the one before -------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("resources.workers=2", "resources.workers was 1 and is 2"),
        ("task.recipe.precision=bf16", "task.recipe.precision was 'auto' and is 'bf16'"),
        ("resources.gpus_per_worker=0.5", "precision was 'fp32' and is 'bf16'"),
        ("seed=1", "seed was 0 and is 1"),
        ("task.data.label_noise=0.1", "task.data.label_noise was 0.0 and is 0.1"),
    ],
)
def test_another_search_is_refused_with_the_difference(setting: str, says: str, tmp_path: Path):
    begin(small(), tmp_path)
    with pytest.raises(InputError, match="--overwrite to move it aside") as caught:
        run_search(small(setting), tmp_path)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "setting",
    [
        "resources.cpus_per_worker=2",
        "resources.max_concurrent_trials=1",
        "tracking.enabled=true",
        "task.data.workers=0",
        "description=another text",
        "sampler.storage=postgresql://ann:secret@host/db",
    ],
)
def test_where_and_how_trials_run_may_change(setting: str, tmp_path: Path, started):
    begin(small(), tmp_path)
    assert started(small(setting), tmp_path)


def write_npz(path: Path, seed: int) -> str:
    rng = np.random.default_rng(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    images = {
        f"x_{name}": rng.integers(0, 256, (count, 8, 8), np.uint8) for name, count in (("train", 96), ("test", 8))
    }
    np.savez(path, **images, y_train=np.arange(96) % 4, y_test=np.arange(8) % 4)
    return f"task.data={{name: npz, root: {path}, validation: 16}}"


def test_changed_data_are_refused_and_moved_data_are_not(tmp_path: Path, started):
    output, first = tmp_path / "output", tmp_path / "data" / "set.npz"
    begin(small(write_npz(first, 0)), output)
    assert started(small(write_npz(tmp_path / "elsewhere" / "set.npz", 0)), output)
    changed = small(write_npz(first, 1))
    with pytest.raises(InputError, match=r"data digest was '[0-9a-f]+' and is '[0-9a-f]+'"):
        run_search(changed, output)


def test_a_changed_python_space_is_refused_and_a_moved_one_is_not(tmp_path: Path, started):
    output, space = tmp_path / "output", tmp_path / "space.py"
    space.write_text(OWN_SPACE.read_text())
    begin(small(f"space={space}"), output)
    assert started(small(f"space={space}"), output)
    assert started(small(f"space={OWN_SPACE}"), output)
    space.write_text(OWN_SPACE.read_text().replace("0.9", "0.8"))
    with pytest.raises(InputError, match=r"the content of .*space\.py has changed"):
        run_search(small(f"space={space}"), output)


# --- a search that starts from earlier ones -----------------------------------------------------------------------

FRONT = ("sampler={name: front, n_startup_trials: 4}", "space=compute", "budget={trials: 9}")


@pytest.fixture
def earlier(world: World, tmp_path: Path) -> list[Path]:
    """The directories of two finished searches."""
    made = [tmp_path / "first", tmp_path / "second"]
    for number, directory in enumerate(made):
        run_search(small(f"name=earlier-{number}", f"seed={number}", "budget={trials: 8}"), directory)
    return made


def test_what_was_learnt_is_recorded_and_used_by_search_and_analysis(world: World, earlier, tmp_path: Path):
    output = tmp_path / "output"
    experiment = warm_started(small(*FRONT), earlier)
    search = run_search(experiment, output)
    prior = search.header.settings.prior
    assert prior == experiment.prior
    assert [s.name for s in prior.searches] == ["earlier-0", "earlier-1"]
    assert [s.trials for s in prior.searches] == [len(load(directory).finished()) for directory in earlier]
    assert analyze(search).surrogate.prior == prior
    assert load_experiment(str(output / "experiment.yaml")).prior == prior, "the written experiment has it as well"
    rough = SearchStudy(experiment, None).model._prior
    assert (rough.mean, rough.kernel_sd) == (prior.mean, prior.kernel_sd)
    assert rough.kernel[3] == pytest.approx(prior.kernel[3] / ROUGHNESS), "trainings are proposed by a rougher process"
    assert experiment.search_id != small(*FRONT).search_id


def test_a_resumed_search_needs_none_of_the_earlier_ones(world: World, earlier, tmp_path: Path):
    """Killed in the middle and resumed without them, it trains what an undisturbed one trains."""
    whole, output = tmp_path / "whole", tmp_path / "output"
    experiment = warm_started(small(*FRONT), earlier)
    undisturbed = run_search(experiment, whole)
    calls = iter(range(8))

    def dying(_: object) -> None:
        if next(calls, None) is None:
            raise Killed

    with pytest.raises(Killed):
        run_search(experiment, output, on_progress=dying)
    assert len(load(output).finished()) < len(undisturbed.finished())
    (output / "checkpoints").rmdir()
    for directory in earlier:
        shutil.rmtree(directory)
    resumed = run_search(small(*FRONT), output)
    assert resumed.done
    assert resumed.header.search_id == experiment.search_id
    assert {t.key: t.error for t in resumed.trials} == {t.key: t.error for t in undisturbed.trials}


def test_a_resume_from_other_searches_is_refused_with_the_difference(world: World, earlier, tmp_path: Path, started):
    output, cold = tmp_path / "output", tmp_path / "cold"
    begin(warm_started(small(), earlier[:1]), output)
    assert started(warm_started(small(), earlier[:1]), output)
    assert started(small(), output)
    with pytest.raises(InputError, match="leave out --from to resume it") as caught:
        run_search(warm_started(small(), earlier), output)
    uids = [load(directory).header.uid for directory in earlier]
    said = str(caught.value)
    assert f"--from was 'earlier-0 {uids[0]} (" in said
    assert f"earlier-1 {uids[1]} (" in said
    assert "prior.mean" not in said
    begin(small(), cold)
    with pytest.raises(InputError, match="--from was None and is 'earlier-0"):
        run_search(warm_started(small(), earlier[:1]), cold)


def test_another_prior_of_the_same_searches_is_refused_with_its_numbers(world: World, earlier, tmp_path: Path):
    experiment = warm_started(small(), earlier)
    begin(experiment, tmp_path / "output")
    other = experiment.prior.model_copy(update={"mean": (0.0, 0.1, 0.2, 0.3, 0.4)})
    with pytest.raises(InputError, match=r"prior\.mean was .* and is \[0\.0, 0\.1, 0\.2, 0\.3, 0\.4\]"):
        run_search(experiment.model_copy(update={"prior": other}), tmp_path / "output")


def test_the_python_call_takes_searches_over_other_metrics(world: World, earlier, tmp_path: Path):
    def train(trial) -> None:
        """Not called: the trainings are simulated."""

    found = search_function(
        train, epochs=7, steps_per_epoch=4, budget="6 trials", metric="RMSE", output=tmp_path / "output", quiet=True,
        warm_start=earlier, tracking={"enabled": False}, confirm={"enabled": False}, sampler={"name": "random"},
    )  # fmt: skip
    assert found.search.metric.name == "RMSE"
    assert [s.name for s in found.surrogate.prior.searches] == ["earlier-0", "earlier-1"]


def test_an_overwritten_search_has_the_shipped_prior_again(world: World, earlier, tmp_path: Path):
    output = tmp_path / "output"
    run_search(warm_started(small(), earlier), output)
    assert run_search(small(), output, overwrite=True).header.settings.prior is None


def test_earlier_searches_are_checked_before_anything_starts(world: World, earlier, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    begin(small(), tmp_path / "young")
    copy = shutil.copytree(earlier[0], tmp_path / "copy")
    wrong = {
        "is no directory: correct the path": [tmp_path / "none"],
        "has none: give the output directory of a run": [tmp_path / "empty"],
        "needs 2 finished trials, but .*young has 0: let it run on, or leave it out": [tmp_path / "young"],
        "must differ, but .*copy is that of .*first: leave it out": [earlier[0], copy],
    }
    for said, directories in wrong.items():
        with pytest.raises(InputError, match=said):
            warm_started(small(), directories)
    with pytest.raises(InputError, match="remove one of them"):
        warm_started(warm_started(small(), earlier), earlier)


# --- overwriting ------------------------------------------------------------------------------------------------


def own_files(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()} & set(OWN_FILES)


def keys(search: Search) -> list[str]:
    return [t.key for t in search.trials]


def test_overwrite_moves_our_files_aside_and_touches_nothing_else(world: World, tmp_path: Path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    (tmp_path / "notes.txt").write_text("mine")
    first = run_search(small(), tmp_path)
    written = own_files(tmp_path)
    second = run_search(small("seed=5"), tmp_path, overwrite=True)
    assert keys(second) != keys(first)
    [aside] = tmp_path.glob("previous-*")
    assert own_files(aside) == written
    assert keys(load(aside)) == keys(first)
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years of work"
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert not (tmp_path / OVERWRITE_NAME).exists()


def test_overwrite_of_a_directory_without_a_search_moves_nothing(world: World, tmp_path: Path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine.pt").write_text("a user's own")
    run_search(small(), tmp_path, overwrite=True)
    assert (tmp_path / "models" / "mine.pt").exists()
    assert not list(tmp_path.glob("previous-*"))


@pytest.mark.parametrize("moved", range(5))
def test_a_kill_while_overwriting_is_completed_at_the_next_start(world: World, tmp_path: Path, monkeypatch, moved: int):
    first = run_search(small(), tmp_path)
    written = own_files(tmp_path)
    assert len(written) == 4, "events, experiment, study and checkpoints"
    replace, count = os.replace, [0]

    def dying(source, target) -> None:
        if Path(target).parent.name.startswith("previous-"):
            if count[0] == moved:
                raise Killed
            count[0] += 1
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", dying)
        if moved < len(written):
            with pytest.raises(Killed):
                run_search(small("seed=5"), tmp_path, overwrite=True)
        else:  # all are moved, and the marker is not yet removed
            patch.setattr(Path, "unlink", lambda *_, **__: (_ for _ in ()).throw(Killed))
            with pytest.raises(Killed):
                run_search(small("seed=5"), tmp_path, overwrite=True)
    second = run_search(small("seed=5"), tmp_path)
    assert second.done
    assert keys(second) != keys(first)
    [aside] = tmp_path.glob("previous-*")
    assert own_files(aside) == written
    assert keys(load(aside)) == keys(first)


def test_a_live_search_is_not_overwritten_because_the_lock_comes_first(world: World, tmp_path: Path):
    run_search(small(), tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir() if path.name != "lock"}
    with (
        files.file_lock(tmp_path / "lock"),
        pytest.raises(InputError, match="another process is running the search"),
    ):
        run_search(small("seed=5"), tmp_path, overwrite=True)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir() if path.name != "lock"} == before


def test_data_that_cannot_be_read_are_noticed_before_anything_is_overwritten(world: World, tmp_path: Path):
    run_search(small(), tmp_path)
    before = own_files(tmp_path)
    with pytest.raises(InputError, match=r"none\.npz"):
        run_search(small("task.data={name: npz, root: none.npz}"), tmp_path, overwrite=True)
    assert own_files(tmp_path) == before
    assert not list(tmp_path.glob("previous-*"))


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.EWOULDBLOCK, "another process is running the search"),
        (errno.ENOLCK, r"must support file locks \(flock\)"),
        (errno.EOPNOTSUPP, r"must support file locks \(flock\)"),
    ],
)
def test_a_file_system_without_locks_is_told_apart_from_a_busy_one(number: int, says: str, tmp_path, monkeypatch):
    def flock(descriptor, operation) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(InputError, match=says):
        run_search(small(), tmp_path)


# --- credentials and addresses ----------------------------------------------------------------------------------

PASSWORD = "p/w?d#1&x"  # characters that end the password for a parser of URLs that expects them escaped
STORAGE = f"sampler.storage=postgresql://ann:{PASSWORD}@db.example:5432/optuna"


def test_the_password_of_the_storage_is_written_nowhere_and_is_not_identity(world: World, tmp_path, monkeypatch):
    monkeypatch.setattr("rst_tune.tuning.study._storage", lambda url, directory: InMemoryStorage())
    monkeypatch.setattr(module, "open_database", lambda url: None)
    experiment = small(STORAGE, f"description=see postgresql://ann:{PASSWORD}@db.example/optuna")
    assert PASSWORD in (experiment.sampler.storage or "")
    assert experiment.search_id == small().search_id == small("sampler.storage=sqlite:///other.db").search_id
    search = run_search(experiment, tmp_path)
    assert search.header.experiment["sampler"]["storage"] == "postgresql://***@db.example:5432/optuna"
    texts = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {path.name for path in texts} >= {LOG_NAME, "experiment.yaml"}
    for path, text in texts.items():
        assert PASSWORD.encode() not in text, path
        assert b"ann:" not in text, path


def test_an_error_that_quotes_the_storage_is_recorded_without_its_password(tmp_path: Path):
    small(STORAGE)
    log = EventLog(tmp_path)
    log.append(module.SearchStarted(name=f"cannot reach {PASSWORD} of db", experiment={"dbPassword": "abc123"}))
    log.close()
    line = json.loads((tmp_path / LOG_NAME).read_text())
    assert line["name"] == "cannot reach *** of db"
    assert line["experiment"] == {"dbPassword": "***"}


@pytest.mark.parametrize("output", ["s3://bucket/run", "gs://bucket/run", "hdfs://host/run"])
def test_an_output_that_is_not_a_directory_is_refused(output: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"must be a directory .* mount the store"):
        run_search(small(), Path(output))
    with pytest.raises(InputError, match="must be a directory"):
        examine(small(), output=Path(output), check_store=lambda _: (True, ""), check_host=lambda: (True, ""))
    assert not list(tmp_path.iterdir())


def test_an_output_with_a_colon_spaces_and_umlauts_is_a_directory(tmp_path: Path):
    for name in ("Über Läufe", "at 12:30", "a:b/c"):
        assert output_directory(small(), tmp_path / name) == tmp_path / name


def test_an_address_of_ray_client_is_refused_with_the_remedy(tmp_path: Path, monkeypatch):
    with pytest.raises(InputError, match=r"ray://head:10001 is an address of Ray Client.*--address auto"):
        run_search(small(), tmp_path, address="ray://head:10001")
    assert not (tmp_path / LOG_NAME).exists()
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    with pytest.raises(InputError, match="Ray Client"):
        resolve_address(None)


def test_a_relative_data_root_is_absolute_once_the_experiment_is_loaded(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_npz(tmp_path / "data" / "set.npz", 0)
    experiment = small("task.data={name: npz, root: data/set.npz, validation: 16}")
    monkeypatch.chdir("/")
    assert experiment.task.data.root == str(tmp_path / "data" / "set.npz")
    assert len(load_dataset(experiment.task.data).train) == 80
