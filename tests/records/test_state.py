"""The state that a sequence of events leads to."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rst_tune.records import (
    EpochsReported,
    Phase,
    PhaseEntered,
    ReferenceSet,
    Role,
    RungReached,
    SearchStarted,
    SearchState,
    Status,
    TestRead,
    TrialEnded,
    TrialSampled,
    TrialStarted,
    scored_trials,
)
from rst_tune.records.events import parse_event
from tests.analysis.builders import trial
from tests.analysis.synthetic import make_config, make_preview

CONFIG = make_config("step-up", 0.5, 1.0, "asam")
SAMPLED = TrialSampled(
    time=1.0, key="a", number=0, role=Role.SEARCH, config_id="c", config=CONFIG, seed=0, epochs=20, full_horizon=True,
    preview=make_preview(CONFIG),
)  # fmt: skip
EVENTS = [
    SearchStarted(time=0.5, search_id="s", name="n", experiment={"resources": {"gpus_per_worker": 0.25}}),
    SAMPLED,
    TrialStarted(time=2.0, key="a", node="n0", worker="1", ray_trial="r"),
    EpochsReported(time=3.0, key="a", first_epoch=1, metrics={"validation_error": [9.0, 8.0]}),
    RungReached(time=4.0, key="a", epoch=2, error=8.0, stop=True, reason="dominated"),
    ReferenceSet(time=5.0, error=5.0, compute=2.2),
    PhaseEntered(time=6.0, phase=Phase.CONFIRM, rung_correlations={2: 0.5, 7: None}),
    TrialEnded(time=7.0, key="a", status=Status.STOPPED, error=8.0, pairs=3.0, seconds=3600.0, metrics={"loss": 1.0}),
    TestRead(time=8.0, key="a", error=4.0),
]


def state_of(*events):
    state = SearchState(Path())
    for event in events:
        state.apply(event)
    return state


def only(*events):
    (found,) = state_of(SAMPLED, *events).search().trials
    return found


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.kind)
def test_every_event_is_the_same_after_json(event):
    assert parse_event(json.loads(json.dumps(event.to_dict()))) == event


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"event": "nonsense"},
        {"event": "end", "key": "a"},
        {"event": "end", "key": "a", "status": "no such status"},
        {"event": "trial", "key": "a", "config": 3},
        {"event": "search", "experiment": {"budget": "much"}},
        {"event": "search", "experiment": {"resources": {"workers": "many"}}},
    ],
)
def test_what_is_no_event_raises_a_value_error(data):
    with pytest.raises(ValueError, match=r"\w"):
        parse_event(data)


def test_the_events_make_the_search():
    search = state_of(*EVENTS).search()
    (found,) = search.trials
    assert (search.name, search.phase, search.reference, search.updated_at) == ("n", Phase.CONFIRM, (5.0, 2.2), 8.0)
    assert (found.sampled_at, found.started_at, found.ended_at) == (1.0, 2.0, 7.0)
    assert (found.status, found.error, found.test_error, found.rungs) == (Status.STOPPED, 8.0, 4.0, {2: 8.0})
    assert found.stopped_by_rung
    assert (found.history, found.metrics) == ({"validation_error": [9.0, 8.0]}, {"loss": 1.0})
    assert (search.pairs, search.device_hours) == (3.0, 0.25)


def test_epochs_that_are_reported_again_replace_the_earlier_ones():
    first = EpochsReported(key="a", first_epoch=1, metrics={"loss": [3.0, 2.0, 1.0]})
    again = EpochsReported(key="a", first_epoch=2, metrics={"loss": [2.5], "norm": [7.0]})
    assert only(first, again).history["loss"] == [3.0, 2.5]


@pytest.mark.parametrize(("status", "after"), [(Status.LOST, Status.RUNNING), (Status.COMPLETE, Status.COMPLETE)])
def test_only_a_lost_trial_runs_again(status, after):
    found = only(TrialEnded(time=2.0, key="a", status=status, error=3.0), TrialStarted(time=3.0, key="a"))
    assert found.status is after
    assert (found.ended_at is None) == (after is Status.RUNNING)


def test_a_trial_sampled_twice_is_one_trial():
    assert len(state_of(SAMPLED, replace(SAMPLED, number=5)).trials) == 1


def test_two_replicates_replace_the_searching_trial():
    search, one, two = trial(0.5, 0, 2.0), trial(0.5, 100, 3.0, "confirm"), trial(0.5, 101, 3.1, "confirm")
    assert scored_trials([search, one]) == [search, one]
    assert scored_trials([search, one, two]) == [one, two]
