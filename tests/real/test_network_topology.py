"""Network-topology-aware gangs on a real API server: the nodes that they get from ours and from the Go original's
scheduler, and what both write about the network."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from koordinator.kube.connect import ClientOptions, connect
from tests.real.control_plane import ControlPlane
from tests.real.decisions.original import original_scheduler
from tests.real.network_topology.scenarios import (
    BETTER,
    BLOCK,
    NO_CAPACITY,
    PREEMPTING,
    SAME,
    Scenario,
    the_least_important_leave,
)
from tests.real.network_topology.stage import LAYERS, PLACES, Found, NetworkStage, network_stage
from tests.real.programs import RealPrograms
from tests.real.scheduler_configuration import API_VERSION, PLAIN, write_configuration
from tests.real.side_by_side import Parts, Who, both, cases, cut, two_planes
from tests.real.test_gangs import install, our_scheduler

FLAG: Final = "--enable-network-topology-manager"
NO_NETWORK: Final = "no cluster network topology"
_GANG: Final = {"name": "Coscheduling"}
_ARGS: Final = {
    "apiVersion": API_VERSION,
    "kind": "CoschedulingArgs",
    "defaultTimeout": "20s",
    "awareNetworkTopology": True,
}
PROFILE: Final[Mapping[str, Any]] = {
    **PLAIN,
    "pluginConfig": [{**_GANG, "args": _ARGS}],
    "plugins": {
        **{point: {"enabled": [_GANG]} for point in ("preEnqueue", "preFilter", "reserve", "permit", "postBind")},
        "postFilter": {"enabled": [_GANG, {"name": "DefaultPreemption"}], "disabled": [{"name": "*"}]},
        "preBind": {"enabled": [_GANG, {"name": "DefaultPreBind"}]},
    },
}
PREEMPTING_PROFILE: Final = {
    **PROFILE,
    "pluginConfig": [{**_GANG, "args": {**_ARGS, "enablePreemption": True}}],
    "plugins": {**PROFILE["plugins"], "postFilter": {"enabled": [_GANG], "disabled": [{"name": "*"}]}},
}
_IN_NETWORK: Final = len(PLACES) - 1


@dataclass(slots=True)
class Played:
    """What became of each scenario, and the status that was written after each change of the network."""

    found: dict[str, Found] = field(default_factory=dict)
    status: dict[str, list[Any]] = field(default_factory=dict)


Act = Callable[[NetworkStage, Played], Awaitable[None]]


async def unknown(stage: NetworkStage, played: Played) -> None:
    """Before there are layers, and while they are wrong."""
    await stage.build()
    await _play(stage, played, {"no_object": _waits_for_the_network})
    await stage.layers(*LAYERS[:2])
    await _play(stage, played, {"no_layer_of_nodes": _waits_for_the_network})
    await stage.layers(*LAYERS, {"topologyLayer": "RackLayer"})
    await _play(stage, played, {"a_layer_beside_the_others": _waits_for_the_network})
    await stage.layers(*LAYERS)
    played.status["at first"] = await stage.known(_IN_NETWORK)
    await _play(stage, played, {"layers_are_right_at_last": _gets_a_block})


async def changing(stage: NetworkStage, played: Played) -> None:
    """Nodes come, move and go; then the layers do."""
    await stage.build()
    await stage.layers(*LAYERS)
    played.status["at first"] = await stage.known(_IN_NETWORK)
    await stage.remove("n01")
    played.status["a node is gone"] = await stage.known(_IN_NETWORK - 1)
    await _play(stage, played, {"a_node_has_gone": _gets_a_block})
    await stage.add("n01", slots=3)
    await stage.move("x", "s0/b0")
    played.status["a node is there, another is in a spine now"] = await stage.known(_IN_NETWORK + 1)
    await _play(stage, played, {"nodes_have_come": _gets_a_block})
    await stage.layers(LAYERS[0], {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "SpineLayer"})
    played.status["a layer is gone"] = await stage.known(_IN_NETWORK + 1, lacks="b0")
    await _play(stage, played, {"a_layer_has_gone": _finds_no_layer})
    await stage.layers(*LAYERS)
    played.status["it is back"] = await stage.known(_IN_NETWORK + 1, has="b0")
    await stage.layers(*LAYERS[1:])
    await _play(stage, played, {"layers_have_become_wrong": _gets_a_block})
    await stage.without_layers()
    await _play(stage, played, {"the_object_has_gone": _gets_a_block})


async def _waits_for_the_network(stage: NetworkStage) -> None:
    await stage.gang(2, BLOCK)
    await stage.until_reported(NO_NETWORK)


async def _gets_a_block(stage: NetworkStage) -> None:
    await stage.gang(4, BLOCK)
    await stage.until_placed(4)


async def _finds_no_layer(stage: NetworkStage) -> None:
    await stage.gang(4, BLOCK)
    await stage.until_reported(NO_CAPACITY)


def still(scenarios: Mapping[str, Scenario]) -> Act:
    """All of them on the same network."""

    async def act(stage: NetworkStage, played: Played) -> None:
        await stage.build()
        await stage.priorities(0, 10, 100)
        await stage.layers(*LAYERS)
        played.status["at first"] = await stage.known(_IN_NETWORK)
        await _play(stage, played, scenarios)

    return act


async def _play(stage: NetworkStage, played: Played, scenarios: Mapping[str, Scenario]) -> None:
    for name, scenario in scenarios.items():
        await scenario(stage)
        played.found[name] = await stage.end()


async def play(plane: ControlPlane, act: Act) -> Played:
    client = await connect(ClientOptions(kubeconfig=str(plane.kubeconfig), qps=0))
    try:
        async with network_stage(client) as stage:
            await stage.until_scheduling()
            played = Played()
            await act(stage, played)
            return played
    finally:
        await client.close()


_STILL: Final = cut(list(SAME), 2)
_CHANGED: Final[Mapping[str, tuple[Act, Sequence[str], Sequence[str]]]] = {
    "unknown": (
        unknown,
        ("no_object", "no_layer_of_nodes", "a_layer_beside_the_others", "layers_are_right_at_last"),
        ("at first",),
    ),
    "changing": (
        changing,
        ("a_node_has_gone", "nodes_have_come", "a_layer_has_gone", "layers_have_become_wrong", "the_object_has_gone"),
        (
            "at first",
            "a node is gone",
            "a node is there, another is in a spine now",
            "a layer is gone",
            "it is back",
        ),
    ),
}
_ACTS: Final[Mapping[str, Act]] = {
    **{part: still({name: SAME[name] for name in found}) for part, found in _STILL.items()},
    **{part: act for part, (act, _, _) in _CHANGED.items()},
    "preempting": still(PREEMPTING),
}


@pytest.fixture(scope="module")
def results(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Parts[tuple[Played, Played]]:
    def play_part(part: str) -> tuple[Played, Played]:
        folder = tmp_path_factory.mktemp("network-topology")
        with two_planes(real_programs, folder) as planes:
            profile = PREEMPTING_PROFILE if part == "preempting" else PROFILE
            return asyncio.run(_both(real_programs, planes, folder, profile, _ACTS[part]))

    return Parts(play_part)


async def _both(
    programs: RealPrograms, planes: Mapping[Who, ControlPlane], folder: Path, profile: Mapping[str, Any], act: Act
) -> tuple[Played, Played]:
    await both(lambda who: install(planes[who]))

    async def run(who: Who) -> Played:
        plane, log = planes[who], folder / f"{who}.log"
        configuration = write_configuration(folder / f"{who}.yaml", kubeconfig=plane.kubeconfig, profile=profile)
        if who == "ours":
            with our_scheduler(configuration, log, FLAG):
                return await play(plane, act)
        with original_scheduler(programs, plane, configuration, log, FLAG):
            return await play(plane, act)

    return await both(run)


@pytest.mark.parametrize(
    ("part", "name"),
    cases({**_STILL, **{part: names for part, (_, names, _) in _CHANGED.items()}, "preempting": list(PREEMPTING)}),
)
def test_gangs_go_where_the_original_puts_them(results: Parts[tuple[Played, Played]], part: str, name: str) -> None:
    ours, theirs = results[part]
    assert ours.found[name] == theirs.found[name]
    assert ours.found[name].placed or ours.found[name].reported


@pytest.mark.parametrize(("part", "name"), cases({part: names for part, (_, _, names) in _CHANGED.items()}))
def test_the_status_is_that_of_the_original(results: Parts[tuple[Played, Played]], part: str, name: str) -> None:
    ours, theirs = results[part]
    assert ours.status[name] == theirs.status[name]


def test_the_least_important_pods_leave_for_a_gang(plane: ControlPlane, tmp_path: Path) -> None:
    asyncio.run(install(plane))
    path, kubeconfig = tmp_path / "scheduler.yaml", plane.kubeconfig
    configuration = write_configuration(path, kubeconfig=kubeconfig, profile=PREEMPTING_PROFILE)
    scenario = {the_least_important_leave.__name__: the_least_important_leave}
    with our_scheduler(configuration, tmp_path / "ours.log", FLAG):
        found = asyncio.run(play(plane, still(scenario))).found["the_least_important_leave"]
    assert set(found.placed.values()) == {"n04", "n05"}
    assert found.evicted == {"n04-0", "n05-0", "n05-1", "n05-2"}


def test_what_is_done_otherwise_on_purpose(plane: ControlPlane, tmp_path: Path) -> None:
    asyncio.run(install(plane))
    configuration = write_configuration(tmp_path / "scheduler.yaml", kubeconfig=plane.kubeconfig, profile=PROFILE)
    with our_scheduler(configuration, tmp_path / "ours.log", FLAG):
        found = asyncio.run(play(plane, still(BETTER))).found
    against = found["indices_against_the_names"].placed
    assert [against[name] for name in sorted(against, reverse=True)] == sorted(against.values())
    assert found["no_multiple_of_a_block"].placed == {}
    assert set(found["two_pods_go_to_their_kind"].placed.values()) == {"n05"}
