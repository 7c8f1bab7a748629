"""The command line as a person meets it: help, exit codes, JSON, and the mistakes people make."""

import json
import logging
import os
import shlex
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

import rst_tune
from rst_tune import api, cli
from tests.analysis.synthetic import write_search

COMMANDS = sorted(command.name or command.callback.__name__ for command in cli.app.registered_commands)


def call(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["rst-tune", *map(str, words)])
    try:
        return cli._invoke()
    except SystemExit as end:
        return int(end.code or 0)


@pytest.fixture
def search(tmp_path):
    directory = tmp_path / "search"
    write_search(directory)
    return directory


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_line_of_help_and_an_example(command, monkeypatch, capfd):
    assert call(monkeypatch, command, "--help") == 0
    shown = capfd.readouterr().out
    assert "Example: rst-tune" in shown
    assert f"rst-tune {command.rstrip('_')}" in shown


def test_the_commands_are_those_of_the_design():
    names = {name.rstrip("_") for name in COMMANDS}
    assert names == {
        *("run", "plan", "train", "status", "front", "report", "compare", "export", "review", "paper", "list"),
        *("doctor", "sync", "watch"),
    }


def test_front_as_json_is_one_document_with_the_promised_fields(search, monkeypatch, capfd):
    assert call(monkeypatch, "front", search, "--json") == 0
    rows = json.loads(capfd.readouterr().out)
    promised = {
        *("family", "schedule", "rule", "gamma_gnr", "gamma_rst", "extra_propagation", "error_mean", "error_sem"),
        *("seeds", "p_nondominated", "test_error_mean", "test_error_sem", "trial_key", "horizon", "compute"),
    }
    assert rows
    assert all(promised <= row.keys() for row in rows)
    costs = [row["extra_propagation"] for row in rows]
    assert costs == sorted(costs)


def test_front_as_csv_has_one_line_per_point(search, monkeypatch, capfd):
    call(monkeypatch, "front", search, "--json")
    points = json.loads(capfd.readouterr().out)
    assert call(monkeypatch, "front", search, "--csv") == 0
    assert len(capfd.readouterr().out.splitlines()) == len(points) + 1


@pytest.mark.parametrize("words", [["status"], ["front"], ["export", "--format", "json"], ["report"]])
def test_commands_on_a_search_that_is_there(words, search, monkeypatch, capfd):
    assert call(monkeypatch, words[0], search, *words[1:]) == 0
    assert capfd.readouterr().out.strip()


@pytest.mark.parametrize("form", ["csv", "parquet", "json"])
def test_export_writes_every_trial(form, search, monkeypatch, capfd):
    assert call(monkeypatch, "export", search, "--format", form) == 0
    path = capfd.readouterr().out.strip()
    assert path.endswith(f"trials.{form}")
    if form == "json":
        with open(path) as file:
            assert len(json.load(file)) == len(api.find_search(search).trials)


def test_status_as_json(search, monkeypatch, capfd):
    assert call(monkeypatch, "status", search, "--json") == 0
    state = json.loads(capfd.readouterr().out)
    assert "tracking_uri" in state
    assert sum(state["counts"].values()) == len(api.find_search(search).trials)


def test_status_names_a_store_whose_credentials_are_not_kept(search, monkeypatch, capfd):
    (search / "tracking").mkdir()
    kept = {"uri": "http://***@mlflow.example:5000", "experiment": None, "explicit": True}
    (search / "tracking" / "target.json").write_text(json.dumps(kept))
    assert call(monkeypatch, "status", search, "--json") == 0
    assert "tracking_uri" in json.loads(capfd.readouterr().out)


@pytest.mark.parametrize("kind", sorted(api.LISTINGS))
def test_lists_have_one_line_per_entry(kind, monkeypatch, capfd):
    assert call(monkeypatch, "list", kind, "--json") == 0
    entries = json.loads(capfd.readouterr().out)
    assert entries
    assert all(entry["description"] for entry in entries), [e["name"] for e in entries if not e["description"]]


