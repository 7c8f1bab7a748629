"""Credentials are hidden in every form, ordinary text stays, and no text takes long."""

import time

import pytest

from rst_tune import redaction
from rst_tune.redaction import redact, redact_text, register_environment, register_url


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_known", set())


@pytest.mark.parametrize(
    "text",
    [
        'postgresql://user:p/w?1#2"x@host:5432/db',
        "https://user:hunter22@host/x?y=1",
        "dbPassword=hunter22",
        "X-Api-Key: hunter22",
        "password = hunter22; more",
        '{"token": "hunter22"}',
        "Authorization: Bearer hunter22hunter22",
        "AWS_SECRET_ACCESS_KEY=hunter22",
        "https://host/x?sig=hunter22&n=1",
    ],
)
def test_credentials_are_hidden(text: str):
    shown = redact_text(text)
    assert "hunter22" not in shown
    assert "p/w" not in shown
    assert "***" in shown


@pytest.mark.parametrize(
    "text", ["num_tokens=512", "tokenizer: bpe", "error: no such file", "http://host:5000/#/experiments", "front=true"]
)
def test_ordinary_text_stays(text: str):
    assert redact_text(text) == text


def test_a_registered_password_is_hidden_wherever_it_stands_but_not_inside_other_words():
    register_url("postgresql://user:s3cr3t%2Fpw@host/db")
    assert redact_text("it was s3cr3t/pw, quoted s3cr3t%2Fpw") == "it was ***, quoted ***"
    assert redact_text("ids3cr3t/pw4") == "ids3cr3t/pw4"


def test_ordinary_values_of_the_environment_do_not_blank_out_text(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOME_IMPLICIT_TOKEN", "true")
    monkeypatch.setenv("DB_PASSWORD", "1234")
    monkeypatch.setenv("OTHER_TOKEN", "abcdef123456")
    register_environment()
    assert redact({"front": "true", "key": "ab1234cd-e5-s1", "text": "abcdef123456"}) == {
        "front": "true",
        "key": "ab1234cd-e5-s1",
        "text": "***",
    }


@pytest.mark.parametrize("text", ["x" * 200_000, "a=b " * 20_000, "://" + "a:" * 20_000, "password" * 5_000])
def test_long_texts_take_linear_time(text: str):
    begun = time.process_time()
    redact_text(text)
    assert time.process_time() - begun < 5.0, "quadratic work takes minutes on these"
