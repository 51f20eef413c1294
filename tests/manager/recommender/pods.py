"""Pods, Recommendations and readings for the tests of the recommender."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from koordinator.api.codec import convert
from koordinator.api.quantity import Quantity
from koordinator.api.recommendation import POLICY, Recommendation
from koordinator.base.clock import Clock, ManualClock, SteadyTime
from koordinator.manager.recommender.observed_pods import ObservedPod
from koordinator.manager.recommender.samples import Reading
from koordinator.manager.recommender.tracked import Tracked, hash_of_target

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
GIB = 1 << 30
Document = dict[str, Any]


def container(name: str = "main", **requests: str) -> Document:
    return {"name": name, "resources": {"requests": {key.replace("_", "-"): text for key, text in requests.items()}}}


def pod_document(name: str = "p", *containers: Document, **more: Any) -> Document:
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": {"app": "web"}},
        "spec": {"nodeName": "n1", "containers": list(containers) or [container()], **more.get("spec", {})},
        "status": {"phase": "Running", **more.get("status", {})},
    }


def pod(name: str = "p", *containers: Document, **more: Any) -> ObservedPod:
    return convert(pod_document(name, *containers, **more), ObservedPod)


def recommendation(policy: str | None = None, **target: Any) -> Recommendation:
    chosen = target or {"type": "podSelector", "podSelector": {"matchLabels": {"app": "web"}}}
    metadata: Document = {"name": "web", "namespace": "default", "uid": "uid-web", "generation": 1}
    if policy is not None:
        metadata["annotations"] = {POLICY: policy}
    return convert({"metadata": metadata, "spec": {"target": chosen}}, Recommendation)


def tracked(*pods: ObservedPod, policy: str | None = None, clock: Clock | None = None) -> Tracked:
    found = recommendation(policy)
    made = Tracked(found, hash_of_target(found), SteadyTime(clock or ManualClock()))
    made.update(found)
    made.pods = pods
    return made


def reading(at: datetime, usage: Mapping[str, Mapping[str, str]]) -> Reading:
    """Of containers by name."""
    amounts = {name: {key: Quantity.parse(text) for key, text in of.items()} for name, of in usage.items()}
    return Reading(at, amounts, next(iter(amounts.values())) if len(amounts) == 1 else {})
