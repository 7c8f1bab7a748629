"""The page as text: complete, safe, small, and complete even where a search has little or no data."""

import re
from dataclasses import replace

import pytest

from rst_tune.analysis.analysis import analyze
from rst_tune.analysis.compare import compare
from rst_tune.records import Metric, Phase, SchedulePreview, Status, load
from rst_tune.report import comparison_page, page, page_data
from tests.analysis.synthetic import write_search
from tests.report import builders
from tests.report.builders import search, trial

SECTIONS = ("answer", "front", "growth", "importance", "schedules", "map", "questions", "coordinates", "timeline")
INF, NAN = float("inf"), float("nan")


POOR = {
    "empty": (search(), "The record has no trial yet"),
    "one waiting": (search(trial(status=Status.WAITING, error=None), phase=Phase.SEARCH), "No trial was started yet"),
    "one complete": (search(trial()), "two configurations that differ"),
    "all diverged": (
        search(*(trial(i, None, Status.DIVERGED) for i in range(4))),
        "No configuration was trained to the full",
    ),
    "constant error": (search(*(trial(i) for i in range(12))), "ll errors are equal"),
    "nan": (search(trial(0, NAN), trial(1, NAN)), "No configuration was trained to the full"),
    "nan among others": (search(trial(0, NAN), *(trial(i, 4 + i / 9) for i in range(1, 12))), "no finite error"),
    "unfinished": (search(trial(0), trial(1, None, Status.RUNNING), phase=Phase.SEARCH), "<dd>searching</dd>"),
    "no header": (search(trial()), "the record has no header"),
    "no preview": (search(trial(preview=SchedulePreview())), "the record has no preview"),
}


@pytest.mark.parametrize("name", POOR)
def test_a_poor_record_gives_a_whole_page_that_says_what_is_missing(name):
    poor, phrase = POOR[name]
    html = page.render(analyze(poor))
    assert all(f'<section id="{section}"' in html for section in (*SECTIONS, "trials", "how"))
    assert phrase in html
    assert len(builders.page_data(html)["trials"]["key"]) == len(poor.trials)


def test_sections_come_in_the_order_of_a_reader(analysis):
    found = re.findall(r'<section id="([a-z]+)"', page.render(analysis))
    assert found == [*SECTIONS, "rungs", "failures", "trials", "how"]
    early = search(trial(0), trial(1, None, Status.RUNNING), phase=Phase.SEARCH)
    assert '<section id="running" class=half>' in page.render(analyze(early))


def test_failures_are_shown_with_their_reasons():
    failed = [trial(i, None, Status.FAILED, reason=f"CUDA error {i}") for i in range(10)]
    html = page.render(analyze(search(trial(20), *failed)))
    assert "The latest 8 of 10." in html
    assert "CUDA error 9" in html
    assert 'id="failures"' not in page.render(analyze(search(trial())))


def test_the_answer_is_the_first_heading(analysis):
    html = page.render(analysis)
    heading = re.search(r"<h1>(.*?)</h1>", html)[1]
    assert heading.startswith("Train with ")
    assert html.index("<h1>") < html.index('<p class="details">SAM gives ') < html.index("<h2>")


def test_the_page_shows_the_hypervolume_of_the_analysis(analysis):
    assert ("hypervolume", f"{analysis.hypervolume:.4g}") in page_data.key_figures(analysis)
    html = page.render(replace(analysis, hypervolume=0.98765))
    assert "<dt>hypervolume</dt><dd>0.9877</dd>" in html


@pytest.mark.parametrize(
    "name", [builders.SCRIPT, "[/red]", "</script>", '"><b>', "%{x}", "\x1b[31m\n", "\ud800", "$x"]
)
def test_every_name_of_a_record_is_text(name, tmp_path):
    bad = builders.hostile(name)
    for html in (page.render(bad), comparison_page.render(compare([bad, bad], [name, "b"]))):
        assert "<script>window" not in html
        assert "<img" not in html
        assert '"><b>' not in html
        assert html.count("</script>") == 4
        builders.page_data(html)
    assert page.write(bad, tmp_path / "page.html").stat().st_size > 0
    if name == builders.SCRIPT:
        assert "&lt;script&gt;window" in page.render(bad)


def test_infinite_numbers_leave_the_page_whole():
    wild = {"pairs": INF, "seconds": INF, "metrics": {"loss": INF}, "history": {"loss": [NAN, INF]}}
    odd = builders.config(gamma_gnr=INF, gamma_rst=INF, rho=NAN, cap=INF, rule_options={"x": INF})
    trials = [
        *(trial(i, 4 + i / 9, **wild, rungs={7: INF, 9: 5.0}) for i in range(9)),
        trial(10, INF, started_at=INF, ended_at=NAN),
        trial(11, 4.2, test_error=INF),
        trial(12, 4.2, Status.STOPPED, config=odd),
        trial(13, 4.2, Status.STOPPED, config=replace(odd, horizon=INF, total_steps=20)),
        trial(14, 4.2, Status.STOPPED, config=replace(odd, horizon=NAN, total_steps=20)),
    ]
    found = analyze(search(*trials, devices={"gpu": INF}, experiment={"budget": {"pairs": INF}}))
    html = page.render(found)
    data = builders.page_data(html)
    assert data["trials"]["pairs"][0] is None
    assert data["trials"]["gamma_gnr"][-1] is None
    assert data["trials"]["compute"][-2:] == [None, None]
    horizon = data["trials"]["horizon"]
    assert [horizon["values"][i] for i in horizon["at"][-2:]] == [None, None]


