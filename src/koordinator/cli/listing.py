"""What there is, a row each: pods, quotas, gangs, Reservations, nodes and migrations, from their documents."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from koordinator.api.annotations import QUOTA_RUNTIME
from koordinator.api.kinds import ELASTIC_QUOTAS, NODES, POD_GROUPS, POD_MIGRATION_JOBS, PODS, RESERVATIONS, Kind
from koordinator.api.labels import QOS_CLASS, QUOTA_PARENT
from koordinator.api.pod import FINISHED_PHASES
from koordinator.api.quantity import Quantity, QuantityError
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY
from koordinator.api.usable_amounts import limit_text
from koordinator.cli.explain_state import condition_message, node_state, scheduler_of
from koordinator.scheduler.explain.explainer import amount_text

Document = Mapping[str, Any]
Row = dict[str, str]


_STATES: Final = {"there": "ready", "notReady": "not ready"}
"""Of a node, in words."""
_OF_NODE: Final = {"cpu": CPU, "memory": MEMORY, "batch cpu": BATCH_CPU, "batch memory": BATCH_MEMORY}
"""The columns of amounts, with their resources."""


@dataclass(frozen=True, slots=True)
class Listing:
    """One kind of list. ``columns`` are the keys of a row that are shown; the row's name comes first, in the form that
    ``koord explain`` takes. ``wide`` are shown with ``-o wide``, too."""

    kind: Kind[Any]
    explained_as: str
    columns: Sequence[str]
    wide: Sequence[str]
    row: Callable[[Document, datetime], Row]
    belongs: Callable[[Document], bool] = lambda _: True
    field_selector: str = ""
    is_of_scheduler: bool = False
    """The scheduler knows more of them than the API: gangs that pods declare by their labels."""


def rows_of(listing: Listing, documents: Sequence[Document], now: datetime) -> list[Row]:
    """A row for each document that belongs to the list, sorted by name."""
    rows = [listing.row(document, now) for document in documents if listing.belongs(document)]
    return sorted(rows, key=lambda row: row["name"])


def age_of(text: str | None, now: datetime) -> str:
    """As kubectl has it in its lists: the largest unit that fits."""
    try:
        seconds = max(0, int((now - datetime.fromisoformat(text or "")).total_seconds()))
    except (ValueError, TypeError):
        return ""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _key(document: Document) -> str:
    metadata = document["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])


def _created(document: Document, now: datetime) -> str:
    return age_of(document["metadata"].get("creationTimestamp"), now)


def _amounts(resources: Mapping[str, Any] | None) -> str:
    return ", ".join(f"{limit_text(name, str(amount))} {name}" for name, amount in (resources or {}).items())


def _readable(resource: str, text: Any) -> str:
    """An amount as a person reads it; what is no amount as it is."""
    try:
        nanos = Quantity.parse(str(text)).nanos
    except QuantityError:
        return "" if text is None else str(text)
    return amount_text(resource, nanos // 10**6 if resource == CPU else nanos // 10**9)


def _waits(pod: Document) -> bool:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    return not spec.get("nodeName") and status.get("phase") not in FINISHED_PHASES


def _pending(pod: Document, now: datetime) -> Row:
    # A pod that is held back before it is tried has no condition; the scheduler itself knows why.
    message = condition_message(pod) or f"not tried yet: koord explain pod {_key(pod)}"
    return {
        "name": _key(pod),
        "age": _created(pod, now),
        # What preemption found comes after it, and is longer than it.
        "why": message.partition(". preemption: ")[0],
        "scheduler": scheduler_of(pod),
        "message": message,
    }


def _pod(pod: Document, now: datetime) -> Row:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    return {
        "name": _key(pod),
        "phase": status.get("phase") or "Pending",
        "node": spec.get("nodeName") or "",
        "age": _created(pod, now),
        "qos": (pod["metadata"].get("labels") or {}).get(QOS_CLASS, ""),
        "scheduler": scheduler_of(pod),
    }


def _node(node: Document, now: datetime) -> Row:
    name, status = node["metadata"]["name"], node.get("status") or {}
    state = node_state(name, "", node, ()).kind
    allocatable = status.get("allocatable") or {}
    return {
        "name": name,
        "state": _STATES.get(state, state),
        "age": _created(node, now),
        **{title: _readable(name, allocatable.get(name)) for title, name in _OF_NODE.items()},
        "allocatable": _amounts(allocatable),
    }


def _quota(quota: Document, now: datetime) -> Row:
    metadata, spec, status = quota["metadata"], quota.get("spec") or {}, quota.get("status") or {}
    runtime = (metadata.get("annotations") or {}).get(QUOTA_RUNTIME)
    return {
        "name": metadata["name"],
        "parent": (metadata.get("labels") or {}).get(QUOTA_PARENT, ""),
        "min": _amounts(spec.get("min")),
        "max": _amounts(spec.get("max")),
        "used": _amounts(status.get("used")),
        "runtime": _amounts(_mapping(runtime)),
        "namespace": metadata.get("namespace", ""),
        "age": _created(quota, now),
    }


def _mapping(text: str | None) -> Mapping[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _gang(gang: Document, now: datetime) -> Row:
    """Of the scheduler's document of a gang."""
    counts = {name: len(gang.get(f"{name}Children") or ()) for name in ("pending", "waitingForBind", "bound")}
    return {
        "name": gang["name"],
        "needs": str(gang.get("minRequiredNumber", "")),
        "pods": str(len(gang.get("children") or ())),
        "pending": str(counts["pending"]),
        "waiting": str(counts["waitingForBind"]),
        "bound": str(counts["bound"]),
        "age": age_of(gang.get("createTime"), now),
        "mode": str(gang.get("mode", "")),
        "declared by": str(gang.get("gangFrom", "")).removeprefix("GangFrom"),
        "placed with": ", ".join(each for each in gang.get("gangGroup") or () if each != gang["name"]),
    }


