"""Gangs on a real API server: what becomes of them with our scheduler and with the Go original's."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from koordinator.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, PODS
from koordinator.api.manifests import custom_resource_definitions
from koordinator.kube.connect import ClientOptions, connect
from tests.real.control_plane import ControlPlane
from tests.real.decisions.original import original_scheduler
from tests.real.gangs.declarations import DECLARED
from tests.real.gangs.scenarios import BETTER, CHANGED, OPEN, SAME, Scenario
from tests.real.gangs.stage import Outcome, Stage, watched_stage
from tests.real.programs import RealPrograms
from tests.real.scheduler_configuration import API_VERSION, PLAIN, write_configuration
from tests.real.side_by_side import Parts, Who, both, cases, cut, two_planes

_GANG = {"name": "Coscheduling"}
_ALL_OTHERS = [{"name": "*"}]
_ARGS = {"apiVersion": API_VERSION, "kind": "CoschedulingArgs", "defaultTimeout": "20s"}
PROFILE = {
    **PLAIN,
    "pluginConfig": [{**_GANG, "args": _ARGS}],
    "plugins": {
        **{point: {"enabled": [_GANG]} for point in ("preEnqueue", "preFilter", "reserve", "permit", "postBind")},
        "postFilter": {"enabled": [_GANG, {"name": "DefaultPreemption"}], "disabled": _ALL_OTHERS},
        "preBind": {"enabled": [_GANG, {"name": "DefaultPreBind"}]},
    },
}


_ALL_ARE_REPORTED = {("member_deleted_while_waiting", "reported")}
"""Where ours tells each member that its gang is incomplete, and how many there are, and the original only one: see
differences.md, "PreEnqueue"."""


@contextmanager
def our_scheduler(configuration: Path, log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "koordinator.scheduler", f"--config={configuration}", "--port=0", *arguments]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


async def install(plane: ControlPlane) -> None:
    client = await connect(ClientOptions(kubeconfig=str(plane.kubeconfig), qps=0))
    try:
        for definition in custom_resource_definitions():
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
    finally:
        await client.close()


async def play(
    plane: ControlPlane, scenarios: Mapping[str, Scenario], *, on_same_nodes: bool = False
) -> dict[str, Outcome]:
    """The outcome of each scenario, one after another; each has nodes of its own, unless they shall have one name."""
    client = await connect(ClientOptions(kubeconfig=str(plane.kubeconfig), qps=0))
    try:
        async with watched_stage(client) as stage:
            found = dict[str, Outcome]()
            await stage.until_scheduling()
            for name, scenario in scenarios.items():
                stage.prefix = "node" if on_same_nodes else name.replace("_", "-")
                await scenario(stage)
                found[name] = await stage.outcome()
                await stage.clear()
            return found
    finally:
        await client.close()


_TABLE: Final[Mapping[str, Scenario]] = {**SAME, **CHANGED, **DECLARED}
_PARTS: Final = cut(list(_TABLE), 6)
_COMPARED: Final = ("bound", "annotations", "event_reasons", "phases", "reported")
_TRIES: Final = 3
"""The original tries a gang that does not fit over and over, so that what it gets done in time is chance."""

Differences = Mapping[str, Sequence[str]]
"""By scenario, for those that end differently."""


@pytest.fixture(scope="module")
def differences(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Parts[Differences]:
    def play_part(part: str) -> Differences:
        folder = tmp_path_factory.mktemp("gangs")
        with two_planes(real_programs, folder) as planes:
            return asyncio.run(_differences(real_programs, planes, folder, _PARTS[part]))

    return Parts(play_part)


async def _differences(
    programs: RealPrograms, planes: Mapping[Who, ControlPlane], folder: Path, names: Sequence[str]
) -> Differences:
    await both(lambda who: install(planes[who]))
    left: Differences = {name: [] for name in names}
    for _ in range(_TRIES):
        left = await _different(programs, planes, folder, {name: _TABLE[name] for name in left})
        if not left:
            break
    return left


async def _different(
    programs: RealPrograms, planes: Mapping[Who, ControlPlane], folder: Path, scenarios: Mapping[str, Scenario]
) -> Differences:
    async def run(who: Who) -> dict[str, Outcome]:
        plane, log = planes[who], folder / f"{who}.log"
        configuration = write_configuration(folder / f"{who}.yaml", kubeconfig=plane.kubeconfig, profile=PROFILE)
        if who == "ours":
            with our_scheduler(configuration, log):
                return await play(plane, scenarios)
        with original_scheduler(programs, plane, configuration, log):
            return await play(plane, scenarios)

    ours, theirs = await both(run)
    found = {
        name: [
            f"{field}: theirs {getattr(theirs[name], field)}, ours {getattr(ours[name], field)}"
            for field in _COMPARED
            if getattr(theirs[name], field) != getattr(ours[name], field) and (name, field) not in _ALL_ARE_REPORTED
        ]
        for name in scenarios
    }
    return {name: lines for name, lines in found.items() if lines}


@pytest.mark.parametrize(("part", "name"), cases(_PARTS))
def test_gangs_end_as_with_the_original(differences: Parts[Differences], part: str, name: str) -> None:
    assert differences[part].get(name, []) == []


def test_gangs_that_change_are_never_bound_in_part_nor_kept_out(plane: ControlPlane, tmp_path: Path) -> None:
    asyncio.run(install(plane))
    configuration = write_configuration(tmp_path / "scheduler.yaml", kubeconfig=plane.kubeconfig, profile=PROFILE)
    with our_scheduler(configuration, tmp_path / "ours.log"):
        ours = asyncio.run(play(plane, BETTER))
    assert {name: outcome.bound for name, outcome in ours.items()} == {
        "minimum_lowered": {"g": 2},
        "group_recreated": {"g": 2},
        "one_member_is_gated": {"g": 0},
        "capacity_comes_late": {"g": 2},
        "capacity_after_a_pod_is_deleted": {"g": 2},
        "second_gang_after_the_first": {"b": 2},
    }


def test_a_gang_is_placed_on_a_node_that_was_full_under_the_same_name(plane: ControlPlane, tmp_path: Path) -> None:
    asyncio.run(install(plane))
    configuration = write_configuration(tmp_path / "scheduler.yaml", kubeconfig=plane.kubeconfig, profile=PROFILE)
    with our_scheduler(configuration, tmp_path / "ours.log"):
        ours = asyncio.run(play(plane, OPEN, on_same_nodes=True))
    assert (ours["more_than_the_minimum"].bound, ours["waiting_and_running"].bound) == ({"g": 4}, {"g": 3})


MEMBERS = 40


def bound_members(stage: Stage) -> int:
    return sum(1 for pod in stage.watched.list(PODS) if pod.spec.node_name)


async def until_bound(stage: Stage, count: int) -> None:
    assert await stage.watched.until(lambda: bound_members(stage) >= count, 60), bound_members(stage)


async def kill_and_go_on(plane: ControlPlane, configuration: Path, folder: Path, after: int) -> int:
    """How many members are bound in the end when the scheduler is killed as soon as ``after`` are."""
    client = await connect(ClientOptions(kubeconfig=str(plane.kubeconfig), qps=0))
    try:
        async with watched_stage(client) as stage:
            with our_scheduler(configuration, folder / f"killed-{after}.log") as process:
                await stage.until_scheduling()
                await stage.nodes(MEMBERS // 2, MEMBERS // 2)
                await stage.group("g", MEMBERS)
                await stage.pods_of("g", MEMBERS)
                await until_bound(stage, after)
                process.kill()
            with our_scheduler(configuration, folder / f"next-{after}.log"):
                await until_bound(stage, MEMBERS)
            found = bound_members(stage)
            await stage.clear()
            return found
    finally:
        await client.close()


def test_a_gang_is_bound_as_a_whole_although_the_scheduler_is_killed(plane: ControlPlane, tmp_path: Path) -> None:
    asyncio.run(install(plane))
    configuration = write_configuration(tmp_path / "scheduler.yaml", kubeconfig=plane.kubeconfig, profile=PROFILE)
    found = {after: asyncio.run(kill_and_go_on(plane, configuration, tmp_path, after)) for after in (0, 1, 10, 30)}
    assert found == dict.fromkeys((0, 1, 10, 30), MEMBERS)
