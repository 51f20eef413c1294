"""A running pod that cannot be decoded takes nobody knows what of its node, which therefore takes no further pod."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from koordinator.api.annotations import RESERVE_POD
from koordinator.api.codec import to_document
from koordinator.api.kinds import NODES, PODS
from koordinator.scheduler.explain import explain_node, explain_pod
from tests.scheduler.broken_input.test_broken_objects import healthy, healthy_pod, running_beside, two_nodes
from tests.scheduler.fakes import make_node, make_pod
from tests.scheduler.running_scheduler import RunningScheduler
from tests.scheduler.scheduler_api import SchedulerApi

_NODE: Final = "broken"
_REQUESTS: Final = {"requests": {"cpu": {"x": 1}}}
SPECS: Final[dict[str, dict[str, Any]]] = {
    "a quantity that is an object": {"containers": [{"name": "c", "resources": _REQUESTS}]},
    "containers that are a number": {"containers": 5},
    "a priority that is a text": {"containers": [{"name": "c"}], "priority": "high"},
}
_SPEC: Final = SPECS["a quantity that is an object"]


def unreadable(spec: dict[str, Any] = _SPEC, *, node: str = _NODE, phase: str = "Running") -> dict[str, Any]:
    return {
        "metadata": {"name": "odd", "namespace": "default", "uid": "uid-odd"},
        "spec": {"schedulerName": "default-scheduler", **spec, **({"nodeName": node} if node else {})},
        "status": {"phase": phase},
    }


def readable(phase: str = "Running") -> dict[str, Any]:
    found = healthy_pod("odd")
    found["metadata"]["uid"] = "uid-odd"
    found["spec"] |= {"nodeName": _NODE, "schedulerName": "default-scheduler"}
    return found | {"status": {"phase": phase}}


def play(story: Callable[[RunningScheduler], Awaitable[None]], *pods: dict[str, Any]) -> RunningScheduler:
    """``pods`` are there when the scheduler starts."""
    api = two_nodes()
    for each in pods:
        api.put(PODS, each)
    fixture = running_beside(api)

    async def run() -> None:
        async with fixture.running():
            await story(fixture)

    asyncio.run(run())
    return fixture


def notes(fixture: RunningScheduler, name: str = "odd") -> list[tuple[str, str]]:
    return [(reason, note) for of, reason, note in fixture.events.notes if of == name]


def closed_by(fixture: RunningScheduler) -> list[dict[str, str]]:
    document = to_document(explain_node(fixture.scheduler.sources, _NODE))
    assert document is not None
    found: list[dict[str, str]] = document["plugins"].get("UnreadablePods", {}).get("closedBy", [])
    return found


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("is_first", [True, False], ids=["at the first listing", "later"])
def test_its_node_takes_no_further_pod(spec: dict[str, Any], is_first: bool) -> None:
    async def story(fixture: RunningScheduler) -> None:
        if not is_first:
            fixture.api.put(PODS, unreadable(spec))
            await fixture.until_idle(2)
        fixture.api.put(PODS, healthy_pod("there", _NODE))
        fixture.api.put(PODS, healthy_pod("anywhere"))
        await fixture.until_idle(5)
        assert fixture.api.placed() == {"odd": _NODE, "anywhere": "good"}
        (message,) = [note for reason, note in notes(fixture, "there") if reason == "FailedScheduling"]
        assert "1 node(s) had a running pod that cannot be decoded" in message
        (closed,) = closed_by(fixture)
        assert closed["pod"] == "default/odd"
        assert notes(fixture) == [("UnreadablePod", closed["reason"])]
        assert "$.spec." in closed["reason"]
        explained = to_document(explain_pod(fixture.scheduler.sources, "default", "there"))
        assert "what pod default/odd takes cannot be known" in json.dumps(explained)

    play(story, *([unreadable(spec)] if is_first else []))


def test_pods_like_those_that_it_has_taken_before_are_not_taken_either() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number in range(8):
            fixture.api.put(PODS, healthy_pod(f"before-{number}", _NODE))
        await fixture.until_idle(2)
        fixture.api.put(PODS, unreadable())
        for number in range(8):
            fixture.api.put(PODS, healthy_pod(f"then-{number}", _NODE))
            fixture.api.put(PODS, healthy_pod(f"elsewhere-{number}"))
        await fixture.until_idle(2)
        placed = fixture.api.placed()
        assert {name for name in placed if name.startswith("before")} == {f"before-{number}" for number in range(8)}
        assert not {name for name in placed if name.startswith("then")}
        assert {placed[f"elsewhere-{number}"] for number in range(8)} == {"good"}
        fixture.api.remove(PODS, "odd", "default")
        await fixture.until_idle(15)
        assert {fixture.api.placed()[f"then-{number}"] for number in range(8)} == {_NODE}

    play(story)


@pytest.mark.parametrize("end", ["readable", "gone", "finished", "finished and unreadable"])
def test_it_takes_pods_again(end: str) -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.put(PODS, healthy_pod("there", _NODE))
        await fixture.until_idle(2)
        assert "there" not in fixture.api.placed()
        match end:
            case "readable":
                fixture.api.put(PODS, readable())
            case "gone":
                fixture.api.remove(PODS, "odd", "default")
            case "finished":
                fixture.api.put(PODS, readable("Succeeded"))
            case _:
                fixture.api.put(PODS, unreadable(phase="Failed"))
        await fixture.until_idle(15)
        assert fixture.api.placed()["there"] == _NODE
        assert closed_by(fixture) == []

    play(story, unreadable())


def test_one_of_several_still_closes_it() -> None:
    other = unreadable()
    other["metadata"] |= {"name": "other", "uid": "uid-other"}

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.put(PODS, healthy_pod("there", _NODE))
        fixture.api.remove(PODS, "odd", "default")
        await fixture.until_idle(15)
        assert "there" not in fixture.api.placed()
        assert [each["pod"] for each in closed_by(fixture)] == ["default/other"]

    play(story, unreadable(), other)


def test_a_node_that_comes_later_is_closed_too() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.put(NODES, healthy(NODES, "late"))
        fixture.api.put(PODS, healthy_pod("there", "late"))
        await fixture.until_idle(5)
        assert "there" not in fixture.api.placed()
        fixture.api.remove(NODES, "late", "")
        fixture.api.put(NODES, healthy(NODES, "late"))
        await fixture.until_idle(15)
        assert "there" not in fixture.api.placed()

    play(story, unreadable(node="late"))


@pytest.mark.parametrize(
    "pod", [unreadable(node=""), unreadable(phase="Succeeded")], ids=["on no node", "that has finished"]
)
def test_one_that_takes_nothing_closes_nothing(pod: dict[str, Any]) -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.put(PODS, healthy_pod("there", _NODE))
        await fixture.until_idle(5)
        assert fixture.api.placed()["there"] == _NODE
        assert notes(fixture) == []

    play(story, pod)


def test_what_was_known_of_it_counts_as_long_as_this_scheduler_lives() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.put(PODS, unreadable())
        await fixture.until_idle(2)
        fixture.api.put(PODS, healthy_pod("there", _NODE))
        await fixture.until_idle(5)
        assert fixture.api.placed()["there"] == _NODE
        assert closed_by(fixture) == []
        assert [reason for reason, _ in notes(fixture)] == ["UnreadablePod"]

    play(story, readable())


def test_of_a_pod_that_was_seen_on_no_node_nothing_is_known() -> None:
    async def story(fixture: RunningScheduler) -> None:
        waits = healthy_pod("odd", "nowhere")
        waits["metadata"]["uid"] = "uid-odd"
        fixture.api.put(PODS, waits)
        await fixture.until_idle(2)
        fixture.api.put(PODS, unreadable())
        fixture.api.put(PODS, healthy_pod("there", _NODE))
        await fixture.until_idle(5)
        assert "there" not in fixture.api.placed()
        assert [each["pod"] for each in closed_by(fixture)] == ["default/odd"]

    play(story)


def test_whatever_the_plugins_of_the_profile_are() -> None:
    async def run() -> None:
        api = SchedulerApi()
        api.store(make_node("a"))
        api.put(PODS, unreadable(node="a"))
        fixture = RunningScheduler(api)
        async with fixture.running():
            api.store(make_pod("p", cpu="4"))
            await fixture.until_idle(5)
            assert api.bindings == []
            api.remove(PODS, "odd", "default")
            await fixture.until_idle(15)
            assert api.bindings == [("p", "a")]

    asyncio.run(run())


def test_a_pod_that_claims_to_stand_for_a_reservation_waits_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.put(PODS, healthy_pod("claims", annotations={RESERVE_POD: "true"}))
        await fixture.until_idle(2)
        (note,) = [note for reason, note in notes(fixture, "claims") if reason == "FailedScheduling"]
        assert f"annotation {RESERVE_POD}: there is no reservation '' of the pod's uid" in note

    play(story)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