def _reservation(reservation: Document, now: datetime) -> Row:
    status = reservation.get("status") or {}
    return {
        "name": reservation["metadata"]["name"],
        "phase": status.get("phase") or "Pending",
        "node": status.get("nodeName") or "",
        "allocatable": _amounts(status.get("allocatable")),
        "allocated": _amounts(status.get("allocated")),
        "age": _created(reservation, now),
        "users": ", ".join(
            f"{each.get('namespace', '')}/{each.get('name', '')}" for each in status.get("currentOwners") or ()
        ),
    }


def _migration(job: Document, now: datetime) -> Row:
    spec, status = job.get("spec") or {}, job.get("status") or {}
    pod = spec.get("podRef") or {}
    return {
        "name": job["metadata"]["name"],
        "phase": status.get("phase") or "Pending",
        "step": status.get("status") or "",
        "pod": f"{pod.get('namespace', '')}/{pod.get('name', '')}",
        "age": _created(job, now),
        "mode": spec.get("mode") or "",
        "reason": status.get("reason") or "",
    }


LISTINGS: Final[Mapping[str, Listing]] = {
    "pending": Listing(
        PODS, "pod", ("age", "why"), ("scheduler", "message"), _pending, _waits, field_selector="spec.nodeName="
    ),
    "pods": Listing(PODS, "pod", ("phase", "node", "age"), ("qos", "scheduler"), _pod),
    "nodes": Listing(NODES, "node", ("state", "age", *_OF_NODE), ("allocatable",), _node),
    "quotas": Listing(
        ELASTIC_QUOTAS, "quota", ("parent", "min", "max", "used", "runtime"), ("namespace", "age"), _quota
    ),
    "gangs": Listing(
        POD_GROUPS,
        "gang",
        ("needs", "pods", "pending", "waiting", "bound", "age"),
        ("mode", "declared by", "placed with"),
        _gang,
        is_of_scheduler=True,
    ),
    "reservations": Listing(
        RESERVATIONS, "reservation", ("phase", "node", "allocatable", "allocated", "age"), ("users",), _reservation
    ),
    "migrations": Listing(
        POD_MIGRATION_JOBS, "migration", ("phase", "step", "pod", "age"), ("mode", "reason"), _migration
    ),
}
"""The word on the command line -> its list."""
