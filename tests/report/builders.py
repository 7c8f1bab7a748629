"""Small searches built in memory, and hostile names for all that a record can hold."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from rst_tune.analysis.analysis import Analysis, analyze
from rst_tune.records import (
    Phase,
    Role,
    SchedulePreview,
    Search,
    SearchStarted,
    Status,
    Trial,
    TrialConfig,
    config_id,
    trial_key,
)

SCRIPT = "<script>window.hacked=1</script><img src=x onerror=alert(1)>"


def config(cost: float = 0.5, gamma_rst: float = 0.8, **changes: Any) -> TrialConfig:
    plain = TrialConfig(
        family="constant",
        schedule={"family": "constant", "p": cost},
        extra_propagation=cost,
        gamma_gnr=gamma_rst / cost,
        gamma_rst=gamma_rst,
        rho=0.1,
        params={"family": "constant", "c": cost, "gamma_rst": gamma_rst},
    )
    return replace(plain, **changes)


def trial(number: int = 0, error: float | None = 4.0, status: Status = Status.COMPLETE, **changes: Any) -> Trial:
    made = config(round(0.1 + 0.01 * number, 2))
    identity = config_id(made.params)
    plain = Trial(
        key=trial_key(identity, 20, 0),
        number=number,
        role=Role.SEARCH,
        config_id=identity,
        config=made,
        seed=0,
        epochs=20,
        full_horizon=True,
        sampled_at=0.0,
        status=status,
        error=error,
        preview=SchedulePreview(curve=(0.5,) * 10, coins=(0.0, 1.0) * 5),
        started_at=None if status is Status.WAITING else 1.0 + number,
        ended_at=5.0 + number if status.has_ended else None,
        node="" if status is Status.WAITING else "n",
        worker="1",
    )
    return replace(plain, **changes)


def search(*trials: Trial, phase: Phase = Phase.DONE, **header: Any) -> Search:
    return Search(
        directory=Path("somewhere"), header=SearchStarted(**header), trials=trials, phase=phase, updated_at=100.0
    )


def several_lengths() -> Analysis:
    """A search over length and radius: SAM helps, and the base optimizer is best when it is trained briefly."""
    base = {"gamma_gnr": 1.0, "gamma_rst": 0.0, "extra_propagation": 0.0, "schedule": {"family": "constant", "p": 0.0}}
    sam = {"effect": 1.0, "strain": 1.0}
    rows = [
        (config(horizon=0.25, **base), (6.1, 6.3)),
        (config(horizon=1.0, **base), (12.7, 12.9)),
        (config(horizon=2.0, **base), (18.0, 18.2)),
        (config(1.0, 1.0, horizon=0.5, **sam), (4.6, 4.8)),
        (config(1.0, 1.0, horizon=1.0, **sam), (5.1, 5.3)),
        (config(1.0, 1.0, horizon=1.0, rho=0.3, effect=3.0, strain=3.0), (4.5,)),
        (config(0.2, 0.9, horizon=0.3, effect=0.9, strain=2.0), (5.5,)),
        (config(0.2, 0.9, horizon=1.0, rho=0.2, effect=1.8, strain=4.0), (6.0,)),
    ]
    trials = [
        trial(
            2 * i + seed, error, config=replace(made, total_steps=round(300 * made.horizon)), config_id=f"c{i}",
            key=f"c{i}-s{seed}", seed=seed, epochs=round(20 * made.horizon),
            pairs=300 * made.compute, test_error=error + 0.1,
        )
        for i, (made, errors) in enumerate(rows)
        for seed, error in enumerate(errors)
    ]  # fmt: skip
    return analyze(search(*trials, name="lengths", experiment={"budget": {"trainings": 40}}))


def hostile(name: str) -> Analysis:
    """An analysis in which every name of the record is `name`."""
    bad = config(family=name, rule=name, schedule={"family": name, name: name})
    trials = [
        replace(trial(i, 4 + i / 9), config=bad, config_id=f"{name}{i}", key=f"{name}{i}", node=name, reason=name)
        for i in range(3)
    ]
    return analyze(search(*trials, name=name, experiment={name: {name: name}}, versions={name: name}))


def page_data(html: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1], parse_constant=_refuse)
    return data


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
