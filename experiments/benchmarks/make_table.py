"""Train the tables that `search.py` replays: digits, families x cost x gamma x seeds, every epoch kept.

    python experiments/benchmarks/make_table.py [--workers 2] [--families ...] [--gammas ...] [--seeds 40]
    python experiments/benchmarks/make_table.py --table experiments/benchmarks/second_table.npz \\
        --model mlp-tiny --label-noise 0.4 --reference 14 --seeds 50
    python experiments/benchmarks/make_table.py --quick

Every training is the embedded task with the schedule that has mean c, and gamma_gnr = gamma_rst / c. At c = 1 all
families are the same schedule, so it is trained once, as `constant`; gamma 0 is SGD at any cost. The test error is kept
for the table alone: no search reads it.

A family is trained at its extreme and (`@0.5`) half way from the constant. With few seeds a table is rough: the best of
289 means of ten seeds is partly luck, and a search would be compared with luck.

Only missing rows are trained. They are appended to a work file as they end, so a killed run is resumed. On average a
training took 0.9 s of a core for the first table (14,450 trainings, 4.8 million pairs) and 0.15 s for the second
(17,340), on cores with other load. Both also hold trainings of 3 and 7 epochs, which nothing reads any more: they were
the rungs of a fidelity that was removed.
"""

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from replay import EPOCHS, TABLE, family_of, shape_of

from rst_tune.method import schedules
from rst_tune.training.data import Dataset, load_dataset
from rst_tune.training.loop import Run
from rst_tune.training.task import Method, Task

FAMILIES = ("constant", "step-up", "step-down", "step-up@0.5", "step-down@0.5")
COSTS = (0.05, 0.1, 0.15, 0.25, 0.35, 0.5, 0.7)
GAMMAS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)

Key = tuple[str, float, float, int, int]
_task = Task()
_data: Dataset | None = None


def keys(families: Sequence[str], gammas: Sequence[float], seeds: int) -> Iterator[Key]:
    """Yield (family, c, gamma_rst, epochs, seed), seed by seed: an unfinished table has some seeds of everything."""
    configs = [("constant", 0.0, 0.0)]
    configs += [("constant", 1.0, g) for g in gammas]
    configs += [(f, c, g) for g in gammas for c in COSTS for f in families]
    for seed in range(seeds):
        yield from ((f, c, g, EPOCHS, seed) for f, c, g in configs)


def make_task(model: str, label_noise: float, rho: float) -> Task:
    """Return the embedded task with another network, another share of wrong labels or another radius."""
    content = Task().model_dump()
    content["model"] = {"name": model}
    content["data"] |= {"label_noise": label_noise}
    content["recipe"] |= {"rho": rho}
    return Task.model_validate(content)


def prepare(task: Task) -> None:
    """Prepare a worker: one thread, low priority."""
    global _task, _data
    os.nice(10)
    torch.set_num_threads(1)
    _task, _data = task, load_dataset(task.data)


def train(key: Key) -> dict[str, Any]:
    """Train one row of the table."""
    name, c, gamma_rst, epochs, seed = key
    begun = time.process_time()
    schedule = schedules.with_mean(family_of(name), c, epochs, shape=shape_of(name))
    method = Method(schedule=schedule.to_dict(), gamma_gnr=gamma_rst / c if c else 1.0)
    run = Run(_task, method, seed=seed, epochs=epochs, device="cpu", data=_data)
    while not run.finished:
        run.epoch()
    return {
        "key": key,
        "status": run.status,
        "curve": [round(e, 4) for e in run.history.get("validation_error", [])],
        "test_error": round(run.test()["test_error"], 4) if run.status == "complete" else None,
        "pairs": run.pairs,
        "seconds": round(time.process_time() - begun, 2),
    }


def read_rows(path: Path) -> dict[Key, dict[str, Any]]:
    """Return the rows of a work file; an incomplete line is trained again."""
    rows: dict[Key, dict[str, Any]] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        family, c, gamma, epochs, seed = row["key"]
        rows[family, float(c), float(gamma), epochs, seed] = row
    return rows


