"""MLflow: one parent run per search, one child run per trial.

The event log (`rst_tune.records`) is the only truth. A search appends events to it, and this room sends them to
MLflow in order and once, in the background. So an unreachable server does not block the search and nothing is lost,
and an empty store is filled again by `sync`.
"""

from rst_tune.tracking.client import check_host, check_store, check_uri, public_uri
from rst_tune.tracking.models import log_models
from rst_tune.tracking.syncer import SyncResult
from rst_tune.tracking.tracker import Tracker, has_results, log_results, sync
from rst_tune.tracking.ui import UiLinks, serve_ui

__all__ = [
    "SyncResult",
    "Tracker",
    "UiLinks",
    "check_host",
    "check_store",
    "check_uri",
    "has_results",
    "log_models",
    "log_results",
    "public_uri",
    "serve_ui",
    "sync",
]
