"""Devices with our scheduler and with the Go original's, on the same API server: equal nodes, devices, and messages."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from tests.free_ports import free_ports
from tests.real.control_plane import ControlPlane
from tests.real.devices.scenarios import (
    ALIGNED,
    CHOSEN,
    LABELS,
    PARTITIONS,
    PREEMPTING,
    REQUESTS,
    RESERVED,
    SHARING,
    TEMPLATES,
    TOGETHER,
    TOPOLOGY,
    VENDORS,
)
from tests.real.devices.stage import Node, Outcome, Pod, Scenario, build, eight, play_all, running
from tests.real.programs import RealPrograms
from tests.real.quota_runs import connected, prepare

_PARTS: Final[Mapping[str, Sequence[Scenario]]] = {
    "part 0": (*REQUESTS, *SHARING, *TOPOLOGY, *PARTITIONS, *TOGETHER, *LABELS, *CHOSEN, *RESERVED),
    "part 1": VENDORS,
    "part 2": PREEMPTING,
    "part 3": ALIGNED,
}
_OTHER: Final = {"ours": "original", "original": "ours"}
_GATES: Final = {"part 1": "DevicePluginAdaption=true,ResizePod=true"}
_ARGS: Final[Mapping[str, Any]] = {"gpuShareUnsupportedModels": [{"vendor": "acme", "model": "X1"}]}

_UID: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SAYS_MORE: Final = {"a restricted one has too little": "1 Reservation(s) Insufficient GPU Devices, "}
"""Where ours also names the devices that a Reservation lacks, see differences.md."""


@dataclass(frozen=True)
class Seen:
    """What there is to see with one scheduler."""

    outcomes: dict[str, Outcome]
    summaries: dict[str, Any]
    """What its service says of each node."""


Both = tuple[Seen, Seen]
"""With ours and with the original."""


def _run(who: str, programs: RealPrograms, folder: Path, part: str) -> Seen:
    plane, scenarios = ControlPlane(programs.kubernetes, folder / who), _PARTS[part]
    (port,) = free_ports(1)
    more = {"preempts": part == "part 2", "aligns": part == "part 3"}
    options: dict[str, Any] = {"gates": _GATES.get(part, ""), "port": port, **more}

    async def run() -> Seen:
        async with connected(plane) as client:
            await prepare(client, nodes=0)
            await build(client, scenarios, TEMPLATES)
            with running(who, programs, plane, folder / who, **options, **_ARGS):
                outcomes = await play_all(client, scenarios, who)
                path = "/apis/v1/plugins/DeviceShare/nodeDeviceSummaries"
                async with (
                    aiohttp.ClientSession() as session,
                    session.get(f"http://127.0.0.1:{port}{path}") as response,
                ):
                    # Reservations are named by their UIDs, which differ.
                    return Seen(outcomes, json.loads(_UID.sub("UID", await response.text())))

    with plane:
        return asyncio.run(run())


@pytest.fixture(scope="module")
def played(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Both]:
    """A part is played when it is requested."""

    @cache
    def outcomes(part: str) -> Both:
        folder = tmp_path_factory.mktemp("devices")
        with ThreadPoolExecutor(2) as threads:
            ours, theirs = (threads.submit(_run, who, real_programs, folder, part) for who in ("ours", "original"))
            return ours.result(), theirs.result()

    return outcomes


@pytest.mark.parametrize(
    ("part", "name"),
    [
        pytest.param(part, each.name, id=f"{part}: {each.name}")
        for part, scenarios in _PARTS.items()
        for each in scenarios
    ],
)
def test_pods_get_the_devices_that_they_get_of_the_original(
    played: Callable[[str], Both], part: str, name: str
) -> None:
    ours, theirs = (seen.outcomes[name] for seen in played(part))
    more = _SAYS_MORE.get(name, "")
    ours = {pod: replace(each, message=each.message.replace(more, "")) for pod, each in ours.items()}
    wrong = [
        f"{each}: ours {ours.get(each)!r}, original {theirs.get(each)!r}"
        for each in sorted({*ours, *theirs})
        if ours.get(each) != theirs.get(each)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("part", ["part 0"])
def test_the_service_says_what_the_original_s_says(played: Callable[[str], Both], part: str) -> None:
    ours, theirs = (seen.summaries for seen in played(part))
    wrong = [
        f"{node}: ours {json.dumps(ours.get(node))}, original {json.dumps(theirs.get(node))}"
        for node in sorted({*ours, *theirs})
        if ours.get(node) != theirs.get(node)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("first", ["ours", "original"])
def test_one_scheduler_knows_what_pods_hold_that_the_other_has_placed(
    real_programs: RealPrograms, tmp_path: Path, first: str
) -> None:
    """As after an upgrade: the second reads annotations alone."""
    plane, second = ControlPlane(real_programs.kubernetes, tmp_path / "plane"), _OTHER[first]
    scenario = Scenario("", {"a": Node(eight())}, ())
    halves = [tuple(Pod(f"{who}-{number}", {"gpu": "100"}) for number in range(3)) for who in (first, second)]

    async def run() -> set[str]:
        async with connected(plane) as client:
            await prepare(client, nodes=0)
            await build(client, [scenario], TEMPLATES)
            found: dict[str, Outcome] = {}
            for who, pods in zip((first, second), halves, strict=True):
                with running(who, real_programs, plane, tmp_path):
                    found = await play_all(client, [replace(scenario, steps=pods)], who)
            return {device["id"] for each in found[""].values() for device in json.loads(each.devices)["gpu"]}

    with plane:
        assert len(asyncio.run(run())) == 6
