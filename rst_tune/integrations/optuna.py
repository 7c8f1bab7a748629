"""Optuna: the sampler of the search for any study of (error, compute), whose compute is known before a training."""

from collections.abc import Mapping
from typing import Any

from rst_tune.errors import InputError

try:
    import optuna
    from optuna.trial import FixedTrial, FrozenTrial, TrialState
except ImportError as error:
    raise ImportError("Optuna is not installed: pip install 'rst_tune[tune]'") from error

from rst_tune.analysis.pareto import derive_reference, reference_compute
from rst_tune.records import Role, Status, Trial, TrialConfig, config_id
from rst_tune.tuning.axes import bounds
from rst_tune.tuning.experiment import load_space
from rst_tune.tuning.sampler import FrontSampler
from rst_tune.tuning.space import Params, Space, TaskScale, trial_config

__all__ = ["RstSampler"]

CONFIG = "rst_config"
"""The user attribute of an Optuna trial that holds its configuration."""


class RstSampler(FrontSampler):
    """Proposes the configuration that is expected to improve the front of (error, compute) most per compute.

    An objective calls `suggest(trial)` and returns (error, config.compute), both minimized; the error is above 0. It
    trains with `rst_from_config`-like code of its own: `config.schedule`, `config.rule`, `config.rho` and
    `config.gamma_gnr` are the arguments of RST, and `config.horizon` is the length.

    Args:
        space: a shipped space by name, a file, or a `Space`.
        epochs: the length of one plain training.
        rho: the radius of SAM.
        seed: of the random samples.
        n_startup_trials: how many trials are sampled at random first.
    """

    def __init__(
        self,
        space: Space | str = "compute",
        *,
        epochs: int,
        rho: float = 0.05,
        seed: int = 0,
        n_startup_trials: int = 8,
    ) -> None:
        found = load_space(space) if isinstance(space, str) else space
        if isinstance(found, str):
            raise InputError(f"RstSampler needs a space of data, but {found} is a Python file: pass a Space")
        self.space, self.seed = found, seed
        self.scale = TaskScale(epochs=epochs, steps_per_epoch=1000, rho=rho)
        rough = TaskScale(epochs=epochs, steps_per_epoch=1, rho=rho, exact=False)
        super().__init__(found.sample, rough, n_startup_trials=n_startup_trials)
        self._observed: set[int] = set()

    def suggest(self, trial: optuna.Trial) -> TrialConfig:
        """Return the configuration of a trial: what is trained, with its exact compute."""
        config = self.config_of(self.space.sample(trial))
        trial.set_user_attr(CONFIG, config.to_dict())
        return config

    def sample_all(self, trial: Any) -> None:
        """Suggest every value of the space, as a define-by-run function does."""
        self.space.sample(trial)

    def config_of(self, params: Mapping[str, Any]) -> TrialConfig:
        """Return the configuration that sampled parameters mean."""
        return trial_config(params, self.scale)

    def params_of(self, suggested: Mapping[str, Any]) -> Params:
        """Return the parameters that the suggested values of a study mean."""
        return self.space.sample(FixedTrial(dict(suggested)))

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Take in what has finished since the last proposal, and make the next one."""
        if len(study.directions) != 2 or any(d != optuna.study.StudyDirection.MINIMIZE for d in study.directions):
            raise InputError(
                "RstSampler needs a study of two minimized objectives, error and compute, but its directions are "
                f"{[d.name.lower() for d in study.directions]}: create_study(directions=['minimize', 'minimize'])"
            )
        trials = study.get_trials(deepcopy=False)
        for each in trials:
            if each.state is TrialState.COMPLETE and each.number not in self._observed and each.params:
                self._observed.add(each.number)
                done = self._trial(each)
                if done is None or done.error is None:
                    continue
                if self._reference is None:
                    self._reference = (derive_reference(done.error), reference_compute(bounds(self.space.horizon)[1]))
                self.model.observe(done)
        running = [self._trial(t) for t in trials if t.state is TrialState.RUNNING and t.number != trial.number]
        pending = [t for t in running if t is not None]
        self.prepare(pending, self._reference, (self.seed * 1_000_003 + trial.number) % 2**32)
        super().before_trial(study, trial)

    def _trial(self, frozen: FrozenTrial) -> Trial | None:
        """Return a trial of the study as one of a search; None where its parameters are not those of the space."""
        try:
            config = self.config_of(self.params_of(frozen.params))
        except ValueError:
            return None
        values = frozen.values if frozen.state is TrialState.COMPLETE else None
        identity = config_id(config.params)
        return Trial(
            key=f"{identity}-{frozen.number}",
            number=frozen.number,
            role=Role.SEARCH,
            config_id=identity,
            config=config,
            seed=frozen.number,
            epochs=round(config.horizon * self.scale.epochs),
            full_horizon=True,
            sampled_at=0.0,
            status=Status.COMPLETE if values else Status.RUNNING,
            error=float(values[0]) if values else None,
        )
