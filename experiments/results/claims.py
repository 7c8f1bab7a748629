"""The paper's claims as contrasts of configurations, decided by as many seeds as it takes.

All are trained at the recipe's length and radius. Effects are in points of error on the held-out images, below 0 is
less error; configurations are compared seed by seed: equal seeds share initial weights and data order.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from decide import LOOKS, Decision, Kind, decide
from trainings import SGD, AnyTask, Config, Record

__all__ = ["CLAIMS", "MARGINS", "Claim", "configurations", "decision", "differences", "train"]

# Points of error that make no difference to a user: half a point, and one where SGD's error is above 20 %.
# Fashion-MNIST had half a point until its first look had been seen: its verdicts by the margin are exploratory.
MARGINS = {"noisy_digits": 0.5, "fashion_mnist": 1.0, "clean_digits": 0.5, "tabular": 1.0, "cifar10": 1.0}
ASAM_RADIUS = 10.0  # ASAM measures its radius in the weights' own sizes: its authors use ten times SAM's


@dataclass(frozen=True)
class Claim:
    """A claim about a contrast: the mean error of `left` minus that of `right`."""

    says: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    kind: Kind

    @property
    def contrast(self) -> str:
        """What is subtracted from what."""
        return " minus ".join(" / ".join(side) for side in (self.left, self.right))


def configurations(task: AnyTask) -> dict[str, Config]:
    """Return the configurations by the names that the claims use."""
    epochs, rho = task.epochs, task.rho

    def config(schedule: str = "constant:p=1", rule: str = "sam", gamma: float = 1.0, radius: float = rho) -> Config:
        return Config(epochs=epochs, rho=radius, schedule=schedule, rule=rule, gamma=gamma)

    half, asam = "constant:p=0.5", ASAM_RADIUS * rho
    return {
        "SGD": Config(epochs=epochs, rho=0.0, schedule=SGD),
        "SAM": config(),
        "RST": config(half),
        "SGD then SAM": config("piecewise:a=0,b=0.5"),
        "SAM then SGD": config("piecewise:a=1,b=0.5"),
        "rising line": config("linear_group1:m=0.5"),
        "G-RST": config(half, gamma=2.0),
        "gamma_rst 1.5": config(half, gamma=3.0),
        "p 0.1, gamma_rst 0.5": config("constant:p=0.1", gamma=5.0),
        "p 0.1, gamma_rst 1": config("constant:p=0.1", gamma=10.0),
        "ASAM": config(rule="asam", radius=asam),
        "ASAM with G-RST": config(half, "asam", 2.0, asam),
        "GSAM": config(rule="gsam"),
        "GSAM with G-RST": config(half, "gsam", 2.0),
        "LookSAM": config(rule="looksam"),
        "LookSAM with G-RST": config(half, "looksam", 2.0),
    }


CLAIMS = (
    Claim("SAM has less error than SGD", ("SAM",), ("SGD",), "less"),
    Claim("SAM late is better than SAM early", ("SGD then SAM",), ("SAM then SGD",), "less"),
    Claim("constants are as good as the rest", ("RST",), ("SGD then SAM", "SAM then SGD", "rising line"), "not worse"),
    Claim("G-RST beats SAM at half its extra cost", ("G-RST",), ("SAM",), "less"),
    Claim("gamma_rst 1 is better than less", ("G-RST",), ("RST",), "less"),
    Claim("gamma_rst 1 is better than more", ("G-RST",), ("gamma_rst 1.5",), "less"),
    Claim("no gamma rescues a very low p", ("p 0.1, gamma_rst 0.5",), ("G-RST",), "more"),
    Claim("no gamma rescues a very low p", ("p 0.1, gamma_rst 1",), ("G-RST",), "more"),
    Claim("G-RST keeps ASAM's error at half its extra cost", ("ASAM with G-RST",), ("ASAM",), "not worse"),
    Claim("G-RST keeps GSAM's error at half its extra cost", ("GSAM with G-RST",), ("GSAM",), "not worse"),
    Claim("G-RST keeps LookSAM's error at half its extra cost", ("LookSAM with G-RST",), ("LookSAM",), "not worse"),
)


def differences(claim: Claim, record: Record) -> list[float]:
    """Return left minus right for the seeds 0, 1, … that all configurations of the claim have."""
    named = configurations(record.task)
    found: list[float] = []
    for seed in range(max(LOOKS)):
        if not all(record.has(named[name], [seed]) for name in (*claim.left, *claim.right)):
            break
        found.append(_mean(record, named, claim.left, seed) - _mean(record, named, claim.right, seed))
    return found


def _mean(record: Record, named: Mapping[str, Config], names: tuple[str, ...], seed: int) -> float:
    return sum(record.values(named[name], [seed], "heldout")[0] for name in names) / len(names)


def decision(claim: Claim, record: Record) -> Decision | None:
    """Return the decision on a claim with the seeds that are there."""
    return decide(differences(claim, record), claim.kind, MARGINS[record.name])


def train(record: Record, look: int) -> int:
    """Train every configuration of the claims that are still open up to a look."""
    named = configurations(record.task)
    decided = {claim: decision(claim, record) for claim in CLAIMS}
    names = {n for claim, d in decided.items() if d is None or not d.verdict for n in (*claim.left, *claim.right)}
    return record.train((named[name], seed) for name in names for seed in range(look))
