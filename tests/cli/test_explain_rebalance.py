"""``koord explain rebalance``: what koord-descheduler would do now, for a person."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from koordinator.base.metrics import Metrics
from koordinator.cli.explain_failure import EXPLAINED, NOT_REACHED, UNUSABLE
from koordinator.cli.explain_source import ProgramEndpoint
from koordinator.cli.main import main
from koordinator.cli.session import Session
from koordinator.kube.pages import json_response
from koordinator.kube.serving import HealthServer

DOCUMENT: dict[str, Any] = {
    "version": 1,
    "rebalance": "koord-descheduler",
    "nodes": 3,
    "pods": 40,
    "hot": [
        {
            "profile": "koord-descheduler",
            "plugin": "LowNodeLoad",
            "node": "node-1",
            "pool": "gold",
            "pods": "prod",
            "usage": {"cpu": 92.0, "memory": 81.5},
            "thresholds": {"cpu": 65.0, "memory": 80.0},
            "cycles": 4,
            "needed": 6,
            "confirmed": False,
        }
    ],
    "evictions": [
        {
            "uid": "u",
            "pod": "shop/web-1",
            "node": "node-1",
            "plugin": "LowNodeLoad",
            "profile": "koord-descheduler",
            "reason": "node is overutilized, node cpu usage(92.00%)>threshold(65.00%)",
        }
    ],
    "refused": [],
    "others": [{"plugin": "P", "what": "cordon node node-2", "reason": "it is empty"}],
    "remarks": [{"profile": "koord-descheduler", "plugin": "LowNodeLoad", "text": "1 nodes above high thresholds"}],
    "errors": [],
    "stays": [{"why": "no plugin would have it leave its node", "pods": 39, "examples": ["shop/db-0"]}],
}


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    requested: list[tuple[str, str]] = []

    async def respond(session: Session, endpoint: ProgramEndpoint, path: str) -> Any:
        requested.append((endpoint.program, path))
        return DOCUMENT

    monkeypatch.setattr("koordinator.cli.explanation.fetch", respond)
    monkeypatch.setenv("COLUMNS", "140")
    return requested


REQUESTING = ["explain", "rebalance", "--descheduler=http://127.0.0.1:1"]


def test_the_descheduler_is_queried(answered: list[tuple[str, str]]) -> None:
    assert main(REQUESTING) == EXPLAINED
    assert answered == [("descheduler", "/explain/rebalance")]


@pytest.mark.parametrize(
    "line",
    [
        "koord-descheduler  a cycle that began now would evict 1 pod of 40 pods on 3 nodes",
        "prod cpu 92.00%",
        "65.00%",
        "4 of 6",
        "it is watched",
        "shop/web-1",
        "node cpu usage(92.00%)>threshold(65.00%)",
        "cordon node node-2: it is empty",
        "LowNodeLoad: 1 nodes above high thresholds",
        "no plugin would have it leave its node",
    ],
)
def test_who_would_leave_and_who_would_stay(
    answered: list[tuple[str, str]], capsys: pytest.CaptureFixture[str], line: str
) -> None:
    main(REQUESTING)
    assert line in capsys.readouterr().out


def test_for_programs(answered: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]) -> None:
    main([*REQUESTING, "-o", "json"])
    assert json.loads(capsys.readouterr().out) == DOCUMENT


def test_the_names_are_of_the_pods_that_would_leave(
    answered: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*REQUESTING, "-o", "name"]) == EXPLAINED
    assert capsys.readouterr().out == "pod/shop/web-1\n"


def test_another_program_on_that_port_is_told_apart(
    answered: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(DOCUMENT, "evictions", [1])
    assert main(REQUESTING) == NOT_REACHED
    assert "koord-descheduler" in capsys.readouterr().err


def test_it_takes_no_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "rebalance", "web"]) == UNUSABLE
    assert "koord explain rebalance" in capsys.readouterr().err


def test_one_that_does_not_lead_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    async def refuse(request: Any) -> Any:
        return json_response({"message": "the instance is not leader"}, 503)

    async def scenario() -> int:
        server = HealthServer(Metrics())
        server.add_route("/explain/rebalance", refuse)
        await server.start()
        try:
            url = f"http://127.0.0.1:{server.bound_port}"
            return await asyncio.to_thread(main, ["explain", "rebalance", f"--descheduler={url}"])
        finally:
            await server.stop()

    assert asyncio.run(scenario()) == NOT_REACHED
    assert "the instance is not leader" in capsys.readouterr().err
