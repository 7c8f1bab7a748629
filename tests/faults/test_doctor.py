"""`rst-tune doctor` on a real cluster of two nodes: all well, and each thing that can be wrong."""

import json
from dataclasses import asdict

import pytest

from rst_tune import api
from rst_tune.report import tables
from rst_tune.tuning import doctor
from tests.faults.harness import add_node, write_experiment


@pytest.fixture(scope="module")
def two_nodes(cluster):
    node = add_node(cluster, num_cpus=1, num_gpus=1, node_ip_address="127.0.0.4")
    yield cluster.address
    cluster.remove_node(node)


def wrong(checks) -> dict[tuple[str, str], str]:
    return {(check.name, check.where): check.remedy for check in checks if not check.ok}


def test_every_node_is_asked_and_nothing_is_left_behind(two_nodes, tmp_path):
    experiment = api.load_experiment(str(write_experiment(tmp_path)))
    checks = api.doctor(experiment, address=two_nodes, output=tmp_path / "new" / "output")
    assert wrong(checks) == {}
    places = {check.where for check in checks} - {doctor.DRIVER, "cluster"}
    assert len(places) == 2
    for where in places:
        names = [check.name for check in checks if check.where == where]
        assert names == ["versions", "devices", "storage", "tracking", "data", "model", "clock"]
    assert not (tmp_path / "new").exists()
    json.dumps([asdict(check) for check in checks])
    assert tables.checks_table([asdict(check) for check in checks]).row_count == len(checks)


def test_what_is_wrong_is_said_with_what_to_do(two_nodes, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://user:secret@127.0.0.1:9")  # nobody listens there
    monkeypatch.setattr(doctor, "MAX_SKEW_SECONDS", 0.0)
    monkeypatch.setattr(doctor, "_versions", lambda: {"python": "2.7", "torch": "1", "ray": "1", "rst_tune": "0"})
    settings = [
        "tracking.enabled=true",
        "resources.gpus_per_worker=1",
        "resources.workers=5",
        "task.data={name: npz, root: /nowhere.npz}",
    ]
    experiment = api.load_experiment(str(write_experiment(tmp_path)), settings)
    found = api.doctor(experiment, address=two_nodes, output=tmp_path / "output")
    failed = wrong(found)
    assert {name for name, where in failed if where == doctor.DRIVER} == {"data", "tracking"}
    assert ("room", "cluster") in failed
    assert {name for name, where in failed if where.count(" ") == 2} == {"versions", "devices", "tracking", "clock"}
    assert all(failed.values()), "every failed check says what to do"
    assert "secret" not in str(found)


def test_a_model_that_only_the_driver_can_import_is_said(two_nodes, tmp_path, monkeypatch):
    only_here = tmp_path / "only_here"
    only_here.mkdir()
    (only_here / "driver_model.py").write_text("from tests.faults.fault_models import slow\n")
    monkeypatch.syspath_prepend(only_here)
    experiment = api.load_experiment(str(write_experiment(tmp_path)), ["task.model.name=driver_model:slow"])
    failed = wrong(api.doctor(experiment, address=two_nodes, output=tmp_path / "output"))
    assert [name for name, where in failed] == ["model", "model"], "the two nodes, and not the driver"
    assert doctor.DRIVER not in {where for _, where in failed}


def test_an_output_that_cannot_be_made_is_said(tmp_path):
    experiment = api.load_experiment(str(write_experiment(tmp_path)))
    (tmp_path / "file").write_text("")
    checks = api.doctor(experiment, output=tmp_path / "file" / "output")
    assert [name for name, _ in wrong(checks)] == ["storage"]
