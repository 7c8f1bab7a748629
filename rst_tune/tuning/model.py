"""The surrogate of a running search: it observes trials as they end, and is fitted again as they grow in number."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice

from rst_tune.analysis import pareto
from rst_tune.analysis.surrogate import EXPLORING, MIN_TRIALS, PRIOR, KernelParams, Surrogate, fit_surrogate
from rst_tune.records import Prior, Status, Trial, TrialConfig

__all__ = ["SearchModel"]

# Beyond this many finished trials the kernel is fitted again only when their number has grown by a tenth, so that a
# proposal takes as long after 20,000 trials as after 200.
REFIT_UNTIL = 20
# Of more pending and stopped trials than this the latest are used; of more finished ones the front, the baselines and
# the latest, because proposals concentrate where the front is.
MAX_PENDING, MAX_OBSERVATIONS = 100, 200
# What a training that diverged or ran out of memory counts as, where the metric is an error in percent.
WORST_ERROR = 100.0


class SearchModel:
    """What the sampler and the confirmation share. `known` gives configurations that the space may propose.

    With them a resumed search, which has proposed nothing yet, fits the same kernel as an undisturbed one.
    """

    def __init__(
        self, known: Callable[[], list[TrialConfig]] = list, worst_error: float = WORST_ERROR, prior: Prior = PRIOR
    ) -> None:
        self._make_known, self._worst_error, self._prior = known, worst_error, prior
        self.finished: list[Trial] = []
        self._points: list[tuple[float, float]] = []
        self._deliverable: dict[str, TrialConfig] = {}
        self._stopped: list[Trial] = []
        self._kernel_params: tuple[int, KernelParams | None] = (0, None)
        self._last: tuple[int, Surrogate] | None = None

    @cached_property
    def _known(self) -> list[TrialConfig]:
        return self._make_known()

    @property
    def ready(self) -> bool:
        """Whether enough trials have finished for a surrogate."""
        return len(self.finished) >= MIN_TRIALS

    def observe(self, trial: Trial, expected_final: float | None = None) -> None:
        """Add an ended trial; a stopped one counts with `expected_final`, one that broke down with the worst error."""
        broken = trial.full_horizon and trial.status in (Status.DIVERGED, Status.OUT_OF_MEMORY)
        error = self._worst_error if broken else expected_final
        trial = trial if error is None else replace(trial, status=Status.COMPLETE, error=error)
        if trial.finished:
            self.finished.append(trial)
            self._points.append((float(trial.error or 0.0), trial.compute))
            if error is None:
                self._deliverable.setdefault(trial.config_id, trial.config)
        elif trial.status is Status.STOPPED:
            self._stopped.append(trial)

    def deliverable(self, pending: Sequence[TrialConfig] = ()) -> list[TrialConfig]:
        """Return the configurations that were trained to their end, or that are pending."""
        observed = {t.config_id for t in self._observed()}
        found = [config for name, config in self._deliverable.items() if name in observed]
        return list({config.identity: config for config in (*found, *pending)}.values())

    @property
    def delivered(self) -> dict[str, TrialConfig]:
        """The configurations that were trained to their end at least once, by id."""
        return self._deliverable

    def surrogate(self, pending: Sequence[Trial] = ()) -> Surrogate:
        """Return the posterior; pending trials and stopped ones count with their posterior means."""
        if self._last is None or self._last[0] != len(self.finished):
            self._last = len(self.finished), self._fit()
        waiting = [*self._stopped[-MAX_PENDING:], *pending][-MAX_PENDING:]
        return self._last[1].condition_on([t.config for t in waiting], [t.seed for t in waiting])

    def _fit(self) -> Surrogate:
        fit = partial(fit_surrogate, known=self._known, prior=self._prior, smoothness=EXPLORING)
        fitted_at, kernel_params = self._kernel_params
        if fitted_at != (fitted_at := _last_fit(len(self.finished))):
            kernel_params = fit(self.finished[:fitted_at]).kernel_params
            self._kernel_params = (fitted_at, kernel_params)
        return fit(self._observed(), kernel_params=kernel_params)

    def _observed(self) -> list[Trial]:
        """Return at most `MAX_OBSERVATIONS` finished trials: the front as measured, the baselines, then the latest."""
        if len(self.finished) <= MAX_OBSERVATIONS:
            return self.finished
        front = pareto.nondominated(self._points)
        first = [i for i, t in enumerate(self.finished) if front[i] or t.config.is_base][:MAX_OBSERVATIONS]
        chosen = set(first)
        latest = (i for i in reversed(range(len(self.finished))) if i not in chosen)
        return [self.finished[i] for i in sorted([*first, *islice(latest, MAX_OBSERVATIONS - len(first))])]


def _last_fit(count: int) -> int:
    """Return the number of trials at which the kernel was last fitted: every one, then at each tenth more.

    >>> [_last_fit(n) for n in (8, 19, 22, 23, 10_000)]
    [8, 19, 22, 22, 9535]
    """
    at = min(count, REFIT_UNTIL)
    while (following := at + max(at // 10, 1)) <= count and at >= REFIT_UNTIL:
        at = following
    return at
