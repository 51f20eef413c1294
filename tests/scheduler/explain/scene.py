"""A small cluster with the real plugins, on which pods are tried as the loop would, and then queried about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import msgspec

from koordinator.api.codec import to_document
from koordinator.api.elastic_quota import ElasticQuota, ElasticQuotaSpec
from koordinator.api.kinds import ELASTIC_QUOTAS, NODE_METRICS
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node, Taint
from koordinator.api.nodemetric import NodeMetric, NodeMetricInfo, NodeMetricStatus, ResourceMap
from koordinator.api.pod import Pod
from koordinator.api.quantity import Quantity
from koordinator.base.clock import ManualClock
from koordinator.scheduler.assembly import build_profiles
from koordinator.scheduler.configuration import SchedulerConfiguration
from koordinator.scheduler.configuration.loading import parse_configuration
from koordinator.scheduler.cycle.loop import DecisionLog
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.decision import Attempt, Placement, Rejection
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.pod_info import PodInfo, make_pod_info
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain import Sources, explain_node, explain_pod
from koordinator.scheduler.plugins.table import BUILT_IN
from koordinator.scheduler.queue.queued_pod import QueuedPod
from koordinator.scheduler.queue.scheduling_queue import SchedulingQueue
from tests.scheduler.fakes import FirstChoice, make_node, make_pod

__all__ = ["NOW", "WITH_GANGS", "WITH_QUOTAS", "Scene", "make_node", "make_pod", "refused_by_its_quota", "tainted"]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONFIGURATION = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: koord-scheduler
    plugins:
      filter: {enabled: [{name: LoadAwareScheduling}]}
      score: {enabled: [{name: LoadAwareScheduling, weight: 1}]}
"""


WITH_QUOTAS = f"""\
{CONFIGURATION.rstrip()}
      preFilter: {{enabled: [{{name: ElasticQuota}}]}}
      reserve: {{enabled: [{{name: ElasticQuota}}]}}
"""


WITH_GANGS = f"""\
{CONFIGURATION.rstrip()}
      preEnqueue: {{enabled: [{{name: Coscheduling}}]}}
      permit: {{enabled: [{{name: Coscheduling}}]}}
"""


@cache
def _configuration(text: str) -> SchedulerConfiguration:
    return parse_configuration(text, "test")


class Scene:
    """``try_pod`` makes one attempt; ``pod`` and ``node`` are the documents of explanations."""

    def __init__(self, *nodes: Node, configuration: str = CONFIGURATION) -> None:
        self.clock = ManualClock()
        self.now = NOW
        self.view = ClusterView(NodeColumns())
        self.view.now = NOW
        self.state = ClusterState(self.view)
        (self.profile,) = build_profiles(_configuration(configuration), BUILT_IN, self.view)
        self.state.add_event_handlers(self.profile.event_handlers)
        for node in nodes:
            self.state.set_node(node)
        self.engine = Engine(self.profile, self.state, FirstChoice())
        self.queue = SchedulingQueue(lambda pod, at: (at,), self._gate, self.clock.monotonic)
        self.log = DecisionLog()

    @property
    def sources(self) -> Sources:
        profiles: dict[str, Profile] = {self.profile.scheduler_name: self.profile}
        return Sources(self.log, self.queue, self.view, profiles, lambda: self.now, self.clock.monotonic)

    def pod(self, name: str) -> dict[str, Any]:
        found = explain_pod(self.sources, "default", name)
        assert found is not None
        document: dict[str, Any] = to_document(found)
        return document

    def node(self, name: str) -> dict[str, Any]:
        found = explain_node(self.sources, name)
        assert found is not None
        document: dict[str, Any] = to_document(found)
        return document

    def info(self, pod: Pod) -> PodInfo:
        return make_pod_info(pod)

    def place(self, pod: Pod) -> None:
        """A pod that is on its node already."""
        self.state.set_pod(self.info(pod), pod.spec.node_name)

    def add(self, pod: Pod) -> None:
        self.queue.add(self.info(pod))

    def take(self, pod: Pod) -> QueuedPod:
        """The pod is in flight."""
        self.add(pod)
        entry = self.queue.take(pod.metadata.uid)
        assert entry is not None
        return entry

    def try_pod(self, pod: Pod) -> Placement | Rejection:
        """One attempt, as the loop makes it: the pod is assumed on a node, or unschedulable."""
        entry = self.take(pod)
        result = self.engine.decide(entry.pod, self.now)
        number = entry.attempts
        if isinstance(result, Rejection):
            self.queue.add_unschedulable(entry, result.events_to_register, result.message, plugins=result.plugins)
            self.log.add(entry.pod.key, Attempt(NOW, number, rejection=result))
        else:
            self.engine.assume(result)
            self.queue.remove(entry.pod.uid)
            self.log.add(entry.pod.key, Attempt(NOW, number, placement=result))
        return result

    def report(self, name: str, cpu: str, memory: str, age: float = 1.0) -> None:
        """The node's agent has measured so much ``age`` seconds ago."""
        usage = ResourceMap(resources={"cpu": Quantity.parse(cpu), "memory": Quantity.parse(memory)})
        status = NodeMetricStatus(
            update_time=NOW - timedelta(seconds=age), node_metric=NodeMetricInfo(node_usage=usage)
        )
        metric = NodeMetric(metadata=ObjectMeta(name=name), status=status)
        self.state.set_node_object(NODE_METRICS.name, name, metric)

    def _gate(self, pod: PodInfo) -> str | None:
        gated = self.profile.gate(pod)
        return f"{gated[0]}: {gated[1]}" if gated else None


def tainted(node: Node, key: str, value: str = "", effect: str = "NoSchedule") -> Node:
    spec = msgspec.structs.replace(node.spec, taints=[*node.spec.taints, Taint(key=key, value=value, effect=effect)])
    return msgspec.structs.replace(node, spec=spec)


def refused_by_its_quota() -> Scene:
    """One node, and the pod p, which is larger than its quota."""
    scene = Scene(make_node("a"), configuration=WITH_QUOTAS)
    quota = ElasticQuota(
        metadata=ObjectMeta(name="q", namespace="default"), spec=ElasticQuotaSpec(max={"cpu": Quantity.parse("500m")})
    )
    scene.state.set_object(ELASTIC_QUOTAS, quota.metadata.key, quota)
    pod = make_pod("p", labels={"quota.scheduling.koordinator.sh/name": "q"})
    scene.state.show_pod(scene.info(pod), "")
    scene.try_pod(pod)
    return scene
