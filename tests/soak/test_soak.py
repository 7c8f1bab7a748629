"""The quick form of `make soak`: some damaged files of every kind, and one search whose driver is killed."""

import random
import time

import pytest

from tests.soak import fuzz
from tests.soak.kills import soak_once
from tests.soak.mutations import HOSTILE, damage_bytes, damage_value

CASES_PER_KIND = 25


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return fuzz.Corpus(tmp_path_factory.mktemp("corpus"))


@pytest.mark.parametrize("kind", fuzz.KINDS)
def test_a_damaged_file_is_an_answer_and_never_a_traceback(corpus, kind):
    number = list(fuzz.KINDS).index(kind)
    for case in range(number, number + CASES_PER_KIND * len(fuzz.KINDS), len(fuzz.KINDS)):
        assert fuzz.run_case(corpus, case) == (kind, "")


def test_a_bug_and_a_hang_are_noticed(corpus, monkeypatch):
    def broken(*_):
        raise KeyError("x")

    monkeypatch.setitem(fuzz.KINDS, "experiment", broken)
    assert "KeyError: 'x'" in fuzz.run_case(corpus, 0)[1]
    monkeypatch.setitem(fuzz.KINDS, "experiment", lambda *_: time.sleep(5))
    monkeypatch.setattr(fuzz, "SECONDS", 1)
    assert "no end within" in fuzz.run_case(corpus, 0)[1]


def test_mutations_change_something_and_leave_the_original_alone():
    content, text = {"a": {"b": [1, 2.0, "c"]}, "d": None}, bytes(range(200))
    changed = [damage_value(content, random.Random(n)) for n in range(200)]
    assert content == {"a": {"b": [1, 2.0, "c"]}, "d": None}
    assert len({repr(each) for each in changed}) > len(HOSTILE)
    assert sum(damage_bytes(text, random.Random(n)) != text for n in range(100)) > 80


@pytest.mark.faults
def test_one_search_with_kills_ends_in_agreement(long, address, tmp_path):
    if not long:
        pytest.skip("kills a driver at random for minutes: `make faults` and `make soak` run it")
    soak_once(tmp_path / "soak", address, random.Random(11), time.monotonic() + 60)
