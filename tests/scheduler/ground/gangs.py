"""A plugin for gangs, in small: pods with the label ``gang`` are bound when as many as ``size`` says have a node."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from koordinator.api.pod import Pod
from koordinator.scheduler.engine.binding_points import (
    CyclePreFilterPlugin,
    CycleState,
    PermitPlugin,
    ReservePlugin,
    Wait,
)
from koordinator.scheduler.engine.columns import NodeReference
from koordinator.scheduler.engine.framework import PreEnqueuePlugin, Reason
from koordinator.scheduler.engine.handle import Handle
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView

SECONDS = 600.0


def gang_of(pod: Pod) -> str:
    return pod.metadata.labels.get("gang", "")


class Gangs(PreEnqueuePlugin, CyclePreFilterPlugin, ReservePlugin, PermitPlugin):
    """Strict: if one member fails, none is bound. ``open`` is the names of gangs that may be tried."""

    name = "Gangs"
    handle: Handle

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self.open: set[str] = set()
        self.broken: dict[str, str] = {}
        """Gang -> why no member may go on."""
        self.unreserved: list[str] = []

    def class_key(self, pod: PodInfo) -> Hashable:
        return None

    def pre_enqueue(self, pod: Pod) -> Reason | None:
        gang = gang_of(pod)
        return Reason(f"gang {gang} is not complete") if gang and gang not in self.open else None

    def complete(self, gang: str, uids: list[str]) -> None:
        """All members are there: they may be tried."""
        self.open.add(gang)
        self.handle.activate(uids)

    def pre_filter_cycle(self, state: CycleState, pod: PodInfo) -> Reason | None:
        why = self.broken.get(gang_of(pod.pod))
        state.write("gang", gang_of(pod.pod))
        return Reason(why) if why else None

    def reserve(self, state: CycleState, pod: PodInfo, node: NodeReference) -> Reason | None:
        return Reason("no room for gangs") if pod.pod.metadata.labels.get("unlucky") else None

    def unreserve(self, state: CycleState, pod: PodInfo, node: NodeReference) -> None:
        self.unreserved.append(pod.key)
        for waiting in self.handle.waiting:
            if gang_of(waiting.pod.pod) == state.read("gang") != "":
                waiting.reject(self.name, f"gang {state.read('gang')} is rejected because of {pod.key}")

    def permit(self, state: CycleState, pod: PodInfo, node: NodeReference) -> Reason | Wait | None:
        gang = state.read("gang")
        if not gang:
            return None
        members = [waiting for waiting in self.handle.waiting if gang_of(waiting.pod.pod) == gang]
        if len(members) + 1 < int(pod.pod.metadata.labels["size"]):
            return Wait(SECONDS)
        for member in members:
            member.allow(self.name)
        return None
