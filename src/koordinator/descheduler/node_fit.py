"""Whether pods would fit on certain nodes: a subset of the scheduler's filters, over all those nodes at once.

Node selectors, required node affinity, taints, ``spec.unschedulable``, the pod's own required anti-affinity, the number
of pods, and requests against what is allocatable and not reserved. The nodes are columns; what a placement takes is
booked at once, so that no two pods count on the same capacity.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.resource_names import PODS
from koordinator.descheduler.framework import Snapshot
from koordinator.descheduler.requests import amount, requests_of, reserved_requests
from koordinator.model.label_selector import CompiledSelector, SelectorError, compile_selector
from koordinator.model.node_selector import required_predicate
from koordinator.model.tolerations import untolerated

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_UNLIMITED: Final = 2**62
_MOST: Final = 2**61
"""Beyond what any node has. Columns have 64 bits: one object that says more must not make them overflow."""
AntiAffinityTerm = tuple[CompiledSelector, frozenset[str], str]
"""Selector, namespaces and topology key of a term of pod affinity."""


def _bounded_requests(pod: Pod) -> dict[str, int]:
    return {name: _bounded(wanted) for name, wanted in requests_of(pod).items()}


def _bounded(amount: int) -> int:
    return max(-_MOST, min(amount, _MOST))


class TargetNodes:
    """The free capacity of some nodes, by the snapshot and what has been booked since."""

    def __init__(self, snapshot: Snapshot, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._index = {node.metadata.name: index for index, node in enumerate(nodes)}
        self._pods = [list(snapshot.pods_on(node.metadata.name)) for node in nodes]
        self._reserved = [_reserved_on(node, snapshot) for node in nodes]
        self._free: dict[str, Ints] = {}
        self._requested: dict[str, Ints] = {}
        self._masks: dict[Hashable, Mask] = {}
        limits = [node.status.allocatable.get(PODS) for node in nodes]
        self._slots = np.array(
            [
                _UNLIMITED if limit is None else _bounded(limit.value) - len(pods) - len(reserved)
                for limit, pods, reserved in zip(limits, self._pods, self._reserved, strict=True)
            ],
            dtype=np.int64,
        )
        self._sum_requests()

    def fitting(self, pod: Pod, *, own_node: bool = False) -> Mask:
        """Nodes x 1: where the pod would fit. Its own node is among them only with ``own_node``."""
        mask = self._static_mask(pod) & self.with_free_capacity(pod)
        if not own_node:
            own = self._index.get(pod.spec.node_name)
            if own is not None:
                mask[own] = False
        terms = anti_affinity(pod)
        if terms:
            for index in np.flatnonzero(mask):
                mask[index] = not _matches_any(terms, pod, self._pods[index])
        return mask

    def with_free_capacity(self, pod: Pod) -> Mask:
        """Nodes x 1: where the pod's requests fit, whatever else speaks against the node."""
        mask = self._slots > 0
        for name, wanted in _bounded_requests(pod).items():
            if name != PODS:
                mask &= self._free_of(name) >= wanted
        return mask

    def book(self, pod: Pod, index: int) -> None:
        """Count the pod on the node with this index."""
        for name, wanted in _bounded_requests(pod).items():
            self._free_of(name)[index] -= wanted
        self._slots[index] -= 1
        self._pods[index].append(pod)

    def unbook(self, pod: Pod, index: int) -> None:
        """Undo ``book``."""
        for name, wanted in _bounded_requests(pod).items():
            self._free_of(name)[index] += wanted
        self._slots[index] += 1
        self._pods[index].remove(pod)

    def _sum_requests(self) -> None:
        for index, pods in enumerate(self._pods):
            total: dict[str, int] = {}
            for requests in (*map(requests_of, pods), *self._reserved[index]):
                for name, wanted in requests.items():
                    total[name] = total.get(name, 0) + wanted
            for name, wanted in total.items():
                column = self._requested.get(name)
                if column is None:
                    column = self._requested[name] = np.zeros(len(self._nodes), dtype=np.int64)
                column[index] = _bounded(wanted)

    def _free_of(self, name: str) -> Ints:
        """What a node does not say is allocatable, it does not have."""
        free = self._free.get(name)
        if free is None:
            quantities = (node.status.allocatable.get(name) for node in self._nodes)
            allocatable = [0 if quantity is None else _bounded(amount(name, quantity)) for quantity in quantities]
            free = np.array(allocatable, dtype=np.int64)
            if name in self._requested:
                free -= self._requested[name]
            self._free[name] = free
        return free

    def _static_mask(self, pod: Pod) -> Mask:
        """Of selectors, affinity and taints; one array for all pods that are alike in these, never to be changed."""
        affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
        key = msgspec.json.encode((sorted(pod.spec.node_selector.items()), affinity, pod.spec.tolerations))
        mask = self._masks.get(key)
        if mask is None:
            wanted = required_predicate(pod)
            results = (
                not node.spec.unschedulable and (wanted is None or wanted(node)) and tolerates_node(pod, node)
                for node in self._nodes
            )
            mask = self._masks[key] = np.fromiter(results, dtype=np.bool_, count=len(self._nodes))
        return mask


def _reserved_on(node: Node, snapshot: Snapshot) -> list[dict[str, int]]:
    """The requests of pods to come: each of these will take a slot, too."""
    found = map(reserved_requests, snapshot.reservations.get(node.metadata.name, ()))
    return [requests for requests in found if any(requests.values())]


def tolerates_node(pod: Pod, node: Node) -> bool:
    """Whether the pod tolerates all taints that keep pods away."""
    return not any(untolerated(pod.spec.tolerations, node.spec.taints))


def selects_node(pod: Pod, node: Node) -> bool:
    """Whether the node is one that the pod's node selector and required node affinity allow."""
    wanted = required_predicate(pod)
    return wanted is None or wanted(node)


def anti_affinity(pod: Pod) -> list[AntiAffinityTerm]:
    """The pod's required terms; one whose selector cannot be read is left out."""
    affinity = pod.spec.affinity.pod_anti_affinity if pod.spec.affinity else None
    terms: list[AntiAffinityTerm] = []
    for term in affinity.required_during_scheduling_ignored_during_execution if affinity else ():
        try:
            selector = compile_selector(term.label_selector)
        except SelectorError:
            continue
        terms.append((selector, frozenset(term.namespaces or (pod.metadata.namespace,)), term.topology_key))
    return terms


def _matches_any(terms: Sequence[AntiAffinityTerm], pod: Pod, others: Iterable[Pod]) -> bool:
    """Whether another pod is one that any term wants to be away from."""
    return any(
        other.metadata.namespace in namespaces and selector.matches(other.metadata.labels)
        for other in others
        if other.metadata.uid != pod.metadata.uid
        for selector, namespaces, _ in terms
    )
