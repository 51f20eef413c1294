"""The form of log records, and what they never show."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from koordinator.base.logs import LogFormat, configure, fields, redact, verbosity

logger = logging.getLogger("koordinator.test")


@pytest.fixture(autouse=True)
def _root_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    libraries = {name: logging.getLogger(name).level for name in ("aiohttp", "asyncio", "grpc")}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in libraries.items():
        logging.getLogger(name).setLevel(before)


def lines(level: int = 0, format_: LogFormat = "text") -> io.StringIO:
    stream = io.StringIO()
    configure(level, format_, stream)
    return stream


def test_text_is_klogs() -> None:
    stream = lines()
    logger.info("bound %s", "pod", extra=fields(pod="default/web", seconds=1.5, note="two words"))
    head, text = stream.getvalue().split("] ")
    assert re.fullmatch(r"I\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ test_logs\.py:\d+", head)
    assert text == 'bound pod pod=default/web seconds=1.5 note="two words"\n'


@pytest.mark.parametrize(("level", "letter"), [(logging.WARNING, "W"), (logging.ERROR, "E"), (logging.CRITICAL, "F")])
def test_severity_is_the_first_letter(level: int, letter: str) -> None:
    stream = lines()
    logger.log(level, "text")
    assert stream.getvalue().startswith(letter)


def test_every_record_is_one_line() -> None:
    stream = lines()
    try:
        int("first\nsecond")
    except ValueError:
        logger.exception("failed\nbadly")
    assert stream.getvalue().count("\n") == 1
    assert 'err="ValueError: invalid literal' in stream.getvalue()


def test_json_has_upstreams_keys() -> None:
    stream = lines(5, "json")
    logger.log(verbosity(5), "text", extra=fields(pod="default/web"))
    record = json.loads(stream.getvalue())
    assert {key: record[key] for key in ("level", "v", "msg", "pod", "logger")} == {
        "level": "info",
        "v": 5,
        "msg": "text",
        "pod": "default/web",
        "logger": "koordinator.test",
    }


@pytest.mark.parametrize(("level", "shown"), [(0, 1), (3, 4), (4, 5), (10, 11)])
def test_level_shows_what_is_at_or_below_it(level: int, shown: int) -> None:
    stream = lines(level)
    for number in range(12):
        logger.log(verbosity(number), "level %d", number)
    assert stream.getvalue().count("\n") == shown


def test_debug_is_level_four() -> None:
    assert verbosity(4) == logging.DEBUG


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer abcdefgh.ijkl",
        "got eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJl.c2lnbmF0dXJl",
        "-----BEGIN RSA PRIVATE KEY-----\nabcdefgh\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_secrets_in_texts_are_not_shown(text: str) -> None:
    assert "[redacted]" in redact(text)
    assert not re.search(r"abcdefgh|eyJ", redact(text))


def test_secrets_by_field_name_are_not_shown() -> None:
    stream = lines()
    logger.info("reading", extra=fields(token="abc", client_secret="def"))
    assert "token=[redacted] client_secret=[redacted]" in stream.getvalue()


def test_ordinary_text_is_untouched() -> None:
    assert redact("bearer of news; basic facts") == "bearer of news; basic facts"
