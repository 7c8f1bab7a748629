"""Random kills of the driver over small searches, each search followed by a check that all records agree."""

import random
import signal
import time
from collections import Counter
from pathlib import Path

from rst_tune.records import load
from tests.faults.agreement import assert_front_agrees, assert_mlflow_agrees, assert_study_agrees
from tests.faults.harness import EXPERIMENT, assert_whole, driver, events, run, write_experiment

KILLS = (6, 12)
"""Fewest and most kills of one search, after which it may come to its end."""


def random_settings(chance: random.Random) -> tuple[str, ...]:
    """Return the settings of a small search: another sampler, stopper, number of seeds or of trials at a time."""
    return (
        f"seed={chance.randrange(10**6)}",
        f"sampler.name={chance.choice(('front', 'front', 'tpe', 'random', 'nsga2'))}",
        f"stopping.name={chance.choice(('pareto-asha', 'asha', 'none'))}",
        f"seeds={chance.choice((1, 1, 2))}",
        f"resources.max_concurrent_trials={chance.choice((1, 2))}",
        f"confirm.enabled={chance.choice(('true', 'true', 'false'))}",
        "tracking.enabled=true",
    )


def soak_once(folder: Path, address: str, chance: random.Random, deadline: float) -> Counter[str]:
    """Search once, with kills at random moments, and check the end. Return what was injected."""
    folder.mkdir(parents=True)
    model = {"name": "tests.faults.fault_models:slow", "options": {"seconds": chance.choice((0.0, 0.005, 0.02))}}
    task = {**EXPERIMENT["task"], "model": model}
    path = write_experiment(folder, task=task, budget={"trials": chance.choice((4, 6))})
    output, settings, count = folder / "output", random_settings(chance), Counter[str]()
    (folder / "settings.txt").write_text("\n".join(settings))
    kills = chance.randint(*KILLS)
    while sum(count.values()) < kills and time.monotonic() < deadline:
        with driver(path, output, address, *settings) as search:
            number = chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
            _wait(search, chance)
            if search.process.poll() is not None:
                assert search.process.returncode == 0, search.text
                break
            search.signal(number)
            code = search.wait()
            assert code in (-number, 130, 0), f"exit {code} after {number!r}:\n{search.text}"
            assert "Traceback" not in search.text, search.text
            count[number.name] += 1
    run(path, output, address, *settings)
    check(output)
    return count


def _wait(search, chance: random.Random) -> None:
    """Wait until a few more events are written, or for a random while, so that a kill may fall anywhere."""
    lines, begun = chance.randrange(0, 14), len(events(search.output))
    limit = time.monotonic() + 60
    while search.process.poll() is None and len(events(search.output)) < begun + lines and time.monotonic() < limit:
        time.sleep(0.01)
    time.sleep(chance.choice((0.0, 0.005, 0.05, chance.uniform(0, 1.5))))


def check(output: Path) -> None:
    """Event log, study, MLflow and front agree."""
    assert_whole(output)
    assert_study_agrees(output, at_least=1)
    assert_mlflow_agrees(output)
    assert_front_agrees(output)
    assert load(output).finished()
    assert not list(output.glob("*.damaged*")), "a study was damaged by a kill"
