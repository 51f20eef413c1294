"""The options that commands share: each command has them, or a reason why not; and what ``-o`` and ``-w`` do."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator

import pytest

from koordinator.cli import query
from koordinator.cli.explain_failure import ExplainError
from koordinator.cli.explain_terminal import Terminal
from koordinator.cli.main import make_parser
from koordinator.cli.query import Answer, Ask, print_answers, run_query
from koordinator.cli.session import Session

_NOTHING_FOUND_OUT = "it prints no document"
_CREATES = "it creates an object and prints a line for each change of that: koord explain and koord get have it all"
_ONE_OBJECT = "it is about objects that are named"
_NO_PODS = "it is not about pods"
_NO_OBJECTS = "it lists nothing that has a name"
_DOES_NOT_CHANGE = "what it says does not change by itself"
_NO_TABLE = "it prints no table"
_ALL = frozenset({"text", "wide", "name", "json", "yaml", "-w", "-n", "-A", "-l"})
_NOT_ABOUT_PODS = dict.fromkeys(("-n", "-A", "-l"), _NO_PODS)
_RUNS = dict.fromkeys(_ALL, _NOTHING_FOUND_OUT)
_FOLLOWS = dict.fromkeys(_ALL, _CREATES)
REASONS: dict[str, dict[str, str]] = {
    "up": _RUNS,
    "down": _RUNS,
    "demo": _RUNS,
    "page": _RUNS,
    "completion": _RUNS,
    "manifests": {**_RUNS, "json": "kubectl apply takes YAML"},
    "logs": {**_RUNS, "-w": "-f, --follow, as kubectl logs has it"},
    "drain": {**_FOLLOWS, "-n": "nodes have no namespace"},
    "migrate": {flag: why for flag, why in _FOLLOWS.items() if flag != "-n"},
    "status": _NOT_ABOUT_PODS,
    "explain": {"-A": _ONE_OBJECT, "-l": _ONE_OBJECT},
    "get": {},
    "top": {},
    "recommend": {},
    "audit": {"-l": "a record has no labels"},
    "what-if": {"-w": "a simulation is of one snapshot", "-A": _ONE_OBJECT, "-l": _ONE_OBJECT},
    "lint": {"wide": _NO_TABLE, "-w": _DOES_NOT_CHANGE, **_NOT_ABOUT_PODS},
    "doctor": {"wide": _NO_TABLE, "-w": _DOES_NOT_CHANGE, **_NOT_ABOUT_PODS},
    "support-bundle": {
        "wide": _NO_TABLE,
        "name": _NO_OBJECTS,
        "-w": "a bundle is of one moment",
        **{flag: why for flag, why in _NOT_ABOUT_PODS.items() if flag != "-n"},
    },
    "version": {"wide": _NO_TABLE, "name": _NO_OBJECTS, "-w": _DOES_NOT_CHANGE, **_NOT_ABOUT_PODS},
}
"""Command -> what it lacks of the options -> why."""


def _parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command; of ``what-if`` those below it."""
    for name, parser in _below(make_parser()):
        below = list(_below(parser))
        yield from ((name, each) for _, each in below) if below else [(name, parser)]


def _below(parser: argparse.ArgumentParser) -> list[tuple[str, argparse.ArgumentParser]]:
    return [
        each
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for each in action.choices.items()
    ]


def test_every_command_has_the_options_that_all_have_or_a_reason_why_not() -> None:
    helps: dict[str, set[tuple[object, ...]]] = {}
    for name, parser in _parsers():
        flags = {flag: action for action in parser._actions for flag in action.option_strings}
        has: set[str] = {flag for flag in ("-w", "-n", "-A", "-l") if flag in flags}
        has |= set(map(str, flags["-o"].choices or ())) if "-o" in flags else set()
        assert _ALL - has == set(REASONS[name]), f"{parser.prog}: {_ALL - has ^ set(REASONS[name])}"
        for flag in has & flags.keys() | {"-o"} & flags.keys():
            action = flags[flag]
            helps.setdefault(flag, set()).add((action.dest, tuple(action.option_strings), action.nargs, action.metavar))
    assert {flag: len(alike) for flag, alike in helps.items()} == dict.fromkeys(("-o", "-w", "-n", "-A", "-l"), 1)
    assert {name for name, _ in _parsers()} == REASONS.keys()


def _answers(*answers: Answer) -> Ask:
    given = iter(answers)

    async def ask(session: Session) -> Answer:
        return next(given)

    return ask


def _watched(*answers: Answer, form: str = "text") -> list[str]:
    shown: list[str] = []
    left = len(answers)

    async def pause(seconds: float) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(print_answers(_answers(*answers), form, "utf-8", lambda _, text: shown.append(text), pause))
    return shown


def _answer(text: str) -> Answer:
    return Answer({"is": text}, lambda: text, [text])


def test_what_is_watched_is_drawn_again_when_it_has_changed() -> None:
    assert _watched(_answer("a"), _answer("a"), _answer("b")) == ["a", "b"]
    documents = _watched(_answer("a"), _answer("b"), form="json")
    assert list(map(json.loads, documents)) == [{"is": "a"}, {"is": "b"}]


def _run(answer: Answer, form: str = "text", *, watch: bool = False) -> int:
    return run_query(argparse.Namespace(output=form, watch=watch), lambda _: _answers(answer))


def test_names_are_a_line_each_and_the_status_is_that_of_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(Answer({}, lambda: "", ["a", "b"], status=6), "name") == 6
    assert capsys.readouterr().out == "a\nb\n"


def test_what_is_missing_is_said_beside_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(Answer({}, lambda: "text\n", status=5, note="half of it")) == 5
    assert tuple(capsys.readouterr()) == ("text\n", "koord: half of it\n")


def test_an_error_of_what_is_asked_has_its_status(capsys: pytest.CaptureFixture[str]) -> None:
    def prepare(terminal: Terminal) -> Ask:
        raise ExplainError("nothing there")

    assert run_query(argparse.Namespace(output="text"), prepare) == 1
    assert capsys.readouterr().err == "koord: nothing there\n"


def test_with_wide_no_row_is_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = Terminal(width=40, piped=False)
    monkeypatch.setattr(query, "output", lambda: (sys.stdout, narrow))
    seen: list[bool] = []

    def prepare(terminal: Terminal) -> Ask:
        seen.append(terminal.piped)
        return _answers(_answer(""))

    for form in ("text", "wide"):
        run_query(argparse.Namespace(output=form), prepare)
    assert seen == [False, True]
