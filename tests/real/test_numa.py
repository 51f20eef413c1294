"""NUMA topologies with our scheduler and with the Go original's, on real API servers: the same pods get the same CPUs
and NUMA nodes, and the others are told the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from tests.real.control_plane import ControlPlane
from tests.real.numa.scenarios import (
    ALIGNING,
    ANNOTATIONS,
    BETTER,
    BINDING,
    NODES_SAY,
    PREEMPTING,
    RESERVING,
    RESTARTED,
)
from tests.real.numa.stage import Outcome, Scenario, Stage
from tests.real.programs import RealPrograms
from tests.real.quota_runs import connected, our_scheduler, prepare
from tests.real.scheduler_configuration import API_VERSION, write_configuration
from tests.real.verdicts.original import original_scheduler

_NUMA: Final = {"name": "NodeNUMAResource"}
_RESERVATION: Final = {"name": "Reservation"}
_ARGS: Final = {"apiVersion": API_VERSION, "kind": "NodeNUMAResourceArgs"}


def _profile(**args: Any) -> dict[str, Any]:
    """NodeNUMAResource and Reservation where Koordinator's own configuration has them."""
    both = {"enabled": [_RESERVATION, _NUMA]}
    return {
        "schedulerName": "koord-scheduler",
        "plugins": {
            **dict.fromkeys(("preFilter", "filter", "reserve"), both),
            "preScore": {"enabled": [_RESERVATION, _NUMA]},
            "score": {"enabled": [{**_NUMA, "weight": 1}, {**_RESERVATION, "weight": 5000}]},
            "preBind": {"enabled": [_NUMA, _RESERVATION]},
            "postFilter": {"disabled": [{"name": "*"}], "enabled": [_RESERVATION, {"name": "DefaultPreemption"}]},
            "bind": {"disabled": [{"name": "*"}], "enabled": [_RESERVATION, {"name": "DefaultBinder"}]},
        },
        "pluginConfig": [{**_NUMA, "args": {**_ARGS, **args}}],
    }


_MOST: Final = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]}
_PARTS: Final[Mapping[str, tuple[Mapping[str, Scenario], Mapping[str, Any]]]] = {
    "part 0: binding": ({**BINDING, **ANNOTATIONS}, {}),
    "part 1: nodes say": ({**NODES_SAY, **PREEMPTING}, {}),
    "part 2: aligning": (ALIGNING, {}),
    "part 3: reserving": (RESERVING, {}),
    "part 4: most allocated": (
        {**BINDING, **ALIGNING},
        {"defaultCPUBindPolicy": "SpreadByPCPUs", "scoringStrategy": _MOST, "numaScoringStrategy": _MOST},
    ),
}


def _scheduler(
    who: str, programs: RealPrograms, plane: ControlPlane, folder: Path, args: Mapping[str, Any]
) -> AbstractContextManager[Any]:
    configuration = write_configuration(
        folder / "scheduler.yaml",
        kubeconfig=plane.kubeconfig,
        profile=_profile(**args),
        podInitialBackoffSeconds=1,
        podMaxBackoffSeconds=1,
    )
    if who == "ours":
        return our_scheduler(plane, configuration, folder / "ours.log")
    return original_scheduler(programs, plane, configuration, folder / "original.log")


def _run(
    who: str, programs: RealPrograms, folder: Path, scenarios: Mapping[str, Scenario], args: Mapping[str, Any]
) -> dict[str, Outcome]:
    """What has become of the scenarios, and, when ours has been started anew, of pods that came then."""
    plane = ControlPlane(programs.kubernetes, folder / who)

    async def begin() -> None:
        async with connected(plane) as client:
            await prepare(client, nodes=0)

    async def play(steps: Mapping[str, Scenario]) -> dict[str, Outcome]:
        async with connected(plane) as client:
            return await Stage(client).play(steps)

    plane.start()
    try:
        asyncio.run(begin())
        with _scheduler(who, programs, plane, folder / who, args):
            first = asyncio.run(play(scenarios))
            # Started anew, the original may give CPUs away a second time: see differences.md.
            after = asyncio.run(play(_after(scenarios))) if who == "original" else {}
        if who == "ours":
            with _scheduler(who, programs, plane, folder / who, args):
                after = asyncio.run(play(_after(scenarios)))
        return {name: _with_later_pods(found, after[name]) for name, found in first.items()}
    finally:
        plane.stop()


def _after(scenarios: Mapping[str, Scenario]) -> dict[str, Scenario]:
    return dict.fromkeys(scenarios, RESTARTED)


def _with_later_pods(found: Outcome, later: Outcome) -> Outcome:
    pods = {name: each for name, each in later.pods.items() if name not in found.pods}
    return Outcome({**found.pods, **pods}, found.reservations)


_DIFFERENT: Final[Mapping[str, frozenset[str]]] = {
    # Pods that are aligned keep apart, bound or not.
    "pod-restricted": frozenset({"r", "after", "after2"}),
    # Owners get no CPUs from beside a Reservation that is restricted.
    "restricted-spread": frozenset({"o", "o2", "after", "after2"}),
    # What is lacking of a Reservation is told, CPUs among it.
    "restricted-owner": frozenset({"o"}),
    "aligned-restricted": frozenset({"o2"}),
}
"""The pods that fare otherwise, by scenario: see differences.md."""
_TOLD: Final[Mapping[str, Mapping[str, str]]] = {
    "broken-topology": {"p": "1 node(s) invalid CPU Topology", "q": ""},
    "unknown-policy-of-node": {"p": ""},
    "unknown-policy-of-pod": {
        "p": "4 annotation scheduling.koordinator.sh/numa-topology-spec: numaTopologyPolicy 'Somehow' is none of "
        "BestEffort, Restricted, SingleNUMANode"
    },
    "broken-spec": {"p": "annotation scheduling.koordinator.sh/resource-spec: not JSON"},
}
"""What pods are told that would end the original."""


Both = tuple[dict[str, Outcome], dict[str, Outcome]]
"""The outcomes with ours and with the original."""


@pytest.fixture(scope="module")
def played(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Both]:
    """A part is played when it is asked for."""

    @cache
    def outcomes(part: str) -> Both:
        folder = tmp_path_factory.mktemp("numa")
        with ThreadPoolExecutor(2) as threads:
            runs = [threads.submit(_run, who, real_programs, folder, *_PARTS[part]) for who in ("ours", "original")]
            ours, theirs = (run.result() for run in runs)
            return ours, theirs

    return outcomes


@pytest.mark.parametrize(
    ("part", "name"),
    [pytest.param(part, name, id=f"{part}: {name}") for part, (scenarios, _) in _PARTS.items() for name in scenarios],
)
def test_pods_get_what_they_get_from_the_original(played: Callable[[str], Both], part: str, name: str) -> None:
    ours, theirs = played(part)

    found = _differences(ours[name], theirs[name])

    assert set(found) == _DIFFERENT.get(name, frozenset()), found


def test_what_ends_the_original_is_told(real_programs: RealPrograms, tmp_path: Path) -> None:
    found = _run("ours", real_programs, tmp_path, BETTER, {})

    assert {name: {pod: found[name].pods[pod][1] for pod in pods} for name, pods in _TOLD.items()} == _TOLD


def _differences(ours: Outcome, theirs: Outcome) -> dict[str, tuple[Any, Any]]:
    found: dict[str, tuple[Any, Any]] = {}
    for kind in ("pods", "reservations"):
        mine, original = getattr(ours, kind), getattr(theirs, kind)
        for each in {*mine, *original}:
            if mine.get(each) != original.get(each):
                found[each] = mine.get(each), original.get(each)
    return found
