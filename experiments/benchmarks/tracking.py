"""Seconds to send a search to MLflow: `sync` beside Ray's own callback.

    python experiments/benchmarks/tracking.py            # 1,000 trials of 50 epochs and 6 metrics
    python experiments/benchmarks/tracking.py --trials 100 --store sqlite
    python experiments/benchmarks/tracking.py --quick

The limits for the full size are 60 s to SQLite and 180 s to a server on PostgreSQL; the exit code is 1 where one is
exceeded. Ray's callback gets a hundredth of the trials, and its time is scaled up.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from rst_tune.tracking import sync  # noqa: E402
from rst_tune.tracking.client import connect, embedded_uri, quiet  # noqa: E402
from tests.tracking import servers  # noqa: E402
from tests.tracking.reading import count_points  # noqa: E402
from tests.tracking.writing import METRICS, large_search  # noqa: E402

LIMITS = {"sqlite": 60.0, "server": 180.0}
FULL = 1000


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def ours(folder: Path, uri: str, trials: int, epochs: int) -> float:
    directory = large_search(trials, epochs).save(folder / "search")
    connect(uri)  # the creation of the tables is not measured

    def send() -> None:
        result = sync(directory, uri)
        assert (result.pending, result.rejected, result.runs, result.problem) == (0, 0, trials, ""), result

    return timed(send)


class Named(SimpleNamespace):
    """The attributes of a trial that the callback reads."""

    def __str__(self) -> str:
        return f"trial_{self.trial_id}"

    __hash__ = object.__hash__


def ray_callback(uri: str, trials: int, epochs: int) -> float:
    """Call Ray's callback with the same numbers, one report per epoch, as Tune does."""
    from ray.air.integrations.mlflow import MLflowLoggerCallback

    callback = MLflowLoggerCallback(tracking_uri=uri, registry_uri=uri, experiment_name="ray", save_artifact=False)
    callback.setup()

    def report() -> None:
        for number in range(trials):
            trial = Named(config={"p": 0.5, "gamma": 1.0}, trial_id=str(number), local_path=".")
            callback.log_trial_start(trial)
            for epoch in range(epochs):
                values = {name: float(epoch + number) for name in METRICS}
                callback.log_trial_result(epoch + 1, trial, {**values, "training_iteration": epoch + 1})
            callback.log_trial_end(trial, failed=False)

    return timed(report)


@contextmanager
def store(kind: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the tracking URI of an empty store, and the address of its database."""
    if kind == "sqlite":
        address = embedded_uri(folder)
        yield address, address
        return
    with servers.postgres() as database:
        server = servers.MlflowServer(database, folder / "artifacts", workers=4)  # MLflow's default
        server.start()
        try:
            yield server.uri, database
        finally:
            server.kill()


def measure(kind: str, trials: int, epochs: int) -> bool:
    sample = max(1, trials // 100)
    with tempfile.TemporaryDirectory() as name, store(kind, Path(name)) as (uri, database):
        seconds = ours(Path(name), uri, trials, epochs)
        points = count_points(database)[0]
        ray = ray_callback(uri, sample, epochs) * trials / sample
    limit = LIMITS[kind] * trials / FULL
    within = seconds <= limit or trials < FULL
    print(f"| {kind} | {trials} | {points} | {seconds:.1f} | {limit:.0f} | {ray:.0f} | {ray / seconds:.0f} x |")
    return within


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=FULL)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--store", choices=[*LIMITS, "both"], default="both")
    parser.add_argument("--quick", action="store_true", help="10 trials to SQLite")
    options = parser.parse_args()
    if options.quick:
        options.trials, options.store = 10, "sqlite"
    quiet()
    kinds = list(LIMITS) if options.store == "both" else [options.store]
    if servers.missing() and "server" in kinds:
        print(f"no server is measured: {servers.missing()}")
        kinds.remove("server")
    print("| store | trials | points | sync, s | limit, s | Ray's callback, s (scaled up) | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    within = [measure(kind, options.trials, options.epochs) for kind in kinds]
    return 0 if all(within) else 1


if __name__ == "__main__":
    sys.exit(main())
