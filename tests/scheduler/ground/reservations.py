"""A plugin for reservations, in small: a pseudo-pod holds a node's resources, ports and CPUs for pods that name it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import msgspec

from koordinator.api.pod import Pod
from koordinator.scheduler.engine.binding_points import BindOutcome, BindPlugin, ClusterWriter, CycleState
from koordinator.scheduler.engine.columns import NodeReference, Rows
from koordinator.scheduler.engine.framework import EventHandler
from koordinator.scheduler.engine.framework_hooks import FailureHandler, FilterTransformer
from koordinator.scheduler.engine.handle import Handle
from koordinator.scheduler.engine.journal import Adjustment
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView


def reserved_by(pod: PodInfo) -> str:
    """The reservation from which the pod takes."""
    return pod.pod.metadata.labels.get("takes", "")


class Reservations(FilterTransformer, BindPlugin, FailureHandler, EventHandler):
    """A reservation that is on a node looks gone to the pods that may take from it."""

    name = "Reservations"
    handle: Handle

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self.rows: dict[str, int] = {}
        self.placed: dict[str, str] = {}
        self.failures: list[str] = []

    def class_key(self, pod: PodInfo) -> Hashable:
        return reserved_by(pod)

    def on_pod_assigned(self, row: int, pod: PodInfo, assumed: bool) -> None:
        if "reservation" in pod.pod.metadata.labels:
            self.rows[pod.pod.metadata.name] = row

    def on_pod_removed(self, row: int, pod: PodInfo) -> None:
        self.rows.pop(pod.pod.metadata.name, None)

    def on_node_removed(self, row: int, name: str) -> None:
        self.rows = {name: each for name, each in self.rows.items() if each != row}

    def transforms(self, pod: PodInfo) -> bool:
        return bool(reserved_by(pod))

    def before_filter(self, pod: PodInfo, rows: Rows) -> Mapping[int, Adjustment]:
        row = self.rows.get(reserved_by(pod))
        if row is None or row not in rows:
            return {}
        held = next(each for each in self.view.pods_on[row].values() if each.pod.metadata.name == reserved_by(pod))
        return {row: Adjustment(removed=(held,))}

    async def bind(self, state: CycleState, pod: PodInfo, node: NodeReference, writer: ClusterWriter) -> BindOutcome:
        if pod.uid not in self.view.pseudo_pods:
            return BindOutcome.SKIPPED
        self.placed[pod.key] = node.name
        self.handle.set_pseudo_pod(on_node(pod.pod, node.name))
        return BindOutcome.BOUND

    def before_failure(self, pod: PodInfo, message: str) -> bool:
        if pod.uid in self.view.pseudo_pods:
            self.failures.append(message)
        return False


def on_node(pod: Pod, node_name: str) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node_name))
