"""The page in a real Chromium: figures, controls, no network requests."""

from dataclasses import replace
from html import escape

import pytest
import yaml

from rst_tune.analysis.analysis import analyze
from rst_tune.analysis.compare import compare
from rst_tune.report import comparison_page, page
from rst_tune.training.task import Method

READY = "document.documentElement.dataset.ready"
ROWS = "return [...document.querySelectorAll('#rows tr')].map(r => [...r.cells].map(c => c.textContent))"


RESET = """
    for (const id of ['filter', 'only']) document.getElementById(id).value = '';
    document.getElementById('front-only').checked = false;
    document.getElementById('filter').dispatchEvent(new Event('input'));
"""


@pytest.fixture
def fresh(chromium, page_file):
    """The page, opened anew in a light window of a desktop's width."""
    chromium.dark(False)
    chromium.resize(1280, 900)
    chromium.open(page_file)
    assert chromium.wait(READY) == "yes"
    yield chromium
    chromium.run("window.used = true")
    assert chromium.console() == []
    assert chromium.outside() == []


@pytest.fixture
def opened(chromium, page_file, request):
    """The page as another test of the table left it, its controls reset; drawing it takes longer than they do."""
    if chromium.run(f"return {READY} !== 'yes' || window.used || location.protocol !== 'file:'"):
        request.getfixturevalue("fresh")
        chromium.run("window.used = false")
    chromium.run(RESET)
    yield chromium
    assert chromium.console() == []
    assert chromium.outside() == []


def column(browser, name: str) -> list[str]:
    titles = browser.run("return [...document.querySelectorAll('#heads th')].map(h => h.textContent)")
    return [row[titles.index(name)] for row in browser.run(ROWS)]


def test_every_figure_is_drawn(fresh):
    assert fresh.run("return [...document.querySelectorAll('.plot')].every(p => p.querySelector('svg.main-svg'))")
    assert fresh.run("return document.querySelectorAll('.plot').length") >= 8


def point_of(browser, trace: str) -> list[float]:
    """Return where in the window the first point of a trace of the front is."""
    script = """
        const div = document.querySelector('[data-figure="front-0"]');
        div.scrollIntoView({block: 'center', behavior: 'instant'});
        const trace = div._fullData.find(t => t.name && t.name.startsWith(arguments[0]));
        const box = div.getBoundingClientRect(), {xaxis, yaxis} = div._fullLayout;
        return [box.left + xaxis._offset + xaxis.d2p(trace.x[0]), box.top + yaxis._offset + yaxis.d2p(trace.y[0])];
    """
    return browser.run(script, trace)


def test_hover_shows_the_configuration(opened, analysis):
    first = next(p for p in analysis.summaries if p.verdict == "confirmed")
    opened.move_to(*point_of(opened, "confirmed"))
    text = opened.wait("[...document.querySelectorAll('.hoverlayer .hovertext text')].map(t => t.textContent).join()")
    assert first.trial_key in text
    assert f"{first.error_mean:.2f}" in text


def test_a_click_on_a_point_shows_its_trials(opened, analysis):
    first = next(p for p in analysis.summaries if p.verdict == "confirmed")
    x, y = point_of(opened, "confirmed")
    opened.click_at(x, y)
    assert opened.wait("document.getElementById('filter').value") == first.config_id
    assert len(opened.run(ROWS)) == first.seeds


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("diverged", lambda t: t.status == "diverged"),
        ("ramp-up asam", lambda t: t.config.family == "ramp-up" and t.config.rule == "asam"),
        ("error<3.9 extra<=0.6", lambda t: t.error is not None and t.error < 3.9 and t.extra_propagation <= 0.6),
        ("no such word", lambda t: False),
    ],
)
def test_the_filter_filters(opened, analysis, text, wanted):
    opened.type("#filter", text)
    expected = sum(wanted(t) for t in analysis.search.trials)
    assert opened.run("return document.getElementById('count').textContent").startswith(f"{expected} of ")
    assert len(opened.run(ROWS)) == min(expected, 50)


def test_only_the_front(opened, analysis):
    opened.click("#front-only")
    members = {p.config_id for p in analysis.points}
    assert len(opened.run(ROWS)) == sum(t.config_id in members for t in analysis.search.trials)


def test_sorting_sorts_by_mouse_and_by_key(opened):
    opened.click("#more")
    opened.click("[data-column=extra] button")
    costs = [float(text.split()[0]) for text in column(opened, "extra")]
    assert costs == sorted(costs)
    assert opened.run("return document.querySelector('[data-column=extra]').ariaSort") == "ascending"
    opened.press("\ue007")  # enter, on the button that has the focus
    costs = [float(text.split()[0]) for text in column(opened, "extra")]
    assert costs == sorted(costs, reverse=True)
    assert opened.run("return document.querySelectorAll('[aria-sort]').length") == 1


