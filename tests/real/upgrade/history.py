"""What must hold at every moment of an upgrade, looked for in all that watches have told. Functions return faults."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from koordinator.api.annotations import DEVICE_ALLOCATED, RESERVATION_ALLOCATED, RESOURCE_STATUS
from koordinator.api.cpu_list import parse_cpu_list
from koordinator.api.document import Document
from koordinator.api.quantity import Quantity
from tests.real.upgrade.recorder import Event

Amounts = Counter[str]
"""In thousandths."""
_GRANTED: Final = (DEVICE_ALLOCATED, RESOURCE_STATUS, RESERVATION_ALLOCATED)
_ENDED: Final = ("Succeeded", "Failed")
_ASSIGNED: Final = "is already assigned to node"
_WHOLE_DEVICE: Final = 100_000


def amounts(quantities: Mapping[str, Any]) -> Amounts:
    return Counter({name: Quantity.parse(each).milli for name, each in quantities.items()})


def requests(pod: Document) -> Amounts:
    """Of a pod without init containers and overhead, as those of these tests are; each pod is one of ``pods``."""
    total: Amounts = Counter(pods=1000)
    for container in pod["spec"]["containers"]:
        total.update(amounts(container.get("resources", {}).get("requests", {})))
    return total


def is_live(pod: Document) -> bool:
    """Whether it is on a node and takes room there."""
    return bool(pod["spec"].get("nodeName")) and pod.get("status", {}).get("phase") not in _ENDED


def placements(events: Iterable[Event]) -> Iterator[tuple[Event, Mapping[str, Document]]]:
    """Each event with which a pod has come to a node, and the pods by UID that are on nodes then."""
    live: dict[str, Document] = {}
    for event in events:
        if event.kind == "DELETED" or not is_live(event.object):
            live.pop(event.uid, None)
            continue
        is_new = event.uid not in live
        live[event.uid] = event.object
        if is_new:
            yield event, live


def moved(events: Sequence[Event], released: Iterable[str]) -> list[str]:
    """Pods whose node, UID or grants changed, and those that are gone though nobody has ``released`` their names."""
    faults, may_go = [], set(released)
    nodes: dict[str, str] = {}
    grants: dict[str, tuple[str | None, ...]] = {}
    uids: dict[str, str] = {}
    for event in events:
        node = event.object["spec"].get("nodeName", "")
        if nodes.get(event.uid, node) != node:
            faults.append(f"{event.name} moved from {nodes[event.uid]} to {node or 'no node'}")
        if event.kind == "DELETED" and node and event.name not in may_go:
            faults.append(f"{event.name} was deleted on {node}")
        if event.name not in may_go and uids.setdefault(event.name, event.uid) != event.uid:
            faults.append(f"{event.name} became another pod")
        if node:
            nodes[event.uid] = node
            found = tuple(event.object["metadata"].get("annotations", {}).get(key) for key in _GRANTED)
            if grants.setdefault(event.uid, found) != found:
                faults.append(f"{event.name} was granted {grants[event.uid]}, and then {found}")
    return faults


def overfull(
    events: Sequence[Event], allocatable: Mapping[str, Amounts], reserved: Mapping[str, tuple[str, Amounts]]
) -> list[str]:
    """Nodes with more on them than they had. ``reserved``: Reservation -> its node, and what it keeps all the time."""
    faults = []
    for event, live in placements(events):
        node = event.object["spec"]["nodeName"]
        total: Amounts = Counter()
        owners: dict[str, Amounts] = {name: Counter() for name, (where, _) in reserved.items() if where == node}
        for pod in live.values():
            if pod["spec"]["nodeName"] == node:
                owners.get(_reservation_of(pod), total).update(requests(pod))
        for name, taken in owners.items():
            total.update(taken | reserved[name][1])
        over = {name for name, amount in total.items() if amount > allocatable[node][name]}
        faults += [f"{event.name} overfilled {node}: {total[each]} of {each}" for each in sorted(over)]
    return faults


def _reservation_of(pod: Document) -> str:
    record = pod["metadata"].get("annotations", {}).get(RESERVATION_ALLOCATED, "{}")
    return str(json.loads(record).get("name", ""))


def shared_devices(events: Sequence[Event]) -> list[str]:
    """Devices of which more than all was given."""
    faults = []
    for event, live in placements(events):
        given: dict[tuple[str, str, int], Amounts] = {}
        for pod in live.values():
            record = json.loads(pod["metadata"].get("annotations", {}).get(DEVICE_ALLOCATED, "{}"))
            for kind, devices in record.items():
                for device in devices:
                    where = pod["spec"]["nodeName"], kind, device["minor"]
                    given.setdefault(where, Counter()).update(amounts(device["resources"]))
        for where, taken in given.items():
            if any(taken[f"koordinator.sh/{each}"] > _WHOLE_DEVICE for each in ("gpu-core", "gpu-memory-ratio")):
                faults.append(f"{event.name}: {where} was given twice: {dict(taken)}")
    return faults


def shared_cpus(events: Sequence[Event]) -> list[str]:
    """CPUs that two pods have for themselves."""
    faults = []
    for event, live in placements(events):
        owner: dict[tuple[str, int], str] = {}
        for pod in live.values():
            record = json.loads(pod["metadata"].get("annotations", {}).get(RESOURCE_STATUS, "{}"))
            for cpu in parse_cpu_list(record.get("cpuset", "")):
                where, name = (pod["spec"]["nodeName"], cpu), pod["metadata"]["name"]
                if where in owner:
                    faults.append(f"{event.name}: {name} and {owner[where]} have CPU {cpu} of {where[0]}")
                owner[where] = name
    return faults


def over_quota(events: Sequence[Event], quotas: Mapping[str, str], resource: str, most: int) -> list[str]:
    """Pods that took quotas of one parent over what they may use together, in thousandths. ``quotas``: name -> the
    label of pods that names it."""
    faults = []
    for event, live in placements(events):
        total: Amounts = Counter()
        for pod in live.values():
            if any(pod["metadata"].get("labels", {}).get(label) == name for name, label in quotas.items()):
                total.update(requests(pod))
        if total[resource] > most:
            faults.append(f"{event.name} took the quota to {total[resource]} of {most}")
    return faults


def changed(events: Sequence[Event], kept: Iterable[str], since: float) -> list[str]:
    """Objects ``kept`` that are gone, or whose UID, labels or content are not what they were at that time."""
    faults = []
    before: dict[str, Document] = {}
    names = set(kept)
    for event in events:
        if event.name not in names:
            continue
        if event.kind == "DELETED":
            faults.append(f"{event.resource} {event.name} was deleted")
            continue
        said = {field: event.object["metadata"].get(field) for field in ("uid", "labels")}
        said |= {field: event.object.get(field) for field in ("spec", "data", "webhooks")}
        was = before.get(event.name, said)
        if event.at > since:
            faults += [
                f"{event.resource} {event.name}: {field} was {was[field]}, and is {said[field]}"
                for field in said
                if said[field] != was[field]
            ]
        before[event.name] = said
    return faults


def disowned(events: Sequence[Event], owner: Mapping[str, str], since: float) -> list[str]:
    """Reservations that were not available with their ``owner``, at any moment after that time."""
    faults = []
    for event in events:
        if event.name in owner and event.at > since and event.kind != "DELETED":
            status = event.object.get("status", {})
            owners = [each["name"] for each in status.get("currentOwners", [])]
            if status.get("phase") != "Available" or owner[event.name] not in owners:
                faults.append(f"{event.name} was {status.get('phase')}, with {owners}")
    return faults


def vanished(events: Sequence[Event], resource: str) -> list[str]:
    """Nodes that had offered a resource and offer none of it, or an amount of 0."""
    faults, offered = [], set()
    for event in events:
        amount = event.object.get("status", {}).get("allocatable", {}).get(resource, "0")
        if amount != "0":
            offered.add(event.name)
        elif event.name in offered:
            faults.append(f"{event.name} offers no {resource} any more")
            offered.discard(event.name)
    return faults


def contested(events: Sequence[Event]) -> list[str]:
    """Leases that a holder took before the one before him had given it up or let it expire."""
    faults = []
    before: dict[str, Mapping[str, Any]] = {}
    for event in events:
        spec = event.object["spec"]
        last = before.get(event.name, {})
        was, holder = last.get("holderIdentity"), spec.get("holderIdentity")
        if was and holder and holder != was:
            expired = _seconds(last["renewTime"]) + last["leaseDurationSeconds"]
            if _seconds(spec["acquireTime"]) < expired:
                faults.append(f"{event.name}: {holder} took it from {was} before it had expired")
        before[event.name] = spec
    return faults


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def bound_twice(audited: Sequence[Document]) -> list[str]:
    """Pods with more than one Binding, and binders between whose Bindings there are those of another one."""
    faults = []
    bindings = [each for each in audited if each["objectRef"].get("subresource") == "binding"]
    bindings.sort(key=lambda each: str(each["requestReceivedTimestamp"]))
    done = [each for each in bindings if each["responseStatus"]["code"] == 201]
    counts = Counter(f"{each['objectRef']['namespace']}/{each['objectRef']['name']}" for each in done)
    faults += [f"{name} was bound {count} times" for name, count in counts.items() if count > 1]
    refused = [each for each in bindings if _ASSIGNED in each["responseStatus"].get("message", "")]
    faults += [f"{each['user']['username']} bound {each['objectRef']['name']} once more" for each in refused]
    runs: list[str] = []
    for each in done:
        if runs[-1:] != [each["user"]["username"]]:
            runs.append(each["user"]["username"])
    faults += [f"{user} bound before and after another one" for user, count in Counter(runs).items() if count > 1]
    return faults


def waits(events: Sequence[Event], names: Iterable[str]) -> dict[str, float]:
    """Pod -> seconds from when it was heard of until it had a node; endless where it has none."""
    wanted = set(names)
    added: dict[str, float] = {}
    found: dict[str, float] = {}
    for event in events:
        if event.name in wanted:
            added.setdefault(event.name, event.at)
            found.setdefault(event.name, float("inf"))
            if is_live(event.object) and found[event.name] == float("inf"):
                found[event.name] = event.at - added[event.name]
    return found