def test_nothing_is_loaded_from_elsewhere(analysis):
    html = page.render(analysis)
    assert "default-src 'none'" in html
    assert not re.search(r"""<(script|link|img|iframe)[^>]*\s(src|href)=""", html)
    assert all(link.startswith("#") for link in re.findall(r'href="([^"]*)"', html))


def test_the_data_have_every_trial_and_every_digit(analysis):
    columns = builders.page_data(page.render(analysis))["trials"]
    trials = analysis.search.trials
    row = next(i for i, t in enumerate(trials) if t.config.gamma_gnr != round(t.config.gamma_gnr, 5))
    assert columns["gamma_gnr"][row] == trials[row].config.gamma_gnr
    schedule = columns["schedule"]
    assert schedule["values"][schedule["at"][row]] == trials[row].config.schedule


def test_over_several_lengths_the_page_has_compute_length_and_radius(lengths):
    html = page.render(lengths)
    heads = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', html)
    assert {"compute", "length", "extra", "ρ"} <= set(heads)
    columns = builders.page_data(html)["trials"]
    trials = lengths.search.trials
    assert columns["compute"] == pytest.approx([t.compute for t in trials])
    assert [columns["horizon"]["values"][i] for i in columns["horizon"]["at"]] == [t.config.horizon for t in trials]
    assert "1 × is one training of the base optimizer" in html


def test_a_recommended_point_that_is_not_on_the_front_is_in_the_table(lengths):
    base = next(p for p in lengths.summaries if p.config.is_base and not p.on_front)
    html = page.render(replace(lengths, recommended=base))
    assert "recommended, not on the front" in html
    assert f'data-key="{base.trial_key}"' in html


def test_the_map_has_the_surface_of_the_analysis(analysis):
    html = page.render(analysis)
    assert "The shade is the posterior mean" in html
    assert builders.page_data(html)["figures"]["map-0"]["data"][0]["type"] == "contour"
    assert "The shade" not in page.render(analyze(search(trial(0), trial(1, 3.0))))


def test_at_one_length_the_page_shows_extra_propagation(analysis):
    heads = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', page.render(analysis))
    assert "extra" in heads
    assert not {"compute", "length", "ρ"} & set(heads)


def test_a_comparison_over_several_lengths_is_drawn_over_compute(lengths, analysis):
    data = builders.page_data(comparison_page.render(compare([lengths, analysis], ["lengths", "one length"])))
    assert {figure["layout"]["xaxis"].get("type") for figure in data["figures"].values()} == {"log"}


def test_a_policy_is_copied_only_where_it_is_not_the_default():
    budgeted = builders.config(policy="budget", policy_options={"window": 5}, cap=0.5)
    columns = page_data.trial_columns(analyze(search(trial(0), trial(1, config=budgeted))))
    values = {name: [columns[name]["values"][i] for i in columns[name]["at"]] for name in page_data.OPTIONAL}
    assert values == {"policy": [None, "budget"], "policy_options": [None, {"window": 5}], "cap": [None, 0.5]}


def test_five_thousand_trials_fit_in_six_megabytes(tmp_path):
    many = load(write_search(tmp_path, trials=5000, confirmed=8))
    path = page.write(analyze(many), tmp_path / "deep" / "page.html")
    html = path.read_text()
    assert path.stat().st_size <= 6_000_000
    assert len(builders.page_data(html)["trials"]["key"]) == len(many.trials) > 5000
    assert re.search(r"Of 3,\d\d\d configurations, the front and 600 others are drawn", html)


def test_the_header_of_the_record_is_shown_in_groups(analysis):
    groups = page_data.header_groups(analysis.search.header)
    assert ("task.data.name", "digits") in groups["experiment"]
    assert "torch" in dict(groups["versions"])


def test_a_comparison_states_the_larger_hypervolume_and_the_overlap(analysis, other):
    html = comparison_page.render(compare([analysis, other], ["first", "second"]))
    heading = re.search(r"<h1>(.*?)</h1>", html)[1]
    assert "has the larger hypervolume" in heading
    assert "intervals" in heading
    assert set(builders.page_data(html)["figures"]) == {"fronts-0", "difference-0-0"}


def test_a_comparison_names_the_metric_and_its_better_side(analysis):
    accuracy = Metric(name="accuracy", direction="maximize")
    found = analyze(replace(analysis.search, header=replace(analysis.search.header, metric=accuracy)))
    html = comparison_page.render(compare([found, found], ["first", "second"]))
    assert "accuracy within extra" in html
    assert "above 0 is better" in html
    html = comparison_page.render(compare([analysis, analysis], ["first", "second"]))
    assert "error within extra" in html
    assert "below 0 is better" in html


def test_a_comparison_with_an_empty_search_says_so(analysis):
    html = comparison_page.render(compare([analysis, analyze(search())], ["first", "none"]))
    assert "fewer than two of these searches have a front" in html
    assert "One of the two has no front yet" in html
