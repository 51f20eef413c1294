"""NodePorts: two pods cannot have the same host port on one node."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from koordinator.api.pod import Pod, lasting_containers
from koordinator.base.groups import Counts, Groups
from koordinator.scheduler.engine.columns import Aspect, Ints, Rows
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.framework import EventHandler, FilterPlugin, PreFilterPlugin, PreFilterResult, Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.explainer import Explainer, Lack

_ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - a value of hostIP, not an address that we bind
_HostPort = tuple[str, str, int]
"""(address, protocol, port)."""


def host_ports(pod: Pod) -> tuple[_HostPort, ...]:
    """The host ports that the pod uses while it runs: those of its containers and sidecars."""
    spec = pod.spec
    if not spec.init_containers and not any(container.ports for container in spec.containers):
        return ()
    return tuple(
        sorted(
            {
                (port.host_ip or _ANY_ADDRESS, port.protocol or "TCP", port.host_port)
                for container in lasting_containers(pod)
                for port in container.ports
                if port.host_port > 0
            }
        )
    )


def _ports_of(pod: PodInfo) -> tuple[_HostPort, ...]:
    known: tuple[_HostPort, ...] | None = pod.memo.get(NodePorts.name)
    if known is None:
        known = pod.memo[NodePorts.name] = host_ports(pod.pod)
    return known


def _conflict(one: _HostPort, other: _HostPort) -> bool:
    return one[1:] == other[1:] and (one[0] == other[0] or _ANY_ADDRESS in (one[0], other[0]))


class NodePorts(PreFilterPlugin, FilterPlugin, EventHandler, Explainer):
    name = "NodePorts"
    reads: ClassVar[tuple[Aspect, ...]] = (Aspect.PODS,)
    handles_status_updates: ClassVar[bool] = False

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self._used = Counts[tuple[str, int], tuple[int, str]]()
        """(protocol, port) -> (row, address) -> pods."""
        self._counted = Groups[int, str, tuple[_HostPort, ...]]()
        """Row -> uid of a pod -> its ports."""

    def reads_pod(self, pod: PodInfo) -> bool:
        return bool(_ports_of(pod))

    def on_pod_assigned(self, row: int, pod: PodInfo, assumed: bool) -> None:
        # Most running pods have none, which need not be cached.
        known: tuple[_HostPort, ...] | None = pod.memo.get(self.name)
        ports = known if known is not None else host_ports(pod.pod)
        if ports == (self._counted[row].get(pod.uid, ()) if row in self._counted else ()):
            return
        self._forget(row, pod.uid)
        if ports:
            self._counted.put(row, pod.uid, ports)
        for address, protocol, port in ports:
            self._used.add((protocol, port), (row, address), 1)

    def on_pod_removed(self, row: int, pod: PodInfo) -> None:
        if row in self._counted:
            self._forget(row, pod.uid)

    def on_node_removed(self, row: int, name: str) -> None:
        for uid in list(self._counted.of(row)):
            self._forget(row, uid)

    def class_key(self, pod: PodInfo) -> Hashable:
        return _ports_of(pod)

    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        ports = _ports_of(pod)
        return PreFilterResult(state=ports, skip=not ports)

    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        taken = {row for port in state for row in self._taken(port)}
        if not taken:
            return np.zeros(rows.shape[0], dtype=np.int64)
        return np.array([row in taken for row in rows.tolist()], dtype=np.int64)

    def lacks(self, pod: PodInfo, state: Any, code: int, row: int) -> Sequence[Lack]:
        return [Lack(f"host port {port[2]}/{port[1]} is taken") for port in state if row in self._taken(port)]

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return (Reason("node(s) didn't have free ports for the requested pod ports"),)

    def events_to_register(self) -> frozenset[str]:
        return frozenset({EventKind.NODE_ADD, EventKind.POD_DELETE})

    def queueing_hint(self, pod: PodInfo, event: ClusterEvent) -> bool:
        if event.kind != EventKind.POD_DELETE or event.old is None:
            return True
        return any(_conflict(wanted, freed) for freed in host_ports(event.old.pod) for wanted in _ports_of(pod))

    def _taken(self, wanted: _HostPort) -> list[int]:
        """The rows on which some pod has the port."""
        address, protocol, port = wanted
        return [
            row for row, used in self._used.of((protocol, port)) if address == used or _ANY_ADDRESS in (address, used)
        ]

    def _forget(self, row: int, uid: str) -> None:
        for address, protocol, port in self._counted.take(row, uid) or ():
            self._used.add((protocol, port), (row, address), -1)
