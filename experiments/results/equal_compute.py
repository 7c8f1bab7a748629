"""What is worth its compute: every rule at equal total compute, its radius chosen on even seeds, judged on odd ones.

A rule of extra cost x trains for c/(1 + x) of the recipe's epochs at compute c. Four radii are trained on the first
half of the even seeds, the two with the lowest validation error on the other half as well, and the better one of these
is judged by its test error on as many odd seeds. SGD has no radius: its length is chosen in the same way.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy import stats
from trainings import SGD, AnyTask, Config, Record

from rst_tune.method import schedules
from rst_tune.method.cost import expected_extra_propagation

__all__ = ["AT", "CONTENDERS", "CURVES", "LENGTHS", "Contender", "Judged", "field", "sgd", "train"]

RADII = (0.05, 0.12, 0.3, 0.75)
LENGTHS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
AT = (0.5, 1.0, 2.0)
SEEDS = (4, 8)  # even seeds that choose, and as many odd ones that judge


@dataclass(frozen=True)
class Contender:
    """A way of training: a constant p and what else the method takes. `radius` multiplies the radii that are tried."""

    name: str
    rule: str = "sam"
    p: float = 1.0
    gamma: float = 1.0
    policy: str = "coin"
    cap: float | None = None
    radius: float = 1.0

    def configs(self, task: AnyTask, compute: float) -> list[Config]:
        """Return one configuration per radius, of the given total compute."""
        schedule = schedules.constant(self.p)
        extra = expected_extra_propagation(schedule, 1000, self.rule, None, task.batch_size)
        epochs = max(1, round(compute / (1 + extra) * task.epochs))
        return [
            Config(
                epochs=epochs, rho=round(rho * self.radius, 6), schedule=f"constant:p={self.p:g}", rule=self.rule,
                gamma=self.gamma, policy=self.policy, cap=self.cap,
            )
            for rho in RADII
        ]  # fmt: skip


CONTENDERS = (
    Contender("SAM"),
    Contender("G-RST, p 0.5, gamma 2", p=0.5, gamma=2.0),
    Contender("S2-SAM, one pass", "s2sam"),
    Contender("RST, p 0.5", p=0.5),
    Contender("MSAM, one pass", "msam"),
    Contender("ASAM", "asam", radius=10.0),
    Contender("GSAM", "gsam"),
    Contender("LookSAM(5)", "looksam"),
    Contender("ESAM", "esam"),
    Contender("SSAM", "ssam"),
    Contender("F-SAM", "fsam"),
    Contender("VASSO", "vasso"),
    Contender("SAM-ON", "sam-on", radius=2.0),
    Contender("AE-SAM policy, p 0.5", p=0.5, policy="gradient-norm"),
    Contender("G-RST, p 0.1, gamma 10", p=0.1, gamma=10.0),
    Contender("G-RST, p 0.1, gamma 10, cap 3", p=0.1, gamma=10.0, cap=3.0),
)
CURVES = CONTENDERS[:3]


def contenders(compute: float) -> tuple[Contender, ...]:
    """Return who takes part: everyone at compute 1, those of the curves at others."""
    return CONTENDERS if compute == 1.0 else CURVES


@dataclass(frozen=True)
class Judged:
    """A choice of the even seeds, with its test errors on the odd ones."""

    name: str
    config: Config
    compute: float
    chosen_by: float
    errors: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean test error."""
        return fmean(self.errors)

    @property
    def sem(self) -> float:
        """Its standard error."""
        return stdev(self.errors) / len(self.errors) ** 0.5

    @property
    def text(self) -> str:
        """Mean and standard error."""
        return f"{self.mean:.2f} ± {self.sem:.2f}"


def even(seeds: int) -> range:
    """Return the seeds that choose."""
    return range(0, 2 * seeds, 2)


def odd(seeds: int) -> range:
    """Return the seeds that judge."""
    return range(1, 2 * seeds, 2)


def _lowest(record: Record, configs: Sequence[Config], seeds: Sequence[int], count: int) -> list[Config]:
    """Return the configurations of least mean validation error."""
    return sorted(configs, key=lambda config: fmean(record.values(config, seeds, "validation")))[:count]