def test_the_list_of_rules_has_cost_options_and_citation():
    command = [sys.executable, "-m", "rst_tune.cli", "list", "rules"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "200"})
    header, *rows = done.stdout.splitlines()
    assert header.split() == ["name", "cost", "description", "options", "citation"]
    looksam = next(row for row in rows if row.startswith("looksam"))
    assert all(part in looksam for part in (" 0.2 ", "k=5, alpha=0.7", "Liu et al., CVPR 2022"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "experiments/digist.yaml"], "did you mean the shipped 'digits'?"),
        (["run", "digist"], "did you mean 'digits'?"),
        (["plan", "digits", "--set", "stoping.name=asha"], "did you mean 'stopping'?"),
        (["plan", "digits", "--set", "task.recipe.epochs=0"], "task.recipe.epochs"),
        (["plan", "digits", "--set", "budget.pairs"], "--set takes key=value"),
        (["train", "digits", "--schedule", "constnat:p=0.5"], "did you mean 'constant'?"),
        (["train", "digits", "--schedule", "constant:p=1.5"], "1.5"),
        (["train", "digits", "--rule", "sma"], "did you mean 'sam'?"),
        (["list", "schedule"], "did you mean 'schedules'?"),
        (["front", "--at", "cheap"], "Invalid value for '--at'"),
        (["front", "--json", "--csv"], "leave one of them out"),
        (["watch", "--port", "99999"], "Invalid value for '--port'"),
        (["run", "digits", "--no-such-option"], "--no-such-option"),
        (["run", "digits", "--from", "no-such-search"], "no-such-search is no directory: correct the path"),
        (["plan", "digits", "--from", "docs"], "has a file events.jsonl, but docs has none"),
        (["paper", "no-such-table"], "The choices are"),
    ],
)
def test_mistakes_exit_2_and_say_what_to_do(words, said, monkeypatch, capfd):
    assert call(monkeypatch, *words) == 2
    shown = capfd.readouterr()
    assert said in shown.err
    assert not shown.out


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("task.recipe.batch_size=100000", "must be at most the number of training images"),
        ("resources.workers=3", "must be a multiple of the 3 processes"),
        ("task.recipe.compile=nonsense", "unknown torch.compile backend"),
        ("task.data.augment=[resized-crop]", "works on images read from files"),
        ("space=", "space: this field is needed"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_task_that_cannot_be_trained_is_refused_by_every_command_before_anything_starts(
    command, setting, said, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, command, "digits", "--set", setting) == 2
    assert said in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("tracking.uri=ftp://host/x", "a tracking URI is http(s)://"),
        ("tracking.uri=some/folder", "a tracking URI is http(s)://"),
        ("sampler.storage=sqlite:////no/such/folder/x.db", "must be the URL of a database that answers"),
        ("sampler.storage=nonsense", "must be the URL of a database that answers"),
        ("sampler.storage=postgresql://ann:geheim@127.0.0.1:9/x", "://***@127.0.0.1:9/x does not"),
    ],
)
def test_stores_that_cannot_be_used_are_refused_before_a_cluster_is_started(
    setting, said, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "run", "digits", "--set", setting) == 2
    shown = capfd.readouterr().err
    assert said in shown
    assert "geheim" not in shown
    assert not list(tmp_path.rglob("events.jsonl"))


