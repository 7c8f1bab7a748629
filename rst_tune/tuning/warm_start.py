"""An experiment that starts from earlier searches: their directories are checked and read before anything runs."""

from collections.abc import Sequence
from pathlib import Path

from rst_tune.analysis.warm_start import learn_prior
from rst_tune.errors import InputError
from rst_tune.records import Search, load
from rst_tune.tuning.experiment import Experiment

__all__ = ["warm_started"]


def warm_started(experiment: Experiment, directories: Sequence[Path | str]) -> Experiment:
    """Return the experiment with the prior that the searches in `directories` inform; without any, as it is.

    The prior is a part of the experiment from then on: the directories are not read again.
    """
    if not directories:
        return experiment
    if experiment.prior is not None:
        raise InputError(
            "a search has one prior, but the experiment has a field prior and earlier searches are given as well: "
            "remove one of them"
        )
    found: dict[str, Search] = {}
    for directory in directories:
        search = _earlier(Path(directory))
        if (same := found.get(search.header.uid)) is not None:
            raise InputError(f"earlier searches must differ, but {directory} is that of {same.directory}: leave it out")
        found[search.header.uid] = search
    return experiment.model_copy(update={"prior": learn_prior(list(found.values()))})


def _earlier(directory: Path) -> Search:
    """Return the search in a directory."""
    if not directory.is_dir():
        raise InputError(
            f"an earlier search is given by its output directory, but {directory} is no directory: correct the path; "
            "to resume a search that was started from it, leave it out"
        )
    search = load(directory)
    if not search.header.search_id:
        raise InputError(
            f"the event log of an earlier search begins with its identity, but that of {directory} has none: give "
            "another search"
        )
    return search
