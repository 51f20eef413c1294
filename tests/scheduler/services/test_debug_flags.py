"""Debug flags are changed by PUT and answered in the original's words."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from koordinator.base.logs import verbosity
from koordinator.kube.debug_flags import add_debug_flags
from koordinator.scheduler.debug_output import DebugSettings
from tests.scheduler.services.service_requests import HttpResponse, send


@pytest.fixture(autouse=True)
def _log_level() -> Iterator[None]:
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


def put(settings: DebugSettings, flag: str, value: str) -> HttpResponse:
    return send(lambda server: add_debug_flags(server, settings.setters), f"/debug/flags/{flag}", "PUT", value)


def test_the_number_of_scores_is_set() -> None:
    settings = DebugSettings()
    response = put(settings, "s", "5")
    assert (settings.scores, response.text) == (5, "successfully set debugTopNScores to 5\n")


@pytest.mark.parametrize(("flag", "name"), [("f", "filters"), ("d", "diagnosis"), ("db", "blocking")])
def test_a_switch_is_set(flag: str, name: str) -> None:
    settings = DebugSettings()
    response = put(settings, flag, "T")
    assert getattr(settings, name) is True
    assert response.text == "successfully set debugFilterFailure to T\n"


def test_the_log_level_is_set() -> None:
    assert put(DebugSettings(), "v", "4").text == "successfully set klog.logging.verbosity to 4\n"
    assert logging.getLogger().level == verbosity(4)


@pytest.mark.parametrize(
    ("flag", "value", "text"),
    [
        ("s", "x", 'failed set debugTopNScores x: strconv.Atoi: parsing "x": invalid syntax\n'),
        (
            "s",
            "9" * 19,
            f'failed set debugTopNScores {"9" * 19}: strconv.Atoi: parsing "{"9" * 19}": value out of range\n',
        ),
        ("d", "yes", 'failed set debugFilterFailure yes: strconv.ParseBool: parsing "yes": invalid syntax\n'),
        ("v", "+1", 'strconv.ParseUint: parsing "+1": invalid syntax\n'),
        ("v", "9999999999", 'strconv.ParseUint: parsing "9999999999": value out of range\n'),
    ],
)
def test_a_bad_value_is_refused(flag: str, value: str, text: str) -> None:
    response = put(DebugSettings(), flag, value)
    assert (response.status, response.content_type, response.text) == (400, "text/plain", text)


def test_a_bad_value_changes_nothing() -> None:
    settings = DebugSettings(scores=3)
    put(settings, "s", "x")
    assert settings.scores == 3


def test_other_methods_are_not_acceptable() -> None:
    response = send(lambda server: add_debug_flags(server, DebugSettings().setters), "/debug/flags/s")
    assert (response.status, response.text) == (406, "unsupported http method\n")


@pytest.mark.parametrize("path", ["/debug/flags", "/debug/flags/", "/debug/flags/unknown"])
def test_everything_else_is_the_list_of_flags(path: str) -> None:
    response = send(lambda server: add_debug_flags(server, DebugSettings().setters), path)
    assert (response.status, response.content_type) == (200, "text/html; charset=utf-8")
    assert [line for line in response.text.splitlines() if line.startswith("<tr>")] == [
        f"<tr>{name}<br>" for name in ("d", "db", "f", "s", "v")
    ]