@pytest.mark.parametrize("place", ["a file", "a file/below", "/proc/nowhere", "x" * 300])
def test_a_place_that_cannot_be_written_to_is_refused_before_anything_is_trained(place, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a file").write_text("mine")
    for words in (["run", "digits", "--output", place], ["train", "digits", "--save", f"{place}/model.pt"]):
        assert call(monkeypatch, *words) == 2
        shown = capfd.readouterr()
        assert "must be a directory that can be written to" in shown.err
        assert "Traceback" not in shown.err
    assert [p.name for p in tmp_path.iterdir()] == ["a file"]


@pytest.mark.parametrize(
    "words",
    [
        ["train", "digits", "--save", "folder"],
        ["report", "search", "--output", "folder"],
        ["export", "search", "--output", "folder"],
        ["compare", "search", "search", "--output", "folder"],
        ["report", "search", "--output", "/proc/nowhere/page.html"],
        ["export", "search", "--output", "/proc/nowhere/trials.csv"],
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_work(words, search, monkeypatch, capfd):
    monkeypatch.chdir(search.parent)
    (search.parent / "folder").mkdir()
    assert call(monkeypatch, *words) == 2
    shown = capfd.readouterr()
    assert words[-1] in shown.err or "/proc/nowhere" in shown.err
    assert not shown.out
    assert not list((search.parent / "folder").iterdir())


def test_the_version_is_printed(monkeypatch, capfd):
    assert call(monkeypatch, "--version") == 0
    assert capfd.readouterr().out.strip() == rst_tune.__version__


def test_an_error_before_the_log_file_is_open_is_one_message(tmp_path, monkeypatch, capfd):
    def stopped(*_, **__):
        raise OSError("the cable is loose")

    monkeypatch.setattr(api, "search", stopped)
    monkeypatch.setattr(logging.getLogger("rst_tune"), "handlers", [])
    assert call(monkeypatch, "run", "digits", "--output", tmp_path) == 1
    shown = capfd.readouterr().err
    assert "error: OSError: the cable is loose" in shown
    assert "resume with: rst-tune run digits" in shown
    assert "Traceback" not in shown


def test_a_search_without_a_front_exits_1(tmp_path, monkeypatch, capfd):
    def search(*_, on_result, **__):
        on_result(found := SimpleNamespace(points=()))
        return found

    monkeypatch.setattr(api, "search", search)
    monkeypatch.setattr(api, "table", lambda *_, **__: "No answer yet")
    assert call(monkeypatch, "run", "digits", "--output", tmp_path) == 1
    assert "report: " in capfd.readouterr().out


def test_wrong_indentation_names_the_line(tmp_path, monkeypatch, capfd):
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\ntask:\n  data: {name: digits}\n model: {name: cnn-tiny}\n")
    assert call(monkeypatch, "plan", path) == 2
    said = capfd.readouterr().err
    assert "line 4" in said
    assert "indentation" in said


def test_an_unknown_family_in_a_space_names_file_field_and_the_nearest(tmp_path, monkeypatch, capfd):
    path = tmp_path / "mine.yaml"
    path.write_text("task: {}\nbudget: {trials: 2}\nspace: {families: [constnat]}\n")
    assert call(monkeypatch, "plan", path) == 2
    said = capfd.readouterr().err
    assert "mine.yaml" in said
    assert "did you mean 'constant'?" in said


def test_a_warning_is_one_line_without_a_place_in_the_code(search):
    with (search / "events.jsonl").open("a") as file:
        file.write("damage\n")
    command = [sys.executable, "-m", "rst_tune.cli", "status", str(search)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.startswith(f"warning: {search}/events.jsonl:")
    assert len(done.stderr.splitlines()) == 1


def test_no_search_yet_says_how_to_start_one(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "front") == 2
    assert "rst-tune run digits" in capfd.readouterr().err


def test_interruption_exits_130_with_the_command_that_resumes(monkeypatch, capfd):
    monkeypatch.setattr(api, "search", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    assert call(monkeypatch, "run", "digits", "--set", "seed=3") == 130
    assert "rst-tune run digits --set seed=3" in capfd.readouterr().err


def test_the_command_that_resumes_has_every_option_quoted_for_the_shell(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(api, "search", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    words = ["run", "digits", "--set", "description=a b", "--output", f"{tmp_path}/my output", "--address", "a;b"]
    words += ["--register", "my model"]
    assert call(monkeypatch, *words) == 130
    command = capfd.readouterr().err.split("Resume with: ")[1].strip()
    assert shlex.split(command) == ["rst-tune", *words]


def test_an_interruption_while_the_process_ends_is_no_traceback():
    code = (
        "import atexit, os, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT)); from rst_tune.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGINT
    assert done.stderr == ""


def test_work_that_fails_exits_1_with_one_line(search, monkeypatch, capfd):
    monkeypatch.setattr(api, "write_report", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    assert call(monkeypatch, "report", search) == 1
    said = capfd.readouterr().err
    assert "No space left on device" in said
    assert "Traceback" not in said


def test_plan_says_what_the_search_costs_against_the_papers_grid(monkeypatch, capfd):
    assert call(monkeypatch, "plan", "digits", "--json", "--no-measure") == 0
    made = json.loads(capfd.readouterr().out)
    assert made["pairs_search"] + made["pairs_confirm"] == pytest.approx(made["pairs_budget"])
    assert made["device_hours"] is None
    # Every group of the paper, five seeds: 60 configurations whose mean extra propagation is close to one half.
    steps = made["epochs"] * made["steps_per_epoch"]
    assert made["paper_grid_pairs"] == pytest.approx(60 * 5 * steps * 1.5, rel=0.02)


def test_earlier_searches_are_named_by_plan_and_in_the_command_that_resumes(search, tmp_path, monkeypatch, capfd):
    other = tmp_path / "another one"
    write_search(other, trials=8, name="another", seed=1)
    log = (other / "events.jsonl").read_text()
    (other / "events.jsonl").write_text(log.replace("0" * 12, "1" * 12))
    assert call(monkeypatch, "plan", "digits", "--no-measure", "--from", search, "--from", other) == 0
    shown = " ".join(capfd.readouterr().out.split())
    assert "prior learnt from synthetic (" in shown
    assert "another (" in shown
    monkeypatch.setattr(api, "search", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    assert call(monkeypatch, "run", "digits", "--from", search, "--from", other) == 130
    assert f"rst-tune run digits --from {search} --from '{other}'" in capfd.readouterr().err


def test_report_as_json_names_the_file(search, monkeypatch, capfd):
    assert call(monkeypatch, "report", search, "--json") == 0
    assert json.loads(capfd.readouterr().out) == {"report": str(search / "report.html")}
    assert (search / "report.html").stat().st_size > 1000


def test_front_shows_every_point_when_asked(search, monkeypatch, capfd):
    limits = []
    monkeypatch.setattr(api, "table", lambda *_, limit=12, **__: limits.append(limit) or "")
    assert call(monkeypatch, "front", search) == 0
    assert call(monkeypatch, "front", search, "--all") == 0
    assert limits == [12, None]


def test_train_accepts_one_epoch_and_writes_the_weights(tmp_path, monkeypatch, capfd):
    path = tmp_path / "with a space" / "weights.pt"
    words = ["train", "digits", "--set", "task.recipe.epochs=1", "--set", "task.data.train_size=128"]
    assert call(monkeypatch, *words, "--save", path, "--json") == 0
    assert json.loads(capfd.readouterr().out)["model"] == str(path)
    weights = torch.load(path, weights_only=True)
    assert all(isinstance(value, torch.Tensor) for value in weights.values())


def test_a_diverged_training_exits_1_and_writes_no_weights(tmp_path, monkeypatch, capfd):
    path = tmp_path / "weights.pt"
    words = ["train", "digits", "--set", "task.recipe.epochs=2", "--set", "task.recipe.lr=1e30", "--json"]
    assert call(monkeypatch, *words, "--save", path) == 1
    assert json.loads(capfd.readouterr().out)["status"] == "diverged"
    assert not path.exists()


def test_train_prints_error_pairs_and_sharpness(monkeypatch, capfd):
    words = ["train", "digits", "--set", "task.recipe.epochs=2", "--gamma-gnr", "2", "--json"]
    assert call(monkeypatch, *words) == 0
    result = json.loads(capfd.readouterr().out)
    assert result["status"] == "complete"
    assert result["pairs"] >= result["epochs"] * 15
    assert {"validation_error", "sharpness", "gradient_norm"} <= result.keys()