def sgd_configs(task: AnyTask) -> list[Config]:
    """Return SGD at six lengths."""
    return [Config(epochs=max(1, round(length * task.epochs)), rho=0.0, schedule=SGD) for length in LENGTHS]


def rounds(record: Record, contender: Contender, compute: float, seeds: int) -> Iterator[list[tuple[Config, int]]]:
    """Yield the trainings of each round; a round may be drawn up only when the one before has been trained."""
    configs, first, rest = contender.configs(record.task, compute), even(seeds)[: seeds // 2], even(seeds)[seeds // 2 :]
    yield [(config, seed) for config in configs for seed in first]
    better = _lowest(record, configs, first, 2)
    yield [(config, seed) for config in better for seed in rest]
    best = _lowest(record, better, even(seeds), 1)[0]
    yield [(best, seed) for seed in odd(seeds)]


def train(record: Record, at: Sequence[float], seeds: int) -> int:
    """Train SGD at its lengths, every contender at compute 1, and those of the curves at other computes."""
    count = record.train((config, seed) for config in sgd_configs(record.task) for seed in range(2 * seeds))
    for compute in at:
        for contender in contenders(compute):
            count += sum(record.train(todo) for todo in rounds(record, contender, compute, seeds))
    return count


def judge(record: Record, contender: Contender, compute: float, seeds: int) -> Judged | None:
    """Return a contender as judged on the odd seeds; None while trainings are missing."""
    last: list[tuple[Config, int]] = []
    for last in rounds(record, contender, compute, seeds):
        if not all(pair in record.rows for pair in last):
            return None
    return judged(record, contender.name, last[0][0], seeds)


def judged(record: Record, name: str, config: Config, seeds: int) -> Judged:
    """Return a chosen configuration with its test errors on the odd seeds."""
    compute = fmean(record.values(config, odd(seeds), "compute"))
    chosen_by = fmean(record.values(config, even(seeds), "validation"))
    return Judged(name, config, compute, chosen_by, tuple(record.values(config, odd(seeds))))


def sgd(record: Record, compute: float, seeds: int) -> Judged:
    """Return SGD at its best length up to a compute."""
    lengths = [config for config in sgd_configs(record.task) if config.epochs <= compute * record.task.epochs]
    return judged(record, "SGD at its best length", _lowest(record, lengths, even(seeds), 1)[0], seeds)


@dataclass(frozen=True)
class Field:
    """All contenders of a task at one compute: the number of seeds that judge, SGD, and the others."""

    seeds: int
    sgd: Judged
    others: dict[str, Judged]

    @property
    def best(self) -> Judged:
        """The contender with the lowest validation error on the seeds that choose."""
        return min(self.others.values(), key=lambda judged: judged.chosen_by)

    @property
    def gap(self) -> tuple[float, float, float]:
        """The best contender minus SGD on the seeds that judge, with Student's 95 % interval."""
        return paired(self.best, self.sgd)


def paired(left: Judged, right: Judged) -> tuple[float, float, float]:
    """Return left minus right, seed by seed, with Student's 95 % interval."""
    gaps = [a - b for a, b in zip(left.errors, right.errors, strict=True)]
    half = float(stats.t.ppf(0.975, len(gaps) - 1)) * stdev(gaps) / len(gaps) ** 0.5
    return fmean(gaps), fmean(gaps) - half, fmean(gaps) + half


def field(record: Record, compute: float) -> Field | None:
    """Return the contenders with the most seeds that all of them have; None where a training is missing."""
    fitting = contenders(compute)
    for seeds in sorted(SEEDS, reverse=True):
        if not all(record.has(config, range(2 * seeds)) for config in sgd_configs(record.task)):
            continue
        found = {contender.name: judge(record, contender, compute, seeds) for contender in fitting}
        others = {name: judged for name, judged in found.items() if judged is not None}
        if len(others) == len(fitting):
            return Field(seeds, sgd(record, compute, seeds), others)
    return None
