"""Where a volume can be made for a claim: by what the class allows and by what its driver has room for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from koordinator.api.node import Node
from koordinator.api.quantity import Quantity
from koordinator.api.volume import (
    NO_PROVISIONER,
    CSIStorageCapacity,
    PersistentVolumeClaim,
    StorageClass,
    TopologySelectorTerm,
)
from koordinator.model.label_selector import CompiledSelector, SelectorError, compile_selector
from koordinator.model.node_selector import NodePredicate
from koordinator.scheduler.plugins.volumes.index import VolumeIndex
from koordinator.scheduler.plugins.volumes.node_tests import NodeTest
from koordinator.scheduler.plugins.volumes.volume_lists import STORAGE, class_of_claim


class Provisioning:
    """What a node must be like for a volume of the claim to be made there. Good as long as the claim's key stays."""

    def __init__(self, index: VolumeIndex, claim: PersistentVolumeClaim) -> None:
        storage_class = index.storage_class(class_of_claim(claim))
        self.possible = storage_class is not None and storage_class.provisioner not in ("", NO_PROVISIONER)
        """Whether volumes of the class are made on demand at all."""
        self.allowed: NodeTest | None = None
        """The topologies of the class; None when it allows all."""
        self.capacity: NodeTest | None = None
        """Enough capacity; None when nobody counts it."""
        if storage_class is not None and self.possible:
            self.allowed = _allowed(index, storage_class)
            self.capacity = _capacity(index, storage_class, claim)


def _allowed(index: VolumeIndex, storage_class: StorageClass) -> NodeTest | None:
    terms = storage_class.allowed_topologies
    if not terms:
        return None
    return index.tests.get(("topology", msgspec.json.encode(terms)), lambda: _topology_predicate(terms))


def _topology_predicate(terms: Iterable[TopologySelectorTerm]) -> NodePredicate:
    """Any of the terms; an empty one, or one without values, matches nothing."""
    wanted = [
        [(each.key, frozenset(each.values)) for each in term.match_label_expressions]
        for term in terms
        if term.match_label_expressions
    ]

    def passes(node: Node) -> bool:
        labels = node.metadata.labels
        return any(all(labels.get(key) in values for key, values in term) for term in wanted)

    return passes


def _capacity(index: VolumeIndex, storage_class: StorageClass, claim: PersistentVolumeClaim) -> NodeTest | None:
    driver = index.driver(storage_class.provisioner)
    requested = claim.spec.resources.requests.get(STORAGE)
    if requested is None or driver is None or not driver.spec.storage_capacity:
        return None
    name, size = storage_class.metadata.name, requested.value
    key = "capacity", name, index.class_version(name), size
    return index.tests.get(key, _capacity_predicate(index.capacities(name).values(), size))


def _capacity_predicate(capacities: Iterable[CSIStorageCapacity], size: int) -> Callable[[], NodePredicate]:
    def compiled() -> NodePredicate:
        selectors = [
            selector
            for capacity in capacities
            if (limit := volume_limit(capacity)) is not None
            and limit.value >= size
            and (selector := _access(capacity)) is not None
        ]
        return _any_selector(selectors)

    return compiled


def volume_limit(capacity: CSIStorageCapacity) -> Quantity | None:
    """The size of the largest volume that can be made."""
    return capacity.maximum_volume_size if capacity.maximum_volume_size is not None else capacity.capacity


def largest_volume(index: VolumeIndex, class_name: str, node: Node) -> int:
    """The size in bytes of the largest volume of a class that there is room for where the node can use it."""
    reachable = [
        limit.value
        for capacity in index.capacities(class_name).values()
        if (limit := volume_limit(capacity)) is not None
        and (selector := _access(capacity)) is not None
        and selector.matches(node.metadata.labels)
    ]
    return max(reachable, default=0)


def _access(capacity: CSIStorageCapacity) -> CompiledSelector | None:
    """The nodes that can use the storage; None when none can, or nobody can tell."""
    if capacity.node_topology is None:
        return None
    try:
        return compile_selector(capacity.node_topology)
    except SelectorError:
        return None


def _any_selector(selectors: Iterable[CompiledSelector]) -> NodePredicate:
    """Whether any matches; the usual kind, one label with one value for each node, is looked up."""
    values: dict[str, set[str]] = {}
    others: list[CompiledSelector] = []
    for selector in selectors:
        if len(selector.equalities) == 1 and not selector.others and not selector.nothing:
            ((key, value),) = selector.equalities
            values.setdefault(key, set()).add(value)
        else:
            others.append(selector)

    def passes(node: Node) -> bool:
        labels = node.metadata.labels
        if any(labels.get(key) in accepted for key, accepted in values.items()):
            return True
        return any(selector.matches(labels) for selector in others)

    return passes
