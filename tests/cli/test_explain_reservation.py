"""The explanation of a reservation, as a terminal shows it."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from koordinator.api.codec import convert
from koordinator.api.explanations import ReservationExplanation
from koordinator.cli.explain_failure import EXPLAINED
from koordinator.cli.explain_reservation import print_reservation
from koordinator.cli.explain_source import ProgramEndpoint
from koordinator.cli.explain_target import parse_target
from koordinator.cli.main import main
from koordinator.cli.session import Session

DOCUMENT: dict[str, Any] = {
    "reservation": "web-release",
    "phase": "Available",
    "node": "node-1",
    "faults": [],
    "message": "",
    "allocateOnce": False,
    "allocatePolicy": "Restricted",
    "owners": ["pods with app=web"],
    "resources": [{"name": "cpu", "allocatable": "4 cores", "allocated": "1 core", "left": "3 cores"}],
    "users": [{"pod": "default/web-1", "uses": "1 core of cpu"}],
    "waiting": [
        {"pod": "default/web-2", "request": "2 cores of cpu", "reason": ""},
        {"pod": "default/web-3", "request": "8 cores of cpu", "reason": "Insufficient cpu by node"},
    ],
    "waitingLeftOut": 2,
}


def shown(**changes: Any) -> str:
    console = Console(file=io.StringIO(), width=120, color_system=None)
    print_reservation(convert({**DOCUMENT, **changes}, ReservationExplanation), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    "line",
    [
        "web-release  Available on node-1",
        "owners share it, policy Restricted",
        "pods with app=web",
        "default/web-1 (1 core of cpu)",
        "default/web-2 (2 cores of cpu): would use it",
        "default/web-3 (8 cores of cpu): Insufficient cpu by node",
        "and 2 more",
    ],
)
def test_it_says_whose_it_is_who_uses_it_and_who_waits(line: str) -> None:
    assert line in shown()


def test_one_without_a_node_says_why() -> None:
    text = shown(phase="Pending", node="", resources=[], message="0/2 nodes are available: 2 Insufficient cpu.")
    assert "web-release  Pending\n" in text
    assert "0/2 nodes are available: 2 Insufficient cpu." in text


def test_reservations_are_named_in_every_usual_way() -> None:
    for words in (["reservation", "web-release"], ["reservations/web-release"]):
        target = parse_target(words, None)
        assert (target.kind, target.name) == ("reservation", "web-release")


def test_the_command_shows_a_placed_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Its document names a node, too."""

    async def respond(session: Session, endpoint: ProgramEndpoint, path: str) -> Any:
        assert path == "/apis/v1/plugins/Reservation/reservations/web-release/explanation"
        return DOCUMENT

    monkeypatch.setattr("koordinator.cli.explanation.fetch", respond)
    assert main(["explain", "reservation", "web-release", "--scheduler=http://127.0.0.1:1"]) == EXPLAINED
    assert "web-release  Available on node-1" in capsys.readouterr().out
