"""Reservations with our scheduler and with the Go original's, on the same API server: equal decisions, messages,
records and statuses."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from tests.real.programs import RealPrograms
from tests.real.quota_runs import connected, prepare
from tests.real.reservation_runs import (
    Change,
    Delete,
    Outcome,
    Protect,
    Ready,
    Scenario,
    play,
    pod,
    reservation,
    running,
    watched_reservations,
)
from tests.real.reservation_scenarios import CAPACITY, ELSEWHERE, OPERATING, OWNERS, TAKING_OVER
from tests.real.resized_owners import OTHERWISE, PLACED, RESIZED
from tests.real.side_by_side import Parts, Who, both, cases, cut, two_planes

_SHARED: Final[Any] = {"allocateOnce": False}
_TAKING: Final[Any] = {"preAllocation": True, "allocatePolicy": "Restricted", "allocateOnce": False}
_SEVERAL: Final[Any] = {**_TAKING, "preAllocationPolicy": {"enableMultiple": True}}
_REQUIRED: Final = {"scheduling.koordinator.sh/pre-allocation-required": "true"}
_OPERATING: Final[Any] = {
    "app": "keeper",
    "operating_mode": "Reservation",
    "owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}],
}
_A, _B = "node-0", "node-1"


def _selecting(**labels: str) -> dict[str, object]:
    return {"reservationSelector": labels}


SCENARIOS: Final = (
    Scenario("an owner uses it up", (reservation("r", node=_A), pod("o", node=_A))),
    Scenario("others are kept out", (reservation("r", node=_A), pod("p", node=_A, app="other"))),
    Scenario("others take what is left", (reservation("r", node=_A), pod("p", "1", node=_A, app="other"))),
    Scenario("it finds no node", (reservation("r", "9"),)),
    Scenario(
        "it finds no node, and then it does", (pod("p", app="other", node=_A), reservation("r", node=_A), Delete("p"))
    ),
    Scenario(
        "several owners share it",
        (
            reservation("r", node=_A, **_SHARED),
            pod("o1", "1", node=_A),
            pod("o2", "2", node=_A),
            pod("o3", "2", node=_A),
        ),
    ),
    Scenario(
        "an owner leaves",
        (reservation("r", node=_A, **_SHARED), pod("o1", "2", node=_A), Delete("o1"), pod("o2", node=_A)),
    ),
    Scenario("more than reserved", (reservation("r", "2", node=_A, **_SHARED), pod("o", "4", node=_A))),
    Scenario(
        "restricted: no more than reserved",
        (reservation("r", "2", node=_A, allocatePolicy="Restricted", **_SHARED), pod("o", "3", node=_A, affinity={})),
    ),
    Scenario(
        "restricted: an owner without affinity goes to the node",
        (reservation("r", "1", node=_A, allocatePolicy="Restricted", **_SHARED), pod("o", "3", node=_A)),
    ),
    Scenario("affinity without any", (pod("o", affinity={}),)),
    Scenario(
        "affinity that fits", (reservation("r", node=_A, labels={"k": "v"}), pod("o", affinity=_selecting(k="v")))
    ),
    Scenario(
        "affinity that does not fit",
        (reservation("r", node=_A, labels={"k": "v"}), pod("o", affinity=_selecting(k="w"))),
    ),
    Scenario(
        "affinity by terms",
        (
            reservation("r1", "1", node=_A, labels={"k": "v"}),
            reservation("r2", "1", node=_A, labels={"k": "w"}),
            pod(
                "o",
                "1",
                affinity={
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "reservationSelectorTerms": [
                            {"matchExpressions": [{"key": "k", "operator": "In", "values": ["w"]}]}
                        ]
                    }
                },
            ),
        ),
    ),
    Scenario("by name", (reservation("r1", "1"), reservation("r2", "1"), pod("o", "1", affinity={"name": "r2"}))),
    Scenario("by a name that is not", (reservation("r1", "1"), pod("o", "1", affinity={"name": "r2"}))),
    Scenario("not an owner", (reservation("r", "1"), pod("o", "1", app="other", affinity={}))),
    Scenario(
        "the smaller order first",
        (
            reservation("r1", "1", node=_A, labels={"scheduling.koordinator.sh/reservation-order": "20"}),
            reservation("r2", "1", node=_A, labels={"scheduling.koordinator.sh/reservation-order": "10"}),
            pod("o", "1"),
        ),
    ),
    Scenario("closed", (reservation("r", node=_A, unschedulable=True), pod("o", node=_A))),
    Scenario(
        "closed, and tolerated",
        (
            reservation("r", node=_A, unschedulable=True),
            pod("o", affinity={"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}),
        ),
    ),
    Scenario(
        "tainted",
        (
            reservation("r", node=_A, taints=[{"key": "t", "value": "v", "effect": "NoSchedule"}]),
            pod("o", affinity={}),
        ),
    ),
    Scenario(
        "tainted, and tolerated",
        (
            reservation("r", node=_A, taints=[{"key": "t", "value": "v", "effect": "NoSchedule"}]),
            pod("o", affinity={"tolerations": [{"key": "t", "operator": "Exists"}]}),
        ),
    ),
    Scenario("exact match", (reservation("r", "2", node=_A), pod("o", "2", node=_A, exact=("cpu",)))),
    Scenario("no exact match", (reservation("r", "2", node=_A), pod("o", "1", affinity={}, exact=("cpu",)))),
    Scenario(
        "for one pod",
        (
            reservation("r", node=_A, owner={"object": {"namespace": "default", "name": "o"}}),
            pod("p", node=_A),
            pod("o", node=_A),
        ),
    ),
    Scenario(
        "the first owner closes it", (reservation("r", "2", node=_A), pod("o1", "1", node=_A), pod("o2", "3", node=_A))
    ),
    Scenario(
        "reserved by two",
        (reservation("r1", "2", node=_A), reservation("r2", "2", node=_A), pod("p", "1", node=_A, app="other")),
    ),
    Scenario(
        "the two have room for one",
        (reservation("r1", "2", node=_A), reservation("r2", "2", node=_A), pod("o", "4", node=_A)),
    ),
    Scenario(
        "deleted, its room is free",
        (reservation("r", node=_A), pod("p", node=_A, app="other"), Delete("r", "Reservation")),
    ),
    Scenario(
        "deleted in use",
        (
            reservation("r", node=_A, **_SHARED),
            pod("o", "2", node=_A),
            Delete("r", "Reservation"),
            pod("p", "2", node=_A, app="other"),
        ),
    ),
    Scenario(
        "opened again",
        (
            reservation("r", node=_A, unschedulable=True),
            pod("o", affinity={}),
            Change("r", {"spec": {"unschedulable": False}}),
        ),
    ),
    Scenario("takes over a pod", (pod("o", node=_A), reservation("r", "4", node=_A, **_TAKING))),
    Scenario(
        "takes over a pod and is used up",
        (pod("o", node=_A), reservation("r", "4", node=_A, **{**_TAKING, "allocateOnce": True})),
    ),
    Scenario(
        "what is left goes to an owner",
        (pod("o", node=_A), reservation("r", "4", node=_A, **_TAKING), pod("o2", "1", node=_A, affinity={})),
    ),
    Scenario(
        "does not take over pods of others", (pod("p", node=_A, app="other"), reservation("r", "4", node=_A, **_TAKING))
    ),
    Scenario(
        "takes over several pods",
        (pod("o1", "1", node=_A), pod("o2", "3", node=_A), reservation("r", "4", "2Gi", node=_A, **_SEVERAL)),
    ),
    Scenario("has to take over and cannot", (reservation("r", "1", node=_A, labels=_REQUIRED, **_TAKING),)),
    Scenario("only restricted ones take over", (pod("o", node=_A), reservation("r", "4", node=_A, preAllocation=True))),
    Scenario(
        "taking over any pod is not enabled",
        (reservation("r", "1", **{**_TAKING, "preAllocationPolicy": {"mode": "Cluster"}}),),
    ),
    Scenario("an owner uses a pod that reserves", (pod("k", node=_A, **_OPERATING), Ready("k"), pod("o", node=_A))),
    Scenario("a pod that reserves is not ready", (pod("k", node=_A, **_OPERATING), pod("o", node=_A))),
    Scenario(
        "others do not use a pod that reserves",
        (pod("k", node=_A, **_OPERATING), Ready("k"), pod("p", node=_A, app="other")),
    ),
    Scenario("it expires", (reservation("r", node=_A, ttl="3s"), pod("p", node=_A, app="other"))),
)


_IMPORTANT: Final[Any] = {"template": {"priority": 10}}
_RESTRICTED: Final[Any] = {"allocatePolicy": "Restricted", **_SHARED}

PREEMPTING: Final = (
    Scenario("a pod leaves for it", (pod("p", node=_A, app="other", priority=0), reservation("r", node=_A))),
    Scenario(
        "the least important pod leaves for it",
        (
            pod("p1", "2", node=_A, app="other", priority=0),
            pod("p2", "1", node=_A, app="other", priority=5),
            reservation("r", "2", node=_A, **_IMPORTANT),
        ),
    ),
    Scenario(
        "an equally important pod stays",
        (pod("p", node=_A, app="other", priority=10), reservation("r", node=_A, **_IMPORTANT)),
    ),
    Scenario(
        "a pod that is not preemptible stays",
        (pod("p", node=_A, app="other", priority=0, disable_preemptible="true"), reservation("r", node=_A)),
    ),
    Scenario(
        "it never preempts",
        (
            pod("p", node=_A, app="other", priority=0),
            reservation("r", node=_A, template={"priority": 10, "preemptionPolicy": "Never"}),
        ),
    ),
    Scenario(
        "a pod that is protected stays",
        (
            Protect("db"),
            pod("p1", node=_A, app="db", priority=0),
            pod("p2", node=_B, app="other", priority=5),
            reservation("r", **_IMPORTANT),
        ),
    ),
    Scenario(
        "a user leaves for a more important owner",
        (
            reservation("r", node=_A, **_RESTRICTED),
            pod("o1", "2", node=_A, affinity={}, priority=0),
            pod("o2", "2", node=_A, affinity={}, priority=10),
        ),
    ),
    Scenario(
        "an equally important user stays",
        (
            reservation("r", node=_A, **_RESTRICTED),
            pod("o1", "2", node=_A, affinity={}, priority=10),
            pod("o2", "2", node=_A, affinity={}, priority=10),
        ),
    ),
    Scenario(
        "what is reserved and who leaves is enough",
        (
            reservation("r", "2", node=_A),
            pod("p", "2", node=_A, app="other", priority=0),
            pod("o", "4", node=_A, priority=10),
        ),
    ),
    Scenario(
        "nobody leaves if the rest is reserved",
        (
            reservation("r", "2", node=_A),
            pod("p", "2", node=_A, app="other", priority=0),
            pod("x", "4", node=_A, app="other", priority=10),
        ),
    ),
    Scenario(
        "users of what stays reserved stay",
        (
            reservation("r", "4", node=_A, **_SHARED),
            pod("o", "2", node=_A, priority=0),
            pod("x", "2", node=_A, app="other", priority=10),
        ),
    ),
    Scenario(
        "a pod leaves for a pod",
        (pod("p", node=_A, app="other", priority=0), pod("x", node=_A, app="other", priority=10)),
    ),
    Scenario(
        "what an owner waits for is kept",
        (
            reservation("r", "2", node=_A, **_RESTRICTED),
            pod("o1", "1", node=_A, affinity={}, priority=0, leaves_in=300),
            pod("o2", "1", node=_A, affinity={}, priority=0, leaves_in=300),
            pod("o3", "2", node=_A, affinity={}, priority=10),
            Delete("o1"),
            pod("o4", "1", node=_A, affinity={}, priority=5),
        ),
    ),
)

_ALIKE: Final = cut((*SCENARIOS, *OWNERS, *CAPACITY, *TAKING_OVER, *ELSEWHERE, *OPERATING), 7)
_PREEMPTING: Final = cut(PREEMPTING, 2, first=7)
_RESIZED: Final = cut((*RESIZED, *OTHERWISE), 1, first=9)
_PARTS: Final = {**_ALIKE, **_PREEMPTING, **_RESIZED}
_ARGS: Final[Any] = {part: {"enablePreemption": True} for part in _PREEMPTING}


_WOKEN: Final = {"deleted, its room is free": "p", "it expires": "p", "opened again": "o"}
"""Where the original may leave a pod waiting although its room is free, or its Reservation open: see differences.md."""


_LATE: Final = {"an owner's record is taken off": "r"}
"""Reservations that the original may not look at again, so that their status names who owns nothing any more: see
differences.md."""
_KEPT_FROM: Final = {"what an owner waits for is kept": "o4"}
"""Whom the original gives what a more important owner waits for: see differences.md."""
_OTHER_WORDS: Final = {"users of what stays reserved stay": "x", **{each.name: "o" for each in ELSEWHERE}}
"""Who is told more by us: what is lacking where the original says that preemption does not help, and that there are
Reservations on nodes where the pod may not go: see differences.md."""


def _without_other_words(name: str, found: Outcome) -> Outcome:
    pods = {
        pod: ("waits" if message and pod == _OTHER_WORDS.get(name) else message, record)
        for pod, (message, record) in found.pods.items()
    }
    return Outcome(pods, found.reservations, found.events)


def _differences(name: str, ours: Outcome, theirs: Outcome) -> list[str]:
    found = []
    for kind in ("pods", "reservations", "events"):
        mine, original = getattr(ours, kind), getattr(theirs, kind)
        found += [
            f"{name}: {each}: ours {mine.get(each)!r}, original {original.get(each)!r}"
            for each in sorted({*mine, *original})
            if mine.get(each) != original.get(each)
        ]
    return found


Outcomes = tuple[dict[str, Outcome], dict[str, Outcome]]
"""With ours and with the original."""


@pytest.fixture(scope="module")
def played(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Parts[Outcomes]:
    def play_part(part: str) -> Outcomes:
        folder = tmp_path_factory.mktemp("reservations")
        with two_planes(real_programs, folder) as planes:

            async def play_all(who: Who) -> dict[str, Outcome]:
                async with connected(planes[who]) as client:
                    await prepare(client, cpu="4", memory="8Gi")
                    # Neither deletes what has ended while somebody looks.
                    args = {"gcIntervalSeconds": 3600, **_ARGS.get(part, {})}
                    with running(who, real_programs, planes[who], folder / who, **args):
                        async with watched_reservations(client) as watched:
                            return {each.name: await play(watched, each) for each in _PARTS[part]}

            return asyncio.run(both(play_all))

    return Parts(play_part)


@pytest.mark.parametrize(
    ("part", "name"), cases({part: [each.name for each in scenarios] for part, scenarios in _PARTS.items()})
)
def test_pods_and_reservations_end_as_with_the_original(played: Parts[Outcomes], part: str, name: str) -> None:
    ours, theirs = played[part]
    if name in _WOKEN:
        assert ours[name].pods[_WOKEN[name]][0] == ""
        return
    if name in _KEPT_FROM:
        assert "Insufficient cpu" in ours[name].pods[_KEPT_FROM[name]][0]
        return
    if name in PLACED:
        for pod, is_placed in PLACED[name].items():
            assert (not ours[name].pods[pod][0], not theirs[name].pods[pod][0]) == (is_placed, not is_placed)
        return
    if name in _LATE:
        assert ours[name].reservations[_LATE[name]]["owners"] == []
        theirs[name].reservations[_LATE[name]] = ours[name].reservations[_LATE[name]]
    wrong = _differences(name, *(_without_other_words(name, each[name]) for each in (ours, theirs)))
    assert not wrong, "\n".join(wrong)
