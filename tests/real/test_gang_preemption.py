"""Job preemption on a real API server: who leaves for a gang, who is nominated where, and what all are told, with our
scheduler and with the Go original's."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from koordinator.api.kinds import NAMESPACES
from koordinator.kube.connect import ClientOptions, connect
from tests.real.control_plane import SERVES_WORKLOADS, ControlPlane
from tests.real.decisions.original import original_scheduler
from tests.real.gangs.preemption_stage import Ended, PreemptionStage, preemption_stage
from tests.real.gangs.preemptions import ALL_PLUGINS, OF_WORKLOADS, OURS, SAME, WHOLE, Scenario
from tests.real.programs import RealPrograms
from tests.real.scheduler_configuration import API_VERSION, PLAIN, write_configuration
from tests.real.side_by_side import Parts, Who, both, cases, cut, two_planes
from tests.real.test_gangs import install, our_scheduler

_GANG: Final = {"name": "Coscheduling"}
_ALL_OTHERS: Final = [{"name": "*"}]


def profile(*others: str, **more: str) -> dict[str, Any]:
    """Coscheduling as the original's chart has it with ``scheduler.enableJobPreemption``; ``others`` beside it, and
    ``more`` arguments."""
    args = {"apiVersion": API_VERSION, "kind": "CoschedulingArgs", "defaultTimeout": "20s", "enablePreemption": True}
    beside = [{"name": name} for name in others]
    in_order = [*beside[:1], _GANG, *beside[1:]]
    plugins: dict[str, Any] = {
        **{point: {"enabled": in_order} for point in ("preFilter", "reserve")},
        **{point: {"enabled": [_GANG]} for point in ("preEnqueue", "permit", "postBind")},
        "postFilter": {"enabled": in_order, "disabled": _ALL_OTHERS},
        "preBind": {"enabled": [_GANG, {"name": "DefaultPreBind"}]},
    }
    if "Reservation" in others:
        plugins["filter"] = plugins["preScore"] = {"enabled": beside[:1]}
        plugins["score"] = {"enabled": [{**beside[0], "weight": 5000}]}
        plugins["preBind"]["enabled"].insert(0, beside[0])
        plugins["bind"] = {"disabled": _ALL_OTHERS, "enabled": [beside[0], {"name": "DefaultBinder"}]}
    return {**PLAIN, "pluginConfig": [{**_GANG, "args": {**args, **more}}], "plugins": plugins}


_PROFILES: Final = {
    "alone": profile(),
    "all": profile("Reservation", "ElasticQuota"),
    "whole": profile(gangPolicy="Whole"),
}
_PARTS: Final = {
    **{f"alone {part}": names for part, names in cut(list(SAME), 4).items()},
    "all": list(ALL_PLUGINS),
}
_TABLE: Final[Mapping[str, Scenario]] = {**SAME, **ALL_PLUGINS, **OURS, **WHOLE, **OF_WORKLOADS}
_COMPARED: Final = ("evicted", "first", "moments", "victims", "reasons", "placed", "phases")
_TRIES: Final = 3
_DIFFERENT: Final[Mapping[str, frozenset[str]]] = {
    # It takes the members to request what the one does that was tried first.
    "members_of_two_sizes_preempt": frozenset({"first", "moments", "said"}),
    # It does not try the other members of a NonStrict gang.
    "non_strict_gang_preempts": frozenset({"said"}),
    # It does not count the other nodes.
    "cordoned_node_beside_one_of_equals": frozenset({"said"}),
    # What it counts in a gang that has gone depends on what its controller has seen last.
    "gang_preempts_a_gang": frozenset({"phases"}),
    # It leaves the gang pending in some runs.
    "one_member_has_a_node": frozenset({"moments", "reasons", "placed", "phases"}),
    # ElasticQuota takes the nominations of its members back.
    "members_of_a_quota_preempt": frozenset({"first", "moments", "said"}),
}
"""What is not compared, where differences.md says why."""


async def play(plane: ControlPlane, names: Sequence[str]) -> dict[str, Ended]:
    """What is seen of each scenario, one after another."""
    client = await connect(ClientOptions(kubeconfig=str(plane.kubeconfig), qps=0))
    try:
        async with preemption_stage(client) as stage:
            found = dict[str, Ended]()
            await stage.until_scheduling()
            for name in names:
                found[name] = await _played(stage, name)
            return found
    finally:
        await client.close()


async def _played(stage: PreemptionStage, name: str) -> Ended:
    stage.prefix = name.replace("_", "-")
    try:
        await _TABLE[name](stage)
        return await stage.end()
    finally:
        await stage.clear()


async def prepare(plane: ControlPlane) -> None:
    await install(plane)
    client = await connect(ClientOptions(kubeconfig=str(plane.kubeconfig), qps=0))
    try:
        await client.create(NAMESPACES, {"metadata": {"name": "koordinator-system"}})
        async with preemption_stage(client) as stage:
            await stage.prepare()
    finally:
        await client.close()


def configuration(plane: ControlPlane, path: Path, name: str) -> Path:
    return write_configuration(
        path,
        kubeconfig=plane.kubeconfig,
        profile=_PROFILES[name],
        podInitialBackoffSeconds=1,
        podMaxBackoffSeconds=1,
    )


Differences = Mapping[str, Sequence[str]]
"""By scenario, for those that end differently."""


@pytest.fixture(scope="module")
def differences(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Parts[Differences]:
    def play_part(part: str) -> Differences:
        folder = tmp_path_factory.mktemp("preemption")
        with two_planes(real_programs, folder) as planes:
            return asyncio.run(_differences(real_programs, planes, folder, part))

    return Parts(play_part)


async def _differences(
    programs: RealPrograms, planes: Mapping[Who, ControlPlane], folder: Path, part: str
) -> Differences:
    await both(lambda who: prepare(planes[who]))
    left: Differences = {name: [] for name in _PARTS[part]}
    for _ in range(_TRIES):
        left = await _different(programs, planes, folder, part.split()[0], list(left))
        if not left:
            break
    return left


async def _different(
    programs: RealPrograms, planes: Mapping[Who, ControlPlane], folder: Path, plugins: str, names: Sequence[str]
) -> Differences:
    async def run(who: Who) -> dict[str, Ended]:
        plane, log = planes[who], folder / f"{who}.log"
        path = configuration(plane, folder / f"{who}.yaml", plugins)
        if who == "ours":
            with our_scheduler(path, log):
                return await play(plane, names)
        with original_scheduler(programs, plane, path, log):
            return await play(plane, names)

    ours, theirs = await both(run)
    found = {name: compared(ours[name], theirs[name], _DIFFERENT.get(name, frozenset())) for name in names}
    return {name: lines for name, lines in found.items() if lines}


def compared(ours: Ended, theirs: Ended, without: Collection[str] = ()) -> list[str]:
    """What is not the same."""
    lines = [
        f"{field}: theirs {getattr(theirs, field)}, ours {getattr(ours, field)}"
        for field in _COMPARED
        if field not in without and getattr(theirs, field) != getattr(ours, field)
    ]
    # The original tries gangs over and over, and so says more.
    if "said" not in without and not (ours.said <= theirs.ever_said and bool(ours.said) == bool(theirs.said)):
        lines.append(f"said: theirs {sorted(theirs.ever_said)}, ours {sorted(ours.said)}")
    return lines


@pytest.mark.parametrize(("part", "name"), cases(_PARTS))
def test_gangs_preempt_as_with_the_original(differences: Parts[Differences], part: str, name: str) -> None:
    assert differences[part].get(name, []) == []


def test_nobody_leaves_in_vain(plane: ControlPlane, tmp_path: Path) -> None:
    asyncio.run(prepare(plane))
    with our_scheduler(configuration(plane, tmp_path / "scheduler.yaml", "all"), tmp_path / "ours.log"):
        ours = asyncio.run(play(plane, list(OURS)))
    stay = {"s": {"0": 2}}
    assert {name: (set(each.evicted), _by_number(each.placed)) for name, each in ours.items()} == {
        "gang_fits_on_no_single_node": ({"s-0", "t-0"}, {"g": {"0": 1, "1": 1}}),
        "member_is_larger_than_any_node": (set(), stay),
        "reservation_is_a_member": ({"s-0", "s-1"}, {"g": {"0": 1}}),
        "too_large_a_gang": (set(), stay),
        "one_member_has_a_node": ({"s-0"}, {"g": {"0": 1, "1": 1}}),
        "quota_admits_a_part": (set(), stay),
        "waiting_members_are_victims": (set(), {"g": {"0": 2}}),
    }
    nominated = {name: _by_number(each.moments[0].nominated) for name, each in ours.items()}
    assert {name: each for name, each in nominated.items() if each} == {
        "gang_fits_on_no_single_node": {"g": {"0": 1, "1": 1}},
        "one_member_has_a_node": {"g": {"0": 1, "1": 1}},
        "reservation_is_a_member": {"g": {"0": 1}},
    }
    assert ours["reservation_is_a_member"].phases == {"g": "Scheduled 2/0"}
    members = {(name.partition("-")[0], *event) for name, *event in ours["waiting_members_are_victims"].victims}
    note = "Preempted by pod of another one on node waiting-members-are-victims-0"
    assert members == {("low", "Normal", "Preempting", note)}


def test_a_gang_leaves_whole_or_not_at_all(plane: ControlPlane, tmp_path: Path) -> None:
    asyncio.run(prepare(plane))
    with our_scheduler(configuration(plane, tmp_path / "scheduler.yaml", "whole"), tmp_path / "ours.log"):
        found = asyncio.run(play(plane, list(WHOLE)))
    leaves, stays = found["gang_leaves_whole"], found["gang_cannot_leave_whole"]
    assert (set(leaves.evicted), sorted(leaves.placed)) == ({"low-0", "low-1"}, ["p"])
    assert all(note.endswith(", together with all of its gang default/low") for *_, note in leaves.victims)
    assert (set(stays.evicted), sorted(stays.placed)) == (set(), ["low"])
    assert any("Gang members that do not leave, since their gang cannot leave whole" in each for each in stays.said)


def test_a_pod_group_of_a_workload_leaves_whole(real_programs: RealPrograms, tmp_path: Path) -> None:
    with ControlPlane(real_programs.kubernetes, tmp_path / "cluster", extra_arguments=SERVES_WORKLOADS) as plane:
        asyncio.run(prepare(plane))
        path = configuration(plane, tmp_path / "scheduler.yaml", "whole")
        with our_scheduler(path, tmp_path / "ours.log", "--feature-gates=GenericWorkload=true"):
            (found,) = asyncio.run(play(plane, list(OF_WORKLOADS))).values()
    assert (set(found.evicted), sorted(found.placed)) == ({"low-0", "low-1"}, ["p"])
    assert all(note.endswith(", together with all of its gang default/training:workers") for *_, note in found.victims)


def _by_number(placed: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Nodes by the number at the end of their names."""
    return {
        gang: {node.rpartition("-")[2]: count for node, count in on_nodes.items()} for gang, on_nodes in placed.items()
    }
