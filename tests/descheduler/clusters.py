"""Small snapshots for tests of the descheduler, and what is needed to run a plugin on one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final, TypeVar, cast

from koordinator.api.codec import convert
from koordinator.api.node import Node
from koordinator.api.nodemetric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.api.recommendation import Recommendation
from koordinator.api.reservation import Reservation
from koordinator.api.timestamps import format_time
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.descheduler.configuration.arguments import make_arguments
from koordinator.descheduler.framework import Eviction, Evictor, Handle, Plan, Plugin, Snapshot, Step
from koordinator.descheduler.plugins.table import DECIDING
from koordinator.descheduler.requests import reservations_by_node
from koordinator.kube.events import EventRecorder
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import Client
from koordinator.model.recommendations import RecommendationIndex
from tests.kube.fake_client import ScriptedClient
from tests.recorded_events import RecordedEvents

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PLUGIN_ARGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "LowNodeLoad": {
        "lowThresholds": {"cpu": 30, "memory": 90},
        "highThresholds": {"cpu": 50, "memory": 95},
        "anomalyCondition": {"consecutiveAbnormalities": 1},
    },
    "CustomPriority": {
        "evictionOrder": [
            {"name": "dear", "nodeSelector": {"matchLabels": {"class": "dear"}}},
            {"name": "cheap", "nodeSelector": {"matchLabels": {"class": "cheap"}}},
        ]
    },
    "FragmentationAware": {},
    "ScaleDownBinPack": {"strategy": "EvictDirectly", "maxPodsToEvict": 2},
    "HighNodeUtilization": {"thresholds": {"cpu": 20, "memory": 20}},
    "LowNodeUtilization": {"thresholds": {"cpu": 20, "memory": 20}, "targetThresholds": {"cpu": 40, "memory": 40}},
    "PodLifeTime": {"maxPodLifeTimeSeconds": 60},
    "RemoveFailedPods": {},
    "RemovePodsHavingTooManyRestarts": {"podRestartThreshold": 1},
    "RemovePodsViolatingNodeAffinity": {"nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]},
    "RemovePodsViolatingNodeTaints": {},
    "RemovePodsViolatingInterPodAntiAffinity": {},
    "RemoveDuplicates": {},
    "RemovePodsViolatingTopologySpreadConstraint": {},
}
"""For every plugin that decides, with which it does something."""
P = TypeVar("P", bound=Plugin)


def make_node(name: str, *, cpu: str = "4", memory: str = "16Gi", pods: str = "110", **fields: Any) -> Node:
    """``labels``, ``annotations``, ``taints``, ``unschedulable`` and ``capacity`` go where they belong."""
    metadata = {"name": name, "labels": fields.get("labels", {}), "annotations": fields.get("annotations", {})}
    spec = {"unschedulable": fields.get("unschedulable", False), "taints": fields.get("taints", [])}
    status = {
        "capacity": fields.get("capacity", {}),
        "allocatable": {"cpu": cpu, "memory": memory, "pods": pods},
        "conditions": fields.get("conditions", []),
    }
    return convert({"metadata": metadata, "spec": spec, "status": status}, Node)


def make_pod(
    name: str,
    node: str,
    *,
    requests: Mapping[str, str] | None = None,
    owner: str | None = "web",
    age: float = 3600,
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **metadata: Any,
) -> Pod:
    """A running pod of ReplicaSet ``owner``, ``age`` seconds old."""
    owners = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": f"uid-{owner}", "controller": True}]
    document = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "creationTimestamp": format_time(NOW - timedelta(seconds=age)),
            "ownerReferences": owners if owner else [],
            **metadata,
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "image": "web", "resources": {"requests": dict(requests or {})}}],
            **(spec or {}),
        },
        "status": {"phase": "Running", **(status or {})},
    }
    return convert(document, Pod)


def make_metric(
    node: str,
    usages: Mapping[str, str],
    *,
    system: str = "0",
    system_memory: str = "0",
    age: float = 0,
    memory: Mapping[str, str] | None = None,
) -> NodeMetric:
    """``usages`` of CPU by the name of the pod; ``memory`` likewise."""
    reported = [
        {
            "name": pod,
            "namespace": "default",
            "podUsage": {"resources": {"cpu": cpu, "memory": (memory or {}).get(pod, "0")}},
        }
        for pod, cpu in usages.items()
    ]
    status = {
        "updateTime": format_time(NOW - timedelta(seconds=age)),
        "nodeMetric": {"systemUsage": {"resources": {"cpu": system, "memory": system_memory}}},
        "podsMetric": reported,
    }
    return convert({"metadata": {"name": node}, "status": status}, NodeMetric)


def make_snapshot(
    nodes: Iterable[Node],
    pods: Iterable[Pod] = (),
    metrics: Iterable[NodeMetric] = (),
    *,
    monotonic: float = 0,
    reservations: Iterable[Reservation] = (),
    recommendations: Iterable[Recommendation] = (),
) -> Snapshot:
    by_node: dict[str, list[Pod]] = {}
    for pod in pods:
        by_node.setdefault(pod.spec.node_name, []).append(pod)
    index = RecommendationIndex()
    for each in recommendations:
        index.put(each)
    return Snapshot(
        nodes=list(nodes),
        pods_by_node=by_node,
        now=NOW,
        monotonic=monotonic,
        node_metrics={metric.metadata.name: metric for metric in metrics},
        reservations=reservations_by_node(reservations),
        recommendations=index,
    )


def make_reservation(node: str, *, phase: str = "Available", **amounts: str) -> Reservation:
    """One that no pod uses; ``amounts`` is what is reserved."""
    status = {"phase": phase, "nodeName": node, "allocatable": amounts}
    return convert({"metadata": {"name": f"on-{node}"}, "status": status}, Reservation)


class FakeEvictor(Evictor):
    """Refuses pods by name, with a reason."""

    def __init__(self, refused: Mapping[str, str] | None = None, refused_late: Mapping[str, str] | None = None) -> None:
        self._refused = refused or {}
        self._refused_late = refused_late or {}

    def filter(self, pod: Pod) -> Sequence[str]:
        return [self._refused[pod.metadata.name]] if pod.metadata.name in self._refused else []

    def pre_eviction_filter(self, pod: Pod) -> Sequence[str]:
        return [self._refused_late[pod.metadata.name]] if pod.metadata.name in self._refused_late else []


def make_handle(evictor: Evictor | None = None, client: object = None, recorder: EventRecorder | None = None) -> Handle:
    clock = ManualClock(start=NOW)
    api = cast("Client", client or ScriptedClient())
    return Handle(
        profile="test",
        client=api,
        informers=InformerSet(api, clock=clock, random=Random(1)),
        evictor=evictor or FakeEvictor(),
        recorder=recorder or RecordedEvents(),
        clock=clock,
        random=Random(1),
        metrics=Metrics(),
    )


def make_plugin(name: str, args: Mapping[str, Any], evictor: Evictor | None = None) -> Any:
    """A built-in plugin with arguments as they are written in a file."""
    plugin = DECIDING[name]
    made, _ = make_arguments(name, plugin.args_type, args, "args")
    return plugin(made, make_handle(evictor))


def steps(plan: Plan, response: Callable[[Step], bool] = lambda step: True) -> list[Step]:
    """All steps of a plan, each answered by ``answer``."""
    found: list[Step] = []
    try:
        step = next(plan)
        while True:
            found.append(step)
            step = plan.send(response(step))
    except StopIteration:
        return found


def evicted(plan: Plan, response: Callable[[Step], bool] = lambda step: True) -> list[str]:
    """The names of the pods that are evicted, in order."""
    return [step.pod.metadata.name for step in steps(plan, response) if isinstance(step, Eviction) and response(step)]