def test_missing_values_sort_last_both_ways(opened):
    opened.click("#more")
    for _ in range(2):
        opened.click("[data-column=error] button")
        errors = column(opened, "error %")
        missing = errors.count("–")
        assert missing
        assert errors[-missing:] == ["–"] * missing


@pytest.mark.parametrize("table", ["#front-table", "#table"])
def test_the_copied_yaml_is_a_method(opened, analysis, table):
    opened.devtools("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    key = opened.run(f"return document.querySelector('{table} tbody tr:nth-child(2) button.copy').dataset.key")
    opened.click(f"{table} tbody tr:nth-child(2) button.copy")
    opened.wait(f"document.querySelector('{table} tbody tr:nth-child(2) button.copy').textContent === 'Copied'")
    copied = yaml.safe_load(opened.run("return navigator.clipboard.readText()"))
    config = next(t.config for t in analysis.search.trials if t.key == key)
    names = ("schedule", "gamma_gnr", "rule", "rule_options", "rho")
    assert copied == {name: getattr(config, name) for name in names}
    assert Method.model_validate(copied).gamma_gnr == config.gamma_gnr


def test_dark_follows_the_system_and_the_button(fresh):
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = fresh.run(ground)
    fresh.click("#theme")
    dark = fresh.run(ground)
    assert dark != light
    fresh.wait("document.querySelector('.plot').layout.font.color === '#e7eaee'")
    fresh.dark(True)
    fresh.post("/refresh")
    assert fresh.wait(READY) == "yes"
    assert fresh.run(ground) == dark


def test_a_phone_needs_no_sideways_scrolling(fresh):
    fresh.resize(390, 844)
    fresh.post("/refresh")
    assert fresh.wait(READY) == "yes"
    assert fresh.run("return document.documentElement.scrollWidth") <= 390
    assert fresh.run("return [...document.querySelectorAll('.plot')].every(p => p.layout.width === undefined)")


def test_it_prints_and_comes_back(fresh):
    fresh.click("#theme")
    picture = fresh.devtools("Page.printToPDF")
    assert picture["data"].startswith("JVBERi")
    assert fresh.run("return document.documentElement.dataset.theme") == "dark"


def test_names_of_a_record_are_never_code(chromium, analysis, tmp_path):
    hostile = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>"
    search = analysis.search
    trials = [
        replace(t, config=replace(t.config, family=hostile, rule=hostile), node=hostile, key=f"{hostile}{t.number}")
        for t in search.trials
    ]
    bad = replace(search, trials=tuple(trials), header=replace(search.header, name=hostile))
    chromium.open(page.write(analyze(bad), tmp_path / "hostile.html"))
    assert chromium.wait(READY) == "yes"
    chromium.move_to(*point_of(chromium, "confirmed"))
    chromium.wait("document.querySelector('.hoverlayer .hovertext')")
    assert chromium.run("return window.hacked") is None
    assert hostile in column(chromium, "schedule")
    assert chromium.console() == []


def test_it_works_in_a_sandboxed_frame(chromium, page_file, tmp_path):
    """A notebook and MLflow show a page in such a frame: no storage, no origin."""
    outer = tmp_path / "outer.html"
    outer.write_text(f'<iframe sandbox="allow-scripts" srcdoc="{escape(page_file.read_text())}"></iframe>')
    chromium.open(outer)
    chromium.post("/frame", id=0)
    assert chromium.wait(READY) == "yes"
    chromium.click("#theme")
    chromium.post("/frame", id=None)
    assert chromium.console() == []


def test_a_search_over_several_lengths_is_drawn_and_filtered_by_compute(chromium, lengths, tmp_path):
    chromium.open(page.write(lengths, tmp_path / "lengths.html"))
    assert chromium.wait(READY) == "yes"
    front = "document.querySelector('[data-figure=\"front-0\"]')"
    assert chromium.run(f"return {front}._fullLayout.xaxis.type") == "log"
    ticks = f"return [...{front}.querySelectorAll('.xtick text')].map(t => t.textContent)"
    assert chromium.run(ticks) == ["0.25 ×", "0.5 ×", "1 ×", "2 ×"]
    chromium.type("#filter", "compute<=0.5")
    cheap = [t for t in lengths.search.trials if t.compute <= 0.5]
    assert sorted(column(chromium, "compute")) == sorted(f"{t.compute:.3g} ×" for t in cheap)
    assert set(column(chromium, "length")) == {f"{t.config.horizon:g} ×" for t in cheap}
    assert chromium.console() == []


@pytest.mark.parametrize("second", ["other", "lengths"])
def test_the_comparison_is_drawn(chromium, analysis, second, request, tmp_path):
    compared = compare([analysis, request.getfixturevalue(second)], ["first", "second"])
    chromium.open(comparison_page.write(compared, tmp_path / "compare.html"))
    assert chromium.wait(READY) == "yes"
    assert chromium.run("return document.querySelectorAll('.plot.drawn').length") == 2
    assert chromium.console() == []
