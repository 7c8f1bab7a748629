"""`python -m tests.soak --minutes 10`: random kills of the driver for most of the time, and fuzzed files beside them.

Prints what was injected and every disagreement or bug; exits 1 if there is one. What failed is kept for reading.
"""

import argparse
import json
import os
import random
import secrets
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("RAY_worker_niceness", "0")  # with Ray's own 15, workers starve on a busy machine
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
CHUNK, CHUNK_SECONDS = 500, 1800


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def fuzz(first: int, cases: int, deadline: float) -> tuple[int, list[dict]]:
    """Run fuzz cases in processes of their own; return how many were run and the bugs."""
    done, known, bugs = 0, 0, []
    with tempfile.TemporaryDirectory() as folder:
        current = Path(folder) / "current"
        while done < cases and time.monotonic() < deadline:
            chunk = min(CHUNK, cases - done)
            begin = first + done
            words = ["-m", "tests.soak.fuzz", f"--first={begin}", f"--cases={chunk}", f"--current={current}"]
            try:
                command = [sys.executable, *words]
                child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=CHUNK_SECONDS)
            except subprocess.TimeoutExpired:
                child = subprocess.CompletedProcess(words, -1, "", f"no end within {CHUNK_SECONDS} s")
            found = [json.loads(line) for line in child.stdout.splitlines() if line.startswith("{")]
            reached = max(begin, int(current.read_text()) if current.exists() else begin)
            if child.returncode not in (0, 1) or (child.returncode == 1 and not found):
                # A crash counts as a bug of the case it happened in; the next chunk begins behind it.
                problem = f"the process ended with {child.returncode}: {child.stderr[-2000:]}"
                found.append({"case": reached, "kind": "crash", "problem": problem})
            bugs += found
            done = reached + 1 - first
            for bug in bugs[known:]:
                say(f"case {bug['case']} ({bug['kind']}):\n{bug['problem']}")
            known = len(bugs)
            say(f"fuzzing: {done} files, {len(bugs)} bugs")
    return done, bugs


def kills(minutes: float, seed: int, folder: Path) -> tuple[int, Counter[str], list[str]]:
    """Kill drivers until the time is over; return the searches, the kills and the disagreements."""
    import ray
    from ray.cluster_utils import Cluster

    from tests.soak.kills import soak_once

    head = {"num_cpus": 2, "node_ip_address": ray.util.get_node_ip_address(), "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    deadline, searches, count, problems = time.monotonic() + 60 * minutes, 0, Counter[str](), list[str]()
    try:
        while time.monotonic() < deadline:
            place = folder / f"search-{seed + searches}"
            try:
                count += soak_once(place, cluster.address, random.Random(seed + searches), deadline)
            except Exception:  # noqa: BLE001  one disagreement must not end the soak
                problems.append(f"{place}:\n{traceback.format_exc()}")
                say(problems[-1])
            searches += 1
            say(f"kills: {searches} searches, {dict(count)}, {len(problems)} disagreements")
    finally:
        cluster.shutdown()
    return searches, count, problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="time for kills; a search that runs is completed")
    parser.add_argument("--cases", type=int, default=10_000, help="files to fuzz")
    parser.add_argument("--fuzz-minutes", type=float, default=90.0, help="longest time for them")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 10**6)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="rst-soak-"))
    say(f"seed {given.seed}, in {folder}")
    searches, count, problems = kills(given.minutes, given.seed, folder) if given.minutes else (0, Counter(), [])
    limit = time.monotonic() + 60 * given.fuzz_minutes
    done, bugs = fuzz(given.seed * 100_000, given.cases, limit) if given.cases else (0, [])
    say(f"{searches} searches with {sum(count.values())} kills {dict(count)}: {len(problems)} disagreements")
    say(f"{done} damaged files: {len(bugs)} bugs")
    return 1 if problems or bugs else 0


if __name__ == "__main__":
    sys.exit(main())
