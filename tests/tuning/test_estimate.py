"""What `plan` says of a search's cost, with a known time per pair."""

import pytest

from rst_tune.errors import InputError
from rst_tune.tuning import estimate as module
from rst_tune.tuning.estimate import estimate
from rst_tune.tuning.experiment import load_experiment
from tests.tuning.test_experiment import SMOKE

SECONDS = 0.01


@pytest.fixture(autouse=True)
def _known_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "measure_pair", lambda experiment, workload: SECONDS)


@pytest.mark.parametrize(
    ("gpus", "workers", "devices"), [(0, 1, 1), (0.25, 1, 0.25), (0.5, 2, 1), (1, 4, 4), (0, 2, 2)]
)
def test_hours_count_the_devices_of_a_trial_and_pairs_follow_from_hours(gpus, workers, devices):
    resources = f"resources={{gpus_per_worker: {gpus}, workers: {workers}}}"
    by_pairs = estimate(load_experiment("digits", [*SMOKE, resources, "budget={pairs: 36000}"]), slots=2)
    assert by_pairs.device_hours == pytest.approx(36000 * SECONDS * devices / 3600)
    assert by_pairs.wall_hours == pytest.approx(36000 * SECONDS / 3600 / 2)
    by_hours = estimate(load_experiment("digits", [*SMOKE, resources, f"budget={{device_hours: {0.1 * devices}}}"]))
    assert by_hours.pairs_budget == pytest.approx(36000)
    assert by_hours.device_hours == pytest.approx(0.1 * devices)


def test_without_a_measurement_hours_are_unknown_and_a_budget_in_hours_is_refused():
    planned = estimate(load_experiment("digits", [*SMOKE, "budget={pairs: 36000}"]), measure=False)
    assert (planned.device_hours, planned.wall_hours, planned.paper_grid_device_hours) == (None, None, None)
    with pytest.raises(InputError, match=r"leave out --no-measure, or give budget\.pairs"):
        estimate(load_experiment("digits", [*SMOKE, "budget={device_hours: 1}"]), measure=False)
