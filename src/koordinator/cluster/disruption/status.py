"""The status of a PodDisruptionBudget, worked out from its pods."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from koordinator.api.document import Document, copied
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.verbs.disruption_budgets import DISRUPTION_ALLOWED, set_allowed_condition, set_condition

DISRUPTION_TIMEOUT: Final = timedelta(minutes=2)
"""An evicted pod that is still there after this long is thought to stay."""

_SHARE: Final = re.compile(r"([0-9]+)%")

Replicas = Callable[[Sequence[Document]], int]
"""How many pods the controllers of some pods want altogether. Raises UnknownReplicas."""


class UnknownReplicas(KoordinatorError):
    """What a share is to be taken of cannot be told; the text goes into the budget's condition."""


def budget_status(budget: Document, pods: Sequence[Document], replicas: Replicas, now: datetime) -> Document:
    """``pods`` are those that the budget selects."""
    result: Document = copied(budget)
    status = result["status"]
    try:
        expected, desired = _wanted(budget["spec"], pods, replicas)
    except UnknownReplicas as error:
        status["disruptionsAllowed"] = 0
        refused = {"type": DISRUPTION_ALLOWED, "status": "False", "reason": "SyncFailed", "message": str(error)}
        set_condition(status, refused, now)
        return dict(status)
    disrupted = _still_disrupted(status.get("disruptedPods") or {}, pods, now)
    healthy = sum(_counts(pod, disrupted) for pod in pods)
    status |= {
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "disruptionsAllowed": max(0, healthy - desired) if expected > 0 else 0,
        "disruptedPods": disrupted,
        "observedGeneration": budget["metadata"].get("generation") or 0,
    }
    set_allowed_condition(result, now)
    return dict(status)


def recheck_after(status: Document, now: datetime) -> timedelta | None:
    """When an eviction that is under way is to be looked at again."""
    ends = [_end(since) for since in (status.get("disruptedPods") or {}).values()]
    return min(ends) - now if ends else None


def _wanted(spec: Document, pods: Sequence[Document], replicas: Replicas) -> tuple[int, int]:
    """How many pods there should be, and how many of them healthy."""
    missing, least = spec.get("maxUnavailable"), spec.get("minAvailable")
    if missing is not None:
        expected = replicas(pods)
        return expected, max(0, expected - _amount(missing, expected))
    if isinstance(least, str):
        expected = replicas(pods)
        return expected, _amount(least, expected)
    return (0, 0) if least is None else (len(pods), least)


def _amount(limit: Any, of: int) -> int:
    """A number or a share, which is rounded up. Raises UnknownReplicas for neither."""
    if not isinstance(limit, str):
        return int(limit)
    share = _SHARE.fullmatch(limit)
    if share is None:
        raise UnknownReplicas("invalid value for IntOrString: invalid type: string is not a percentage")
    return -(-int(share[1]) * of // 100)


def _still_disrupted(disrupted: Document, pods: Sequence[Document], now: datetime) -> Document:
    there = {pod["metadata"]["name"] for pod in pods if not pod["metadata"].get("deletionTimestamp")}
    return {name: since for name, since in disrupted.items() if name in there and _end(since) >= now}


def _counts(pod: Document, disrupted: Document) -> bool:
    metadata = pod["metadata"]
    if metadata.get("deletionTimestamp") or metadata["name"] in disrupted:
        return False
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(found.get("type") == "Ready" and found.get("status") == "True" for found in conditions)


def _end(since: str | None) -> datetime:
    if not since:
        return datetime.min.replace(tzinfo=UTC)
    return datetime.fromisoformat(since) + DISRUPTION_TIMEOUT
