"""What test_upgrade looks for is found where it is: each check is shown a history with its fault, and one without."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest

from koordinator.api.annotations import DEVICE_ALLOCATED, RESERVATION_ALLOCATED, RESOURCE_STATUS
from koordinator.api.document import Document
from tests.docs.pages import pages
from tests.real.upgrade import history
from tests.real.upgrade.recorder import Event
from tests.real.upgrade.releases import LAST_RELEASE

_OFFERED: Final = {"n": history.amounts({"cpu": "4", "pods": "10"}), "m": history.amounts({"cpu": "4", "pods": "10"})}
_LATER: Final = 1.0


def event(name: str, node: str = "", kind: str = "MODIFIED", **more: Any) -> Event:
    """Of a pod of one CPU. ``more``: cpu, uid, phase, labels, annotations."""
    metadata = {"name": name, "uid": more.get("uid", name)}
    metadata |= {field: more.get(field, {}) for field in ("labels", "annotations")}
    container = {"resources": {"requests": {"cpu": more.get("cpu", "1")}}}
    spec = {"containers": [container], **({"nodeName": node} if node else {})}
    status = {"phase": more.get("phase", "Running")}
    return Event(_LATER, "pods", kind, {"metadata": metadata, "spec": spec, "status": status})


def thing(name: str, kind: str = "MODIFIED", at: float = _LATER, uid: str = "1", **content: Any) -> Event:
    return Event(at, "things", kind, {"metadata": {"name": name, "uid": uid}, **content})


def gpu(minor: int, percent: str) -> Mapping[str, str]:
    resources = {"koordinator.sh/gpu-core": percent}
    return {DEVICE_ALLOCATED: json.dumps({"gpu": [{"minor": minor, "resources": resources}]})}


def cpus(text: str) -> Mapping[str, str]:
    return {RESOURCE_STATUS: json.dumps({"cpuset": text})}


def owner(reservation: str) -> Mapping[str, str]:
    return {RESERVATION_ALLOCATED: json.dumps({"name": reservation})}


@pytest.mark.parametrize(
    ("events", "fault"),
    [
        ([event("a"), event("a", "n"), event("a", "n", phase="Succeeded")], ""),
        ([event("a", "n"), event("a", "m")], "a moved from n to m"),
        ([event("a", "n"), event("a")], "a moved from n to no node"),
        ([event("a", "n"), event("a", "n", "DELETED")], "a was deleted on n"),
        ([event("a"), event("a", "", "DELETED")], ""),
        ([event("a"), event("a", uid="2")], "a became another pod"),
        ([event("load", "n"), event("load", "n", "DELETED"), event("load", uid="2")], ""),
        ([event("a", "n", annotations=cpus("0-1")), event("a", "n", annotations=cpus("2-3"))], "a was granted"),
    ],
)
def test_pods_that_move(events: list[Event], fault: str) -> None:
    found = history.moved(events, ["load"])
    assert [fault in each for each in found] == [True] * bool(fault)


@pytest.mark.parametrize(
    ("events", "fault"),
    [
        ([event("a", "n", cpu="4"), event("b", "m", cpu="2")], ""),
        ([event("a", "n", cpu="4"), event("a", "n", "DELETED"), event("b", "n", cpu="4")], ""),
        ([event("a", "n", cpu="4"), event("a", "n", phase="Failed"), event("b", "n", cpu="4")], ""),
        ([event("a", "n", cpu="3"), event("b", "n", cpu="1100m")], "b overfilled n: 4100 of cpu"),
        ([event("a", "m", cpu="2"), event("b", "m", cpu="2", annotations=owner("r"))], ""),
        ([event("a", "m", cpu="3")], "a overfilled m: 5000 of cpu"),
    ],
)
def test_nodes_that_are_too_full(events: list[Event], fault: str) -> None:
    reserved = {"r": ("m", history.amounts({"cpu": "2"}))}
    assert history.overfull(events, _OFFERED, reserved) == [fault] * bool(fault)


def test_more_pods_than_a_node_may_have() -> None:
    events = [event(f"p{number}", "n", cpu="1m") for number in range(11)]
    assert history.overfull(events, _OFFERED, {}) == ["p10 overfilled n: 11000 of pods"]


@pytest.mark.parametrize(("second", "count"), [(gpu(0, "50"), 0), (gpu(1, "60"), 0), (gpu(0, "51"), 1)])
def test_devices_that_are_given_twice(second: Mapping[str, str], count: int) -> None:
    events = [event("a", "n", annotations=gpu(0, "50")), event("b", "n", annotations=second)]
    assert len(history.shared_devices(events)) == count


@pytest.mark.parametrize(("node", "text", "count"), [("n", "2-3", 0), ("m", "0-1", 0), ("n", "1-2", 1)])
def test_cpus_that_are_given_twice(node: str, text: str, count: int) -> None:
    events = [event("a", "n", annotations=cpus("0-1")), event("b", node, annotations=cpus(text))]
    assert len(history.shared_cpus(events)) == count


@pytest.mark.parametrize(("quota", "count"), [("lender", 1), ("other", 0)])
def test_quotas_that_are_exceeded(quota: str, count: int) -> None:
    events = [event("a", "n", labels={"q": "borrower"}), event("b", "n", labels={"q": quota})]
    assert len(history.over_quota(events, {"borrower": "q", "lender": "q"}, "cpu", 1500)) == count


@pytest.mark.parametrize(
    ("after", "fault"),
    [
        (thing("a", spec={"x": 1}, status={"seen": True}), ""),
        (thing("b", "DELETED"), ""),
        (thing("a", "DELETED", spec={"x": 1}), "a was deleted"),
        (thing("a", spec={"x": 2}), "spec was {'x': 1}, and is {'x': 2}"),
        (thing("a", spec={"x": 1}, uid="2"), "uid was 1, and is 2"),
    ],
)
def test_objects_that_are_lost_or_changed(after: Event, fault: str) -> None:
    events = [thing("a", at=0.0, spec={"x": 0}), thing("a", at=0.0, spec={"x": 1}), after]
    found = history.changed(events, ["a"], since=0.5)
    assert [fault in each for each in found] == [True] * bool(fault)


@pytest.mark.parametrize(
    ("phase", "owners", "count"), [("Available", ["web"], 0), ("Available", [], 1), ("Failed", ["web"], 1)]
)
def test_reservations_that_lose_their_owner(phase: str, owners: list[str], count: int) -> None:
    status = {"phase": phase, "currentOwners": [{"name": each} for each in owners]}
    assert len(history.disowned([thing("r", status=status)], {"r": "web"}, since=0.5)) == count


@pytest.mark.parametrize(("after", "count"), [({"x": "1"}, 0), ({"x": "0"}, 1), ({}, 1)])
def test_resources_that_are_not_offered_any_more(after: Mapping[str, str], count: int) -> None:
    events = [thing("n", status={"allocatable": each}) for each in ({}, {"x": "2"}, after)]
    assert len(history.vanished(events, "x")) == count


@pytest.mark.parametrize(
    ("before", "at", "count"), [("a", "00:00:16", 0), ("a", "00:00:14", 1), ("", "00:00:01", 0), ("b", "00:00:01", 0)]
)
def test_leases_that_are_taken_too_early(before: str, at: str, count: int) -> None:
    def held(holder: str, acquired: str) -> Event:
        times = {"acquireTime": f"2026-01-01T{acquired}.000000Z", "renewTime": f"2026-01-01T{acquired}.000000Z"}
        return thing("lease", spec={"holderIdentity": holder, "leaseDurationSeconds": 15, **times})

    assert len(history.contested([held(before, "00:00:00"), held("b", at)])) == count


def binding(user: str, pod: str, second: int, code: int = 201, message: str = "") -> Document:
    return {
        "user": {"username": user},
        "objectRef": {"subresource": "binding", "namespace": "default", "name": pod},
        "requestReceivedTimestamp": f"2026-01-01T00:00:{second:02}Z",
        "responseStatus": {"code": code, "message": message},
    }


@pytest.mark.parametrize(
    ("bindings", "fault"),
    [
        ([binding("old", "a", 1), binding("new", "b", 2), binding("new", "c", 3, 409, "has gates")], ""),
        ([binding("old", "a", 1), binding("new", "a", 2)], "default/a was bound 2 times"),
        (
            [binding("old", "a", 1), binding("new", "a", 2, 409, 'is already assigned to node "n"')],
            "new bound a once more",
        ),
        ([binding("old", "c", 3), binding("old", "a", 1), binding("new", "b", 2)], "old bound before and after"),
    ],
)
def test_pods_that_are_bound_twice(bindings: list[Document], fault: str) -> None:
    found = history.bound_twice(bindings)
    assert [fault in each for each in found] == [True] * bool(fault)


def test_the_page_names_the_last_release() -> None:
    page = next(each for each in pages() if each.name == "docs/upgrade.md")
    assert f"release {LAST_RELEASE[0]} to this version" in " ".join(page.text.split())


def test_pods_that_wait() -> None:
    events = [event("a"), event("a", "n"), event("b")]
    assert history.waits(events, ["a", "b"]) == {"a": 0.0, "b": float("inf")}
