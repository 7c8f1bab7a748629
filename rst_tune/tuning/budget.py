"""What a search may spend, has spent, and has reserved for what is running. Every pair is charged."""

from rst_tune.records import Trial
from rst_tune.tuning.experiment import Experiment


class BudgetTracker:
    """Accounts in the unit of the budget: pairs, plain trainings or epochs, trials (configurations), device-hours.

    Where the cost is in seconds, a pair counts with its time in all of them but pairs.
    """

    def __init__(self, experiment: Experiment, steps_per_epoch: int) -> None:
        self._budget = experiment.budget
        self._devices = experiment.resources.devices
        self._recipe_pairs = float(experiment.task.epochs * steps_per_epoch)
        self._unit = self._budget.pairs_per_unit(steps_per_epoch, experiment.task.epochs)
        self._reserved: dict[str, float] = {}
        self._pairs = 0.0
        self.spent = 0.0

    def expected_pairs(self, trial: Trial) -> float:
        """Return the pairs of a trial that is trained to its end."""
        config = trial.config
        return self._recipe_pairs * trial.compute / config.pair_weight * self._budget.weight(config)

    def reserve(self, trial: Trial) -> None:
        """Set aside what a trial costs if it is trained to its end."""
        self._reserved[trial.key] = self.expected_pairs(trial)

    def commit(self, trial: Trial) -> None:
        """Book what an ended trial has cost instead of what was reserved for it."""
        self._reserved.pop(trial.key, None)
        pairs = trial.pairs * self._budget.weight(trial.config)
        self._pairs += pairs
        if self._unit is not None:
            self.spent += pairs / self._unit
        elif self._budget.device_hours is not None:
            self.spent += trial.seconds * self._devices / 3600

    def limit(self, *, searching: bool) -> float:
        """Return the whole budget; in trials (configurations) it limits the search and not the replicates."""
        return float("inf") if self._budget.trials is not None and not searching else self._budget.amount

    def affords(self, configurations: int, *, searching: bool, reserve: float = 0.0) -> bool:
        """Return whether one more training may begin in a search that has sampled `configurations`.

        `reserve` is what the replicates will take, in plain trainings.
        """
        if self._budget.trials is not None:
            return configurations < self.limit(searching=searching)
        pairs = sum(self._reserved.values()) + reserve * self._recipe_pairs
        if self._unit is not None:
            reserved = pairs / self._unit
        else:
            reserved = pairs * self.spent / self._pairs if self._pairs else 0.0
        return self.spent + reserved < self.limit(searching=searching)
