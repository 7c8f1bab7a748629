"""The surrogate of a running search: it observes trials as they end, and is fitted again as they grow in number."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from rst_tune.analysis.features import FeatureEncoding
from rst_tune.analysis.surrogate import MAX_FITTED, MIN_TRIALS, PRIOR, KernelParams, Surrogate, fit_surrogate, thinned
from rst_tune.records import Prior, Status, Trial, TrialConfig

# Beyond this many finished trials the kernel is fitted again only when their number has grown by a tenth, so that a
# proposal takes as long after 20,000 trials as after 200.
REFIT_UNTIL = 20
# Of more pending trials than this the latest are used.
MAX_PENDING = 100
# Trainings are proposed by a process whose length scale is this much shorter than that of the one that errors are
# predicted by. A smooth one takes less luck for a difference, but looks less far beyond what it has (docs/log.md).
ROUGHNESS = 3.0
# What a training that diverged or ran out of memory counts as, where the metric is an error in percent.
WORST_ERROR = 100.0


class SearchModel:
    """What the sampler and the confirmation share. `encoding` is that of everything that the space may propose.

    With it a resumed search, which has proposed nothing yet, fits the same kernel as an undisturbed one.
    """

    def __init__(
        self,
        encoding: Callable[[], FeatureEncoding | None] = lambda: None,
        worst_error: float = WORST_ERROR,
        prior: Prior = PRIOR,
    ) -> None:
        self._encoding, self._worst_error = encoding, worst_error
        amplitude, noise, scale, length, share = prior.kernel
        self._prior = prior.model_copy(update={"kernel": (amplitude, noise, scale, length / ROUGHNESS, share)})
        self.finished: list[Trial] = []
        self.delivered: dict[str, TrialConfig] = {}
        """The configurations that were trained to their end at least once, by id."""
        self._kernel_params: tuple[int, KernelParams | None] = (0, None)
        self._used: list[Trial] = []
        self._last: tuple[int, Surrogate] | None = None

    @property
    def ready(self) -> bool:
        """Whether enough trials have finished for a surrogate."""
        return len(self.finished) >= MIN_TRIALS

    def observe(self, trial: Trial, expected_final: float | None = None) -> None:
        """Add an ended trial; a stopped one counts with `expected_final`, if any, a broken one with the worst error."""
        broken = trial.full_horizon and trial.status in (Status.DIVERGED, Status.OUT_OF_MEMORY)
        error = self._worst_error if broken else expected_final
        trial = trial if error is None else replace(trial, status=Status.COMPLETE, error=error)
        if trial.finished:
            self.finished.append(trial)
            if error is None:
                self.delivered.setdefault(trial.config_id, trial.config)

    def deliverable(self, pending: Sequence[TrialConfig] = ()) -> list[TrialConfig]:
        """Return the observed configurations that were trained to their end, and the pending ones."""
        names = dict.fromkeys(t.config_id for t in self._used)
        found = [self.delivered[name] for name in names if name in self.delivered]
        return list({config.identity: config for config in (*found, *pending)}.values())

    def surrogate(self, pending: Sequence[Trial] = ()) -> Surrogate:
        """Return the posterior; pending trials count with their posterior means."""
        if self._last is None or self._last[0] != len(self.finished):
            self._last = len(self.finished), self._fit()
        latest = pending[-MAX_PENDING:]
        return self._last[1].condition_on([t.config for t in latest], [t.seed for t in latest])

    def _fit(self) -> Surrogate:
        encoding = self._encoding()
        fitted_at, kernel_params = self._kernel_params
        if fitted_at != (fitted_at := _last_fit(len(self.finished))):
            used = thinned(self.finished[:fitted_at], MAX_FITTED)
            kernel_params = fit_surrogate(used, encoding=encoding, prior=self._prior).params
            self._kernel_params = (fitted_at, kernel_params)
        self._used = thinned(self.finished, MAX_FITTED)
        return fit_surrogate(self._used, kernel_params=kernel_params, encoding=encoding, prior=self._prior)


def _last_fit(count: int) -> int:
    """Return the number of trials at which the kernel was last fitted: every one, then at each tenth more.

    >>> [_last_fit(n) for n in (8, 19, 22, 23, 10_000)]
    [8, 19, 22, 22, 9535]
    """
    at = min(count, REFIT_UNTIL)
    while (following := at + max(at // 10, 1)) <= count and at >= REFIT_UNTIL:
        at = following
    return at