def unpack(path: Path) -> dict[Key, dict[str, Any]]:
    """Return the rows of a packed table; none where the file does not exist."""
    if not path.exists():
        return {}
    with np.load(path) as file:
        table = {name: file[name] for name in file.files}
    keys_of = zip(*(table[name].tolist() for name in ("family", "c", "gamma_rst", "epochs", "seed")), strict=True)
    return {
        key: {
            "key": key,
            "status": "complete" if table["complete"][i] else "diverged",
            "curve": [e for e in table["curve"][i].tolist() if not np.isnan(e)],
            "test_error": float(table["test_error"][i]) if table["complete"][i] else None,
            "pairs": float(table["pairs"][i]),
        }
        for i, key in enumerate(keys_of)
    }


def fill(
    rows: dict[Key, dict[str, Any]], wanted: list[Key], work: Path, workers: int, task: Task
) -> dict[Key, dict[str, Any]]:
    """Return `rows` and those of the work file, with the wanted ones that they lack trained."""
    rows = rows | read_rows(work)
    missing = [key for key in wanted if key not in rows]
    if not missing:
        return rows
    begun = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(workers, prepare, (task,)) as pool, work.open("a") as file:
        for done, row in enumerate(pool.imap_unordered(train, missing), start=1):
            file.write("\n" * (file.tell() > 0 and done == 1) + json.dumps(row) + "\n")
            file.flush()
            rows[tuple(row["key"])] = row
            if done % 20 == 0:
                print(f"{done} of {len(missing)} in {time.monotonic() - begun:.0f} s", flush=True)
    return rows


def pack(rows: dict[Key, dict[str, Any]], path: Path, task: Task, reference: float) -> None:
    """Write the compressed table. A curve is padded with NaN after its last epoch."""
    curves = np.full((len(rows), EPOCHS), np.nan, dtype=np.float32)
    for i, row in enumerate(rows.values()):
        curves[i, : len(row["curve"])] = row["curve"]
    columns = list(zip(*rows, strict=True))
    about = {"task": task.model_dump(mode="json"), "reference": reference, "torch": torch.__version__}
    np.savez_compressed(
        path,
        family=np.array(columns[0]),
        c=np.array(columns[1], dtype=np.float64),
        gamma_rst=np.array(columns[2], dtype=np.float64),
        epochs=np.array(columns[3], dtype=np.int16),
        seed=np.array(columns[4], dtype=np.int16),
        complete=np.array([row["status"] == "complete" for row in rows.values()]),
        curve=curves,
        test_error=np.array([np.nan if r["test_error"] is None else r["test_error"] for r in rows.values()]),
        pairs=np.array([row["pairs"] for row in rows.values()], dtype=np.float32),
        about=np.array(json.dumps(about)),
    )


def main() -> None:
    """Read the arguments, train what is missing, write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--work", type=Path, help="the rows so far (default: beside the table)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--families", nargs="+", default=FAMILIES)
    parser.add_argument("--gammas", type=float, nargs="+", default=GAMMAS)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--model", default=Task().model.name)
    parser.add_argument("--label-noise", type=float, default=Task().data.label_noise)
    parser.add_argument("--rho", type=float, default=Task().recipe.rho)
    parser.add_argument("--reference", type=float, default=12.0, help="the error of the hypervolume's reference point")
    parser.add_argument("--quick", action="store_true", help="nine trainings of a small network, in a temporary file")
    given = parser.parse_args()
    if given.quick:
        given.families, given.gammas, given.seeds, given.model = ("constant",), (1.0,), 1, "mlp-tiny"
        with tempfile.TemporaryDirectory() as folder:
            given.table = Path(folder) / "table.npz"
            make(given)
    else:
        make(given)


def make(given: argparse.Namespace) -> None:
    """Train what the table lacks and write it; a complete table stays as it is."""
    task = make_task(given.model, given.label_noise, given.rho)
    wanted = list(keys(given.families, given.gammas, given.seeds))
    work = given.work or given.table.with_suffix(".partial.jsonl")
    known = unpack(given.table)
    rows = fill(known, wanted, work, given.workers, task)
    if rows.keys() != known.keys():
        pack(rows, given.table, task, given.reference)
    print(f"{len(rows)} trainings, {sum(r['pairs'] for r in rows.values()):.0f} pairs, {given.table}")


if __name__ == "__main__":
    main()
