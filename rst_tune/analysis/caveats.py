"""What is missing or uncertain in a search, as sentences for terminal, page and JSON."""

from collections import Counter
from collections.abc import Sequence

from rst_tune.analysis.replicates import CONFIRMED, ConfigSummary
from rst_tune.records import Search, Status

Rows = Sequence[ConfigSummary]
_LOSSES = {
    Status.DIVERGED: "diverged",
    Status.OUT_OF_MEMORY: "ran out of memory",
    Status.FAILED: "failed",
    Status.LOST: "were lost with their worker",
}


def caveats(search: Search, rows: Rows) -> list[str]:
    """Return the caveats of a search and its summaries: trials first, then noise, then baselines."""
    notes = _of_trials(search, rows) + (_of_noise(rows) + _of_baselines(search, rows) if rows else [])
    return [text for applies, text in notes if applies]


def _of_trials(search: Search, rows: Rows) -> list[tuple[bool, str]]:
    total, counts = len(search.trials), Counter(t.status for t in search.trials)
    ended = sum(t.status.has_ended for t in search.trials)
    unusable = [t for t in search.trials if t.status is Status.COMPLETE and t.full_horizon and not t.finished]
    costless = sum(not t.has_cost for t in unusable)
    errorless = len(unusable) - costless
    return [
        (not total, "the search is empty: no trial was sampled"),
        (
            total > 0 and not search.done,
            f"the search is not done (phase {search.phase}, {ended} of {total} trials ended)",
        ),
        *((counts[status] > 0, f"{counts[status]} of {total} trials {text}") for status, text in _LOSSES.items()),
        (errorless > 0, f"{errorless} complete trials have no finite error and were left out"),
        (costless > 0, f"{costless} complete trials have no finite cost and were left out"),
        (total > 0 and not rows, "no trial was trained to its end, so there is no front"),
    ]


def _of_noise(rows: Rows) -> list[tuple[bool, str]]:
    if not any(row.seeds_total > 1 for row in rows):
        return [(True, "one seed per configuration: the noise is unknown, and the front is likely lucky")]
    points = [row for row in rows if row.on_front]
    confirmed = sum(p.verdict == "confirmed" for p in points)
    single = [row for row in rows if row.seeds_total == 1]
    better = sum(
        any(row.compute <= p.compute and row.error_posterior < p.error_posterior for p in points) for row in single
    )
    return [
        (True, f"{confirmed} of {len(points)} points of the front are confirmed (P(non-dominated) >= {CONFIRMED})"),
        (
            bool(single),
            f"{len(single)} of {len(rows)} configurations have one seed; P(non-dominated) takes their posterior means, "
            "not that one run",
        ),
        (
            better > 0 and not any(p.seeds_total == 1 for p in points),
            f"{better} of them {'looks' if better == 1 else 'look'} better than a point of the front, likely by luck: "
            "run a second seed",
        ),
    ]


def _of_baselines(search: Search, rows: Rows) -> list[tuple[bool, str]]:
    several = len(rows) > 1
    untested = all(row.test_error_mean is None for row in rows if row.on_front)
    one_cost, one_error = len({r.compute for r in rows}) == 1, len({r.error_mean for r in rows}) == 1
    lengths = {r.config.horizon for r in rows}
    base_lengths = {r.config.horizon for r in rows if r.config.is_base}
    return [
        (
            len(lengths) > 1 and len(base_lengths) == 1,
            "the base optimizer was trained at one length only: what training longer would give is not known",
        ),
        (not base_lengths, "the base optimizer was not run: there is no zero to compare with"),
        (not any(r.config.is_sam for r in rows), "SAM was not run: there is no full cost to compare with"),
        (search.reference is None, "the reference point is derived from the trials, not fixed before them"),
        (untested, "the test set has not been read: errors are on the validation split"),
        (not several, "one configuration only: a front of one point shows no trade-off"),
        (several and one_cost, "all configurations cost the same: there is no trade-off to show"),
        (several and one_error, "all configurations have the same error: the cheapest wins"),
    ]
