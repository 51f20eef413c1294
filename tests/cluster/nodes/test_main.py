"""The program refuses to start with a plain line."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from koordinator.api.kinds import NODES
from koordinator.cluster.nodes.fleet import Fleet
from koordinator.cluster.nodes.main import main, run_until
from koordinator.cluster.nodes.registration import ForeignNodeError
from koordinator.cluster.nodes.scenario import default_scenario
from tests.in_memory_api import InMemoryApi


def test_a_missing_kubeconfig_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"--kubeconfig={tmp_path / 'none'}", "--nodes=1"]) == 1
    assert str(tmp_path / "none") in capsys.readouterr().err


def test_a_bad_scenario_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("nodeGroups: [{name: a, pods: 0}]")
    assert main([f"--scenario={path}", "--kubeconfig=none"]) == 1
    assert "nodeGroups[0].pods: 0 is not usable: from 1 to 250" in capsys.readouterr().err


@pytest.mark.parametrize(("flag", "message"), [("--nodes=0", "--nodes: 0"), ("--speed=-1", "timing.speed: -1")])
def test_a_bad_flag_is_named(flag: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([flag]) == 1
    assert message in capsys.readouterr().err


def test_what_ends_the_fleet_is_a_plain_error() -> None:
    api = InMemoryApi()
    api.put(NODES, {"metadata": {"name": "small-0"}})

    async def run() -> None:
        await run_until(asyncio.Event(), Fleet(api.client(), default_scenario()))

    with pytest.raises(ForeignNodeError, match="node small-0 exists and is not simulated"):
        asyncio.run(run())


def test_a_signal_ends_the_fleet_quietly() -> None:
    async def run() -> None:
        stop = asyncio.Event()
        fleet = Fleet(InMemoryApi().client(), default_scenario())
        async with asyncio.TaskGroup() as group:
            group.create_task(run_until(stop, fleet))
            await fleet.wait_registered()
            stop.set()

    asyncio.run(run())
