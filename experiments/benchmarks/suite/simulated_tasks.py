"""Tasks without training: the true mean error is a formula, so the truth of a sentence is exact.

    mean = (floor + slope · horizon^-power) · (1 - gain · s · e^(1 - s) + harm · r²/(1 + r²)),
    s = effect/0.8,  r = strain/limit

The gain is highest at the effect 0.8 of SAM's and fades beyond it; the harm of a large strain levels off. It is not the
form of the surrogate's prior mean. A training has this rate of errors times e^(v + w): v is common to all trainings of
its seed, w is its own, and their means leave the mean error as it is. Measured is the share of wrong answers among the
validation examples. Earlier epochs have errors that fall towards the last.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from bank import TRUTH_SEEDS, Bank, Curve
from ensemble import SuiteTask
from grid_space import compute_space

from rst_tune.records import TrialConfig, config_id
from rst_tune.tuning.points import baselines
from rst_tune.tuning.sampler import RandomSuggester

SEED_SD, OWN_SD, BEST_EFFECT, SAMPLES = 0.10, 0.08, 0.8, 4000


@dataclass(frozen=True)
class Formula:
    """The true mean error in percent; `limit` is the strain at which half of the harm is done."""

    floor: float
    slope: float
    power: float
    gain: float = 0.0
    harm: float = 0.0
    limit: float = 1.0

    def __call__(self, config: TrialConfig) -> float:
        """Return the true mean error of a configuration."""
        s, r = config.effect / BEST_EFFECT, config.strain / self.limit
        length = self.floor + self.slope * config.horizon**-self.power
        return length * (1 - self.gain * s * np.exp(1 - s) + self.harm * r**2 / (1 + r**2))


class SimulatedBank(Bank):
    """A bank whose trainings follow a formula; nothing is kept."""

    def __init__(self, task: SuiteTask, formula: Formula) -> None:
        super().__init__(task, keep=False)
        self.formula = formula

    def curve(self, config: TrialConfig, seed: int) -> Curve:
        """Return the errors at the rungs of a training."""
        own = np.random.default_rng([int(config_id(config.params), 16), seed])
        common = np.random.default_rng([seed, 1])
        luck = SEED_SD * common.normal() + OWN_SD * own.normal() - (SEED_SD**2 + OWN_SD**2) / 2
        rate, count = self.formula(config) * np.exp(luck) / 100, self.task.validation
        epochs = self.scale.epochs_of(config.params)
        rates = {e: min(rate * (1 + 3 * (1 - e / epochs) ** 2), 0.9) for e in self.task.rungs(epochs)}
        return {e: 100 * int(own.binomial(count, r)) / count for e, r in rates.items()}

    def truth(self, configs: Sequence[TrialConfig], seeds: int = TRUTH_SEEDS) -> np.ndarray:
        """Return the true mean errors, one row per configuration: every seed would have the same."""
        return np.array([[self.formula(c)] * seeds for c in configs])

    def known(self) -> list[TrialConfig]:
        """Return the baselines and a random sample of the space."""
        rng, space = np.random.default_rng(11), compute_space()
        sampled = [space.sample(RandomSuggester(rng)) for _ in range(SAMPLES)]
        return [self.config(p) for p in (*baselines(space), *sampled)]


FORMULAS = {
    "simulated-pays": Formula(floor=6.5, slope=2.5, power=0.7, gain=0.25, harm=1.0, limit=3.0),
    "simulated-nothing": Formula(floor=9.0, slope=3.0, power=0.5),
    "simulated-harms": Formula(floor=3.0, slope=6.0, power=1.0, harm=0.4),
}


def simulated_bank(name: str) -> SimulatedBank:
    """Return the bank of one of the simulated tasks."""
    task = SuiteTask(
        name=name, about="a formula", pool=lambda: (np.zeros((0, 1)), np.zeros(0)), classes=10, train=480,
        validation=1000, epochs=14, rho=0.4,
    )  # fmt: skip
    return SimulatedBank(task, FORMULAS[name])
