"""The record of a search in MLflow: the only door to it.

MLflow is a projection of the search's own record (`rst_tune.analysis.records`): a search appends events to a
file, and this room brings them to MLflow, in order and once. So a store that is away delays and loses nothing,
and an empty one is filled again by `sync`.
"""

from rst_tune.tracking.cursor import BusyError
from rst_tune.tracking.delivery import Delivered
from rst_tune.tracking.door import quiet
from rst_tune.tracking.models import log_models
from rst_tune.tracking.review import Page, review
from rst_tune.tracking.secrets import scrub, scrub_text
from rst_tune.tracking.tracker import NullTracker, Tracker, TrackerLike, log_results, sync

__all__ = [
    "BusyError",
    "Delivered",
    "NullTracker",
    "Page",
    "Tracker",
    "TrackerLike",
    "log_models",
    "log_results",
    "quiet",
    "review",
    "scrub",
    "scrub_text",
    "sync",
]
