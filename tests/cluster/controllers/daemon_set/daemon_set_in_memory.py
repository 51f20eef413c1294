"""A DaemonSet, nodes and pods in memory, moved along by the decisions of the controller alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from koordinator.api.codec import convert
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node, NodeSpec, Taint
from koordinator.api.pod import Pod, PodCondition, PodStatus
from koordinator.cluster.controllers.daemon_set.new_pod import fitness_of, new_pod
from koordinator.cluster.controllers.daemon_set.pod_plan import DaemonPods, NodePods, PodPlan, by_node, plan_pods
from koordinator.cluster.controllers.daemon_set.types import DaemonSet, DaemonSetSpec, DaemonSetUpdateStrategy
from koordinator.cluster.controllers.workloads import RollingUpdate

START = datetime(2026, 1, 1, tzinfo=UTC)


def daemon_set_with(surge: int | str = 0, unavailable: int | str = 1, **spec: Any) -> DaemonSet:
    strategy = DaemonSetUpdateStrategy(rolling_update=RollingUpdate(max_surge=surge, max_unavailable=unavailable))
    given: dict[str, Any] = {
        "update_strategy": strategy,
        "template": {"spec": {"containers": [{"name": "main"}]}},
    } | spec
    return DaemonSet(metadata=ObjectMeta(name="agent", namespace="default", uid="agent"), spec=DaemonSetSpec(**given))


def node_with(name: str, *taints: tuple[str, str], **labels: str) -> Node:
    spec = NodeSpec(taints=[Taint(key=key, effect=effect) for key, effect in taints])
    return Node(metadata=ObjectMeta(name=name, labels=labels), spec=spec)


class DaemonSetInMemory:
    def __init__(self, daemon_set: DaemonSet, nodes: list[Node]) -> None:
        self.daemon_set = daemon_set
        self.nodes = nodes
        self.pods: dict[str, Pod] = {}
        self.revision = "first"
        self._created = 0

    def state(self) -> DaemonPods:
        fits, placed = fitness_of(self.daemon_set), by_node(list(self.pods.values()))
        nodes = [NodePods(n.metadata.name, fits(n), placed.get(n.metadata.name, [])) for n in self.nodes]
        names = {node.metadata.name for node in self.nodes}
        nowhere = [pod for name, pods in placed.items() if name not in names for pod in pods]
        return DaemonPods(self.daemon_set, nodes, nowhere, self.revision, START)

    def run_pass(self) -> PodPlan:
        plan = plan_pods(self.state(), lambda node: 0.0)
        for node in plan.create:
            self._created += 1
            uid = f"pod-{self._created}"
            document = new_pod(self.daemon_set, node, self.revision)
            document["metadata"] |= {"name": uid, "uid": uid}
            pod = convert(document, Pod)
            created = START + timedelta(seconds=self._created)
            self.pods[uid] = replace(pod, metadata=replace(pod.metadata, creation_timestamp=created))
        for pod in plan.delete:
            gone = self.pods[pod.metadata.uid]
            self.pods[pod.metadata.uid] = replace(gone, metadata=replace(gone.metadata, deletion_timestamp=START))
        return plan

    def run_pods(self, only: int | None = None) -> None:
        """Deleted pods are gone, and the others get ready; or what happens to one of them."""
        uids = sorted(self.pods)
        for uid in uids if only is None else uids[only % len(uids) : only % len(uids) + 1] if uids else []:
            if self.pods[uid].metadata.deletion_timestamp is not None:
                del self.pods[uid]
            else:
                self.set_status(uid, "Running", ready=True)

    def set_status(self, uid: str, phase: str, *, ready: bool) -> None:
        condition = PodCondition(type="Ready", status=str(ready), last_transition_time=START)
        self.pods[uid] = replace(self.pods[uid], status=PodStatus(phase=phase, conditions=(condition,)))

    @property
    def unavailable(self) -> int:
        """Nodes that should have a pod and have none that is available."""
        state = self.state()
        return sum(
            node.fitness.should_run
            and not any(p.metadata.deletion_timestamp is None and state.is_available(p) for p in node.pods)
            for node in state.nodes
        )
