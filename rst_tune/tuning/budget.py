"""What a search may spend, has spent, and has reserved for what is running. Every pair is charged."""

from rst_tune.records import Trial
from rst_tune.tuning.experiment import Experiment

__all__ = ["BudgetTracker"]


class BudgetTracker:
    """Accounts in the unit of the budget: pairs, plain trainings, trials (configurations) or device-hours."""

    def __init__(self, experiment: Experiment, steps_per_epoch: int) -> None:
        self._budget, self._confirm = experiment.budget, experiment.confirm
        self._devices = experiment.resources.devices
        self._recipe_pairs = float(experiment.task.recipe.epochs * steps_per_epoch)
        self._reserved: dict[str, float] = {}
        self._pairs = 0.0
        self.spent = 0.0

    def expected_pairs(self, trial: Trial) -> float:
        """Return the pairs of a trial that is trained to its end."""
        return self._recipe_pairs * trial.compute

    def reserve(self, trial: Trial) -> None:
        """Set aside what a trial costs if it is trained to its end."""
        self._reserved[trial.key] = self.expected_pairs(trial)

    def commit(self, trial: Trial) -> None:
        """Book what an ended trial has cost instead of what was reserved for it."""
        self._reserved.pop(trial.key, None)
        self._pairs += trial.pairs
        if self._budget.pairs is not None:
            self.spent += trial.pairs
        elif self._budget.trainings is not None:
            self.spent += trial.pairs / self._recipe_pairs
        elif self._budget.device_hours is not None:
            self.spent += trial.seconds * self._devices / 3600

    def limit(self, *, searching: bool) -> float:
        """Return the budget, or (`searching`) the part of it that is not kept for the confirmation."""
        budget = self._budget
        if budget.trials is not None:
            return float(budget.trials) if searching else float("inf")
        total = budget.pairs or budget.trainings or budget.device_hours or 0.0
        return total * (1 - self._confirm.budget_fraction) if searching and self._confirm.enabled else total

    def affords(self, configurations: int, *, searching: bool) -> bool:
        """Return whether one more training may begin in a search that has sampled `configurations`."""
        if self._budget.trials is not None:
            return configurations < self.limit(searching=searching)
        return self.spent + self._reserved_cost() < self.limit(searching=searching)

    def _reserved_cost(self) -> float:
        pairs = sum(self._reserved.values())
        if self._budget.pairs is not None:
            return pairs
        if self._budget.trainings is not None:
            return pairs / self._recipe_pairs
        return pairs * self.spent / self._pairs if self._pairs else 0.0
