"""What happened in a search: configurations, trials, typed events, and the append-only log they are kept in.

The event log is the only truth: everything else (the Optuna study, MLflow, fronts, reports) is derived from it.
Errors are minimized, in the unit of the search's `Metric`. This room imports no other room.
"""

from rst_tune.records.config import (
    COST_WORDS,
    Cost,
    CostWords,
    RuleTimes,
    SchedulePreview,
    TrialConfig,
    config_id,
    trial_key,
)
from rst_tune.records.events import (
    EpochsReported,
    Event,
    PhaseEntered,
    ReferenceSet,
    RungReached,
    SearchStarted,
    TestRead,
    TrialEnded,
    TrialSampled,
    TrialStarted,
)
from rst_tune.records.log import LOCK_NAME, LOG_NAME, EventLog, load, read_events
from rst_tune.records.metric import PERCENT_ERROR, Metric
from rst_tune.records.prior import EarlierSearch, Prior
from rst_tune.records.state import Search, SearchState
from rst_tune.records.trial import Phase, Role, Status, Trial, devices_per_trial, scored_trials

__all__ = [
    "COST_WORDS",
    "LOCK_NAME",
    "LOG_NAME",
    "PERCENT_ERROR",
    "Cost",
    "CostWords",
    "EarlierSearch",
    "EpochsReported",
    "Event",
    "EventLog",
    "Metric",
    "Phase",
    "PhaseEntered",
    "Prior",
    "ReferenceSet",
    "Role",
    "RuleTimes",
    "RungReached",
    "SchedulePreview",
    "Search",
    "SearchStarted",
    "SearchState",
    "Status",
    "TestRead",
    "Trial",
    "TrialConfig",
    "TrialEnded",
    "TrialSampled",
    "TrialStarted",
    "config_id",
    "devices_per_trial",
    "load",
    "read_events",
    "scored_trials",
    "trial_key",
]
