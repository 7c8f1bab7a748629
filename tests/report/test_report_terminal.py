"""Tables for the terminal, read as a person would: as text of a given width."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from rst_tune.analysis import published
from rst_tune.analysis.compare import compare
from rst_tune.analysis.fronts import delivered
from rst_tune.analysis.records import Search
from rst_tune.report import terminal, words


def text_of(renderable, width: int = 160) -> str:
    console = Console(width=width, file=io.StringIO())
    console.print(renderable)
    return console.file.getvalue()


NOTHING = Search(directory=Path("nothing"), header={}, trials=())


def test_the_front_begins_with_the_answer_and_marks_it(search):
    front = delivered(search)
    text = text_of(terminal.front_table(front))
    assert text.startswith("Train with ")
    assert sum(line.startswith("→") for line in text.splitlines()) == 1
    for point in front.points:
        assert words.error(point.error_mean, point.error_sem).replace(" ", "") in text
        assert f" {point.error_expected:.2f} " in text
    assert all(f"• {caveat}" in text for caveat in front.caveats)


@pytest.mark.parametrize("width", [60, 100])
def test_a_narrow_terminal_loses_no_number(search, width):
    text = text_of(terminal.front_table(delivered(search)), width)
    assert all(f"{p.error_mean:.2f}" in text for p in delivered(search).points)
    assert "…" not in text


def test_an_empty_search_has_tables_that_say_so():
    assert "the search is empty" in text_of(terminal.front_table(delivered(NOTHING)))
    status = text_of(terminal.status_table(NOTHING))
    assert "none drawn yet" in status
    assert "no trial was trained to its end" in status
    assert "status" in text_of(terminal.trials_table([]))


def test_the_status_counts_and_tells_what_is_left(search):
    text = text_of(terminal.status_table(search, left=600))
    for status in {t.status for t in search.trials}:
        assert f"{sum(t.status == status for t in search.trials)} {status}" in text
    assert "60 trials, 0 left" in text
    assert "about 10 min" in text


def test_trials_come_best_first_and_the_cut_is_told(search):
    text = text_of(terminal.trials_table(search.trials, limit=5))
    best = min((t for t in search.trials if t.error is not None), key=lambda t: t.error)
    assert text.splitlines()[1].split()[0] == str(best.number)
    assert f"5 of {len(search.trials)} trials" in text


def test_searches_are_compared_with_the_first(search, other):
    comparison = compare([search, other], ["[bold]first", "second"])
    text = text_of(terminal.compare_table(comparison))
    assert "[bold]first" in text
    first, second = comparison.entries
    assert f"{first.hypervolume:.4g}" in text
    assert f"{second.low:.4g} … {second.high:.4g}" in text
    gap = comparison.differences[0]
    assert f"{gap.difference:+.2f} [{gap.low:+.2f}, {gap.high:+.2f}]" in text


@pytest.mark.parametrize("name", published.TABLES)
def test_every_table_of_the_paper_is_whole(name):
    text = text_of(terminal.paper_table(name), 220)
    assert published.TABLES[name] in text
    for row in published.table(name):
        assert f"{row.error_mean:.2f} ± {row.error_sd:.2f}" in text
        assert not row.suspect or f"suspect: {row.suspect}" in text


def test_ones_own_results_stand_beside_the_same_data_only(search):
    summaries = delivered(search).summaries
    text = text_of(terminal.paper_table("sgd-and-sam", summaries, "cifar10"), 200)
    lines = [line for line in text.splitlines() if "cifar10" in line]
    assert all(("(validation)" in line) == ("cifar100" not in line) for line in lines)
