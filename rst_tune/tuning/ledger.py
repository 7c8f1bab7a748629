"""What a search may spend, has spent, and has promised to what is running. Every pair is charged."""

from rst_tune.analysis.records import Trial
from rst_tune.tuning.experiment import Experiment

__all__ = ["Ledger"]


class Ledger:
    """The accounts, in the unit of the budget: propagation pairs, trials (configurations) or device-hours."""

    def __init__(self, experiment: Experiment, steps_per_epoch: int) -> None:
        self._budget, self._confirm, self._resources = experiment.budget, experiment.confirm, experiment.resources
        self._steps_per_epoch = steps_per_epoch
        self._promised: dict[str, float] = {}
        self._promised_pairs = 0.0
        self._pairs = 0.0
        self.spent = 0.0

    def promise(self, trial: Trial) -> None:
        """Set aside what a trial will cost if it goes to its end."""
        pairs = trial.epochs * self._steps_per_epoch * (1 + trial.extra_propagation)
        self._promised_pairs += pairs - self._promised.get(trial.key, 0.0)
        self._promised[trial.key] = pairs

    def charge(self, trial: Trial) -> None:
        """Book what an ended trial has cost, instead of what was promised to it."""
        self._promised_pairs -= self._promised.pop(trial.key, 0.0)
        if not self._promised:
            self._promised_pairs = 0.0  # no rounding is carried on
        self._pairs += trial.pairs
        if self._budget.pairs is not None:
            self.spent += trial.pairs
        elif self._budget.device_hours is not None:
            self.spent += trial.seconds * max(self._resources.gpu, 1.0) * self._resources.workers / 3600

    def limit(self, phase: str) -> float:
        """Return the budget up to the end of a phase."""
        budget = self._budget
        if budget.trials is not None:
            return float(budget.trials) if phase == "search" else float("inf")
        total = budget.pairs or budget.device_hours or 0.0
        return total * (1 - self._confirm.share) if phase == "search" and self._confirm.enabled else total

    def affords(self, phase: str, configurations: int) -> bool:
        """Return whether one more training may begin in this phase of a search that has drawn `configurations`."""
        if self._budget.trials is not None:
            return configurations < self.limit(phase)
        return self.spent + self._promised_cost() < self.limit(phase)

    def _promised_cost(self) -> float:
        if self._budget.pairs is not None:
            return self._promised_pairs
        return self._promised_pairs * self.spent / self._pairs if self._pairs else 0.0
