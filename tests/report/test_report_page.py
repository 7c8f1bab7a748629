"""The page as text: complete, safe, small, and of use when there is little or nothing to show."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import make_config, write_search

from rst_tune.analysis.records import Search, Trial, config_id, load, trial_key
from rst_tune.report import comparison_page, content, page, words

SECTIONS = ("answer", "front", "growth", "schedules", "map", "importance", "questions", "coordinates", "timeline")
HOSTILE = "<script>window.hacked=1</script><img src=x onerror=alert(1)>"


def trial(number: int = 0, error: float | None = 4.0, status: str = "complete", **changes) -> Trial:
    config = make_config("constant", round(0.1 + 0.01 * number, 2), 0.8)
    identity = config_id(config["coordinates"])
    times = {} if status == "waiting" else {"started": 1.0 + number, "node": "n", "worker": "1"}
    ended = {} if status in ("waiting", "running") else {"ended": 5.0 + number}
    names = {"key": trial_key(identity, 20, 0), "config_id": identity, "config": config, "number": number}
    plain = Trial(
        role="search", seed=0, epochs=20, full=True, drawn=0.0, status=status, error=error, **names, **times, **ended
    )
    return replace(plain, **changes)


def made(*trials: Trial, phase: str = "done", **header) -> Search:
    return Search(directory=Path("somewhere"), header=header, trials=trials, phase=phase, updated=100.0)


def data_of(html: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)[1])


POOR = {
    "empty": (made(), "The record holds no trial yet"),
    "one waiting": (made(trial(status="waiting", error=None), phase="search"), "No trial was started yet"),
    "one complete": (made(trial()), "two configurations that differ"),
    "all diverged": (made(*(trial(i, None, "diverged") for i in range(4))), "No configuration was trained to the full"),
    "constant error": (made(*(trial(i) for i in range(12))), "ll errors are equal"),
    "nan": (made(trial(0, float("nan")), trial(1, float("nan"))), "No configuration was trained to the full"),
    "nan among others": (made(trial(0, float("nan")), *(trial(i, 4 + i / 9) for i in range(1, 12))), "no finite error"),
    "unfinished": (made(trial(0), trial(1, None, "running"), phase="search"), "unfinished (search)"),
    "no header": (made(trial()), "the record has no head"),
    "short config": (made(trial(config={"family": "x", "extra_propagation": 0.5})), "holds no sampled curve"),
}


@pytest.mark.parametrize("name", POOR)
def test_a_poor_record_gives_a_whole_page_that_says_what_is_missing(name):
    poor, phrase = POOR[name]
    html = page.render(poor)
    assert all(f'<section id="{section}"' in html for section in (*SECTIONS, "trials", "how"))
    assert phrase in html
    assert len(data_of(html)["trials"]["key"]) == len(poor.trials)


def test_sections_come_in_the_order_a_reader_asks(search):
    found = re.findall(r'<section id="([a-z]+)"', page.render(search))
    assert found == [*SECTIONS, "rungs", "trials", "how"]


def test_the_answer_is_the_first_heading(search):
    html = page.render(search)
    heading = re.search(r"<h1>(.*?)</h1>", html)[1]
    assert heading.startswith("Train with ")
    assert html.index("<h1>") < html.index("<h2>")


def test_every_name_from_a_record_is_text():
    config = {**make_config("constant", 0.5, 1.0), "family": HOSTILE, "rule": HOSTILE}
    config["schedule"] = {"family": HOSTILE, "<b>": HOSTILE}
    bad = [replace(trial(i, 4 + i / 9), config=config, key=f"{HOSTILE}{i}", node=HOSTILE) for i in range(3)]
    hostile = made(*bad, name=HOSTILE, experiment={HOSTILE: {HOSTILE: HOSTILE}})
    for html in (page.render(hostile), comparison_page.render({HOSTILE: hostile, "b": hostile})):
        assert "<script>window" not in html
        assert "<img" not in html
        assert "&lt;script&gt;window" in html


def test_nothing_is_loaded_from_anywhere(search):
    html = page.render(search)
    assert "default-src 'none'" in html
    assert not re.search(r"""<(script|link|img|iframe)[^>]*\s(src|href)=""", html)
    assert all(link.startswith("#") for link in re.findall(r'href="([^"]*)"', html))


def test_the_data_hold_every_trial_and_every_digit(search):
    columns = data_of(page.render(search))["trials"]
    row = next(i for i, t in enumerate(search.trials) if t.config["gamma_gnr"] != round(t.config["gamma_gnr"], 5))
    assert columns["gamma_gnr"][row] == search.trials[row].config["gamma_gnr"]
    schedule = columns["schedule"]
    assert schedule["values"][schedule["at"][row]] == search.trials[row].config["schedule"]


def test_five_thousand_trials_fit_in_six_megabytes(tmp_path):
    many = load(write_search(tmp_path, trials=5000, confirmed=8))
    path = page.write(many, tmp_path / "deep" / "page.html")
    html = path.read_text()
    assert path.stat().st_size <= 6_000_000
    assert len(data_of(html)["trials"]["key"]) == len(many.trials) > 5000
    assert re.search(r"Of 3,\d\d\d the front and 600, evenly chosen by rank of error, are drawn", html)


def test_the_method_of_a_trial_is_yaml(search):
    from yaml import safe_load

    config = search.trials[-1].config
    parsed = safe_load(words.method_yaml(config, comment="two\nlines"))
    assert parsed == {name: config[name] for name in ("schedule", "gamma_gnr", "rule", "rule_options", "rho")}


def test_the_head_of_the_record_is_told_in_groups(search):
    groups = content.header_groups(search.header)
    assert ("task.data.name", "digits") in groups["experiment"]
    assert "torch" in dict(groups["versions"])


def test_a_comparison_says_who_is_larger_and_how_sure(search, other):
    html = comparison_page.render({"first": search, "second": other})
    heading = re.search(r"<h1>(.*?)</h1>", html)[1]
    assert "has the larger hypervolume" in heading
    assert "intervals" in heading
    assert set(data_of(html)["figures"]) == {"fronts-0", "difference-0-0"}


def test_a_comparison_with_an_empty_search_says_so(search):
    html = comparison_page.render({"first": search, "none": made()})
    assert "fewer than two of these searches have a front" in html
    assert "One of the two has no front yet" in html
