"""A small cluster with the plugin on it, and beside it the plain picture that the reference reads."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from koordinator.api.kinds import REPLICATION_CONTROLLERS, SERVICES, Kind
from koordinator.api.meta import LabelSelector, ObjectMeta
from koordinator.api.node import Node
from koordinator.api.pod import Pod, PodSpec, TopologySpreadConstraint
from koordinator.api.workload import (
    ReplicationController,
    ReplicationControllerSpec,
    ScalableSpec,
    Service,
    ServiceSpec,
    Workload,
)
from koordinator.scheduler.configuration.upstream_arguments import PodTopologySpreadArgs
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.framework import SkipScore
from koordinator.scheduler.engine.pod_info import PodInfo, make_pod_info
from koordinator.scheduler.engine.profile import PluginOrder, Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.pod_topology_spread.plugin import PodTopologySpread
from tests.scheduler.plugins.pod_topology_spread.reference import Machine, Objects


@dataclass(frozen=True)
class Evaluated:
    """What the plugin says about every node."""

    reasons: dict[str, list[str]]
    unresolvable: set[str]
    scores: dict[str, int] | None
    """Of the feasible nodes; None when the plugin leaves itself out."""


class ClusterFixture:
    """Each change reaches the plugin by the cluster state, and the plain picture directly."""

    def __init__(self, args: PodTopologySpreadArgs | None = None) -> None:
        self.view = ClusterView(NodeColumns())
        self.state = ClusterState(self.view)
        self.args = args or PodTopologySpreadArgs()
        self.by_system = self.args.defaulting_type == "System"
        self.plugin = PodTopologySpread(self.args, self.view)
        self.state.add_event_handlers([self.plugin])
        self.machines: dict[str, Machine] = {}
        self.objects = Objects()
        self.profile = _profile(self.plugin)

    def info(self, pod: Pod) -> PodInfo:
        return make_pod_info(pod)

    def set_node(self, node: Node) -> None:
        self.state.set_node(node)
        name = node.metadata.name
        self.machines[name] = replace(self.machines[name], node=node) if name in self.machines else Machine(node)

    def remove_node(self, name: str) -> None:
        for pod in self.machines.pop(name).pods:
            self.state.remove_pod(pod.metadata.uid)
        self.state.remove_node(name)

    def place(self, pod: Pod, name: str) -> None:
        placed = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=name))
        for machine in self.machines.values():
            machine.pods = [other for other in machine.pods if other.metadata.uid != pod.metadata.uid]
        self.state.set_pod(self.info(placed), name)
        self.machines[name].pods.append(placed)

    def take(self, uid: str) -> None:
        self.state.remove_pod(uid)
        for machine in self.machines.values():
            machine.pods = [pod for pod in machine.pods if pod.metadata.uid != uid]

    def set_service(self, name: str, selector: dict[str, str] | None, namespace: str = "default") -> None:
        """None deletes it."""
        key = f"{namespace}/{name}"
        self.objects.services.pop(key, None)
        service = None
        if selector is not None:
            service = Service(metadata=ObjectMeta(name=name, namespace=namespace), spec=ServiceSpec(selector=selector))
            self.objects.services[key] = service
        self.state.set_object(SERVICES, key, service)

    def set_controller(self, kind: Kind[Any], selector: LabelSelector | None, *, present: bool = True) -> None:
        """A controller that pods may name as their owner."""
        metadata = ObjectMeta(name="owner", namespace="default")
        found: ReplicationController | Workload | None = None
        if present and kind is REPLICATION_CONTROLLERS:
            equalities = dict(selector.match_labels) if selector is not None else {}
            found = ReplicationController(metadata=metadata, spec=ReplicationControllerSpec(selector=equalities))
        elif present:
            found = Workload(metadata=metadata, spec=ScalableSpec(selector=selector))
        if found is None:
            self.objects.controllers.pop((kind.name, metadata.key), None)
        else:
            self.objects.controllers[(kind.name, metadata.key)] = found
        self.state.set_object(kind, metadata.key, found)

    def evaluation(self, pod: Pod) -> Evaluation:
        return Evaluation(self.profile, self.view, self.info(pod))

    def evaluate(self, evaluation: Evaluation) -> Evaluated:
        """What a class of pods is told at this moment."""
        evaluation.refresh()
        reasons: dict[str, list[str]] = {name: [] for name in self.machines}
        unresolvable = set()
        for failure in evaluation.failures():
            for row in failure.rows.tolist():
                name = self.view.columns.names[row]
                found = failure.plugin.reasons(evaluation.pod, failure.state, failure.code)
                reasons[name] = [reason.text for reason in found]
                unresolvable |= {name for reason in found if reason.unresolvable}
        scores = None
        if evaluation.score_names:
            rows = self.view.columns.row_of
            scores = {name: int(evaluation.totals[rows[name]]) for name in self.machines if not reasons[name]}
        return Evaluated(reasons, unresolvable, scores)

    def evaluate_afresh(self, pod: Pod) -> Evaluated:
        """By a plugin that has followed nothing, since classes of one plugin share what they have found out."""
        plugin = PodTopologySpread(self.args, self.view)
        for kind in plugin.watches:
            for key, obj in self.view.objects_of(kind).items():
                plugin.on_object(kind, key, None, obj)
        return self.evaluate(Evaluation(_profile(plugin), self.view, self.info(pod)))

    def scores_if_feasible(self, pod: Pod, names: Sequence[str]) -> dict[str, int] | None:
        """As if other plugins had rejected all other nodes."""
        info = self.info(pod)
        state = self.plugin.pre_score(info)
        if isinstance(state, SkipScore):
            return None
        size = self.view.columns.size
        feasible = np.zeros(size, dtype=np.bool_)
        rows = [self.view.columns.row_of[name] for name in names]
        feasible[rows] = True
        raw = self.plugin.score(info, state, np.arange(size))
        found = self.plugin.normalize(info, state, raw, feasible)
        assert found is not None
        return dict(zip(names, found[rows].tolist(), strict=True))


def class_key(fixture: ClusterFixture, pod: PodInfo) -> Hashable:
    return fixture.plugin.class_key(pod), fixture.plugin.context_key(pod)


def _profile(plugin: PodTopologySpread) -> Profile:
    name = plugin.name
    order = PluginOrder(pre_filter=(name,), filter=(name,), score=((name, 1),))
    return Profile("koord-scheduler", {name: plugin}, order)


def spread_pod(name: str, labels: dict[str, str], *constraints: TopologySpreadConstraint) -> Pod:
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=name, labels=labels),
        spec=PodSpec(topology_spread_constraints=list(constraints)),
    )


def spread(
    key: str, action: str = "DoNotSchedule", *, skew: int = 1, keys: tuple[str, ...] = ()
) -> TopologySpreadConstraint:
    return TopologySpreadConstraint(
        max_skew=skew,
        topology_key=key,
        when_unsatisfiable=action,
        label_selector=LabelSelector(match_labels={"app": "a"}),
        match_label_keys=list(keys),
    )
