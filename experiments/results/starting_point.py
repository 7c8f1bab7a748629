"""One configuration for those who will not search: best on average, judged on a task that did not choose it.

The candidates are all rules at all radii, at the compute of one plain training. They are chosen by validation errors on
the even seeds that have every radius, and judged by test errors on odd seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from equal_compute import CONTENDERS, LENGTHS, RADII, SEEDS, Contender, even, odd, sgd_configs
from trainings import Config, Record

__all__ = ["Start", "choose", "start", "train"]

JUDGES = odd(8)
Key = tuple[Contender, int]


@dataclass(frozen=True)
class Start:
    """A rule with a place in the radii, and its test error over that of plain SGD on each task."""

    contender: Contender
    radius: int
    ratios: dict[str, float]


def choose(records: Mapping[str, Record]) -> dict[str, Key]:
    """Return for each task the choice of the other tasks, and as "" the choice of all."""
    table = _table(records)
    others = {name: [other for other in records if other != name] for name in records}
    return {name: _best(table, voters) for name, voters in {**others, "": list(records)}.items()}


def train(records: Mapping[str, Record]) -> int:
    """Train each choice, and plain SGD, on the seeds that judge."""
    count = 0
    for name, record in records.items():
        keys = {choose(records)[name], choose(records)[""]}
        configs = [_config(record, key) for key in keys] + [_plain(record)]
        count += record.train((config, seed) for config in configs for seed in JUDGES)
    return count


def start(records: Mapping[str, Record]) -> tuple[Start, dict[str, Start]] | None:
    """Return the choice of all tasks and those without one task, as judged; None while trainings are missing."""
    chosen = choose(records)
    if not all(_has(record, chosen[key]) for name, record in records.items() for key in (name, "")):
        return None
    overall = Start(*chosen[""], {name: _ratio(record, chosen[""], JUDGES) for name, record in records.items()})
    single = {name: Start(*chosen[name], {name: _ratio(r, chosen[name], JUDGES)}) for name, r in records.items()}
    return overall, single


def _config(record: Record, key: Key) -> Config:
    return key[0].configs(record.task, 1.0)[key[1]]


def _plain(record: Record) -> Config:
    return sgd_configs(record.task)[LENGTHS.index(1.0)]


def _has(record: Record, key: Key) -> bool:
    return record.has(_config(record, key), JUDGES) and record.has(_plain(record), JUDGES)


def _table(records: Mapping[str, Record]) -> dict[Key, dict[str, float]]:
    """Return the validation error over plain SGD's for each configuration."""
    keys = [(contender, place) for contender in CONTENDERS for place in range(len(RADII))]
    return {key: {n: _ratio(r, key, _choosers(r, key), "validation") for n, r in records.items()} for key in keys}


def _choosers(record: Record, key: Key) -> Sequence[int]:
    both = (_config(record, key), _plain(record))
    seeds = max(n for n in SEEDS if all(record.has(config, even(n)[: n // 2]) for config in both))
    return even(seeds)[: seeds // 2]


def _ratio(record: Record, key: Key, seeds: Sequence[int], what: str = "test") -> float:
    return fmean(record.values(_config(record, key), seeds, what)) / fmean(record.values(_plain(record), seeds, what))


def _best(table: Mapping[Key, Mapping[str, float]], names: Sequence[str]) -> Key:
    return min(table, key=lambda key: fmean(table[key][name] for name in names))
