"""Node by node: whether a pod's claims can be had there, and by which volumes (volumebinding, FindPodVolumes)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
import numpy as np

from koordinator.api.node import Node
from koordinator.api.pod import NodeSelector, NodeSelectorTerm
from koordinator.api.quantity import Quantity
from koordinator.api.volume import (
    NO_PROVISIONER,
    SELECTED_NODE,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    TopologySelectorTerm,
    class_of_claim,
)
from koordinator.model.label_selector import CompiledSelector, SelectorError, compile_selector
from koordinator.model.node_selector import NodePredicate
from koordinator.scheduler.engine.columns import Ints, Mask, Rows
from koordinator.scheduler.explain.explainer import Lack, amount_text
from koordinator.scheduler.plugins.node_affinity import nearest_unmet
from koordinator.scheduler.plugins.node_labels import NodeResults
from koordinator.scheduler.plugins.volumes.claims import (
    ClaimSearch,
    PodClaims,
    affinity_test,
    bound_key,
    is_fully_bound,
    read_claims,
)
from koordinator.scheduler.plugins.volumes.index import VolumeIndex
from koordinator.scheduler.plugins.volumes.pod_volumes import PodVolumes
from koordinator.scheduler.plugins.volumes.volume_lists import STORAGE, affinity_of, hosts_of, volume_predicate


class Provisioning(NamedTuple):
    """What a node must be like for a volume of the claim to be made there. Good as long as the claim's key stays."""

    possible: bool = False
    """Whether volumes of the class are made on demand at all."""
    allowed: NodeResults | None = None
    """The topologies of the class; None when it allows all."""
    capacity: NodeResults | None = None
    """Enough capacity; None when it is not tracked."""


def provisioning_of(index: VolumeIndex, claim: PersistentVolumeClaim) -> Provisioning:
    storage_class = index.storage_class(class_of_claim(claim))
    if storage_class is None or storage_class.provisioner in ("", NO_PROVISIONER):
        return Provisioning()
    terms, allowed = storage_class.allowed_topologies, None
    if terms:
        allowed = index.tests.get(("topology", msgspec.json.encode(terms)), lambda: _topology_predicate(terms))
    return Provisioning(True, allowed, _capacity(index, storage_class, claim))


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


def _capacity(index: VolumeIndex, storage_class: StorageClass, claim: PersistentVolumeClaim) -> NodeResults | None:
    driver = index.driver(storage_class.provisioner)
    requested = claim.spec.resources.requests.get(STORAGE)
    if requested is None or driver is None or not driver.spec.storage_capacity:
        return None
    name, size = storage_class.metadata.name, requested.value
    key = "capacity", name, index.class_version(name), size
    return index.tests.get(key, lambda: _capacity_predicate(index.capacities(name), size))


def _capacity_predicate(capacities: Iterable[CSIStorageCapacity], size: int) -> NodePredicate:
    selectors = [
        selector
        for capacity in capacities
        if (limit := volume_limit(capacity)) is not None
        and limit.value >= size
        and (selector := _access(capacity)) is not None
    ]
    return _any_selector(selectors)


def volume_limit(capacity: CSIStorageCapacity) -> Quantity | None:
    """The size of the largest volume that can be made."""
    return capacity.maximum_volume_size if capacity.maximum_volume_size is not None else capacity.capacity


def largest_volume(index: VolumeIndex, class_name: str, node: Node) -> int:
    """The size in bytes of the largest volume of a class that can be provisioned where the node can use it."""
    reachable = [
        limit.value
        for capacity in index.capacities(class_name)
        if (limit := volume_limit(capacity)) is not None
        and (selector := _access(capacity)) is not None
        and selector.matches(node.metadata.labels)
    ]
    return max(reachable, default=0)


def _access(capacity: CSIStorageCapacity) -> CompiledSelector | None:
    """The nodes that can use the storage; None when none can, or that is not known."""
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


WRONG_NODE: Final = 1
NOTHING_TO_BIND: Final = 2
NO_CAPACITY: Final = 4
VOLUME_MISSING: Final = 8
"""Codes are sums of these."""
Binding = tuple[PersistentVolume, PersistentVolumeClaim]


@dataclass(slots=True)
class Finding:
    """What goes to the pod's claims on one node, if ``code`` is zero."""

    code: int = 0
    bindings: list[Binding] = field(default_factory=list)
    provisions: list[PersistentVolumeClaim] = field(default_factory=list)


class BoundVolume:
    """Where a bound volume can be used; what is written for an in-tree plugin reads otherwise where a driver does its
    work."""

    def __init__(self, index: VolumeIndex, volume: PersistentVolume) -> None:
        self._index = index
        self._test = affinity_test(index, volume)
        _, self._plugin, translated = bound_key(volume)
        self._translated = _translated_test(index, translated) if self._plugin else None

    def evaluate(self, rows: Rows) -> Mask:
        """Whether it can be used on each of ``rows``."""
        passed = self._test.passing(rows) if self._test is not None else np.ones(rows.shape[0], dtype=np.bool_)
        if not self._plugin or self._test is self._translated:
            return passed
        migrated = np.array([self._plugin in self._index.migrated(row) for row in rows.tolist()], dtype=np.bool_)
        if migrated.any():
            passed[migrated] = self._translated.passing(rows[migrated]) if self._translated is not None else True
        return passed


def _translated_test(index: VolumeIndex, encoded: bytes) -> NodeResults | None:
    required = msgspec.json.decode(encoded, type=NodeSelector | None)
    if required is None:
        return None
    return index.tests.get(("volume", encoded), lambda: volume_predicate(required), hosts_of(required))


class Finder:
    """For the claims of one pod, or of all pods with claims like these."""

    def __init__(self, index: VolumeIndex, claims: PodClaims) -> None:
        self._columns = index.view.columns
        self._bound = [BoundVolume(index, volume) if volume is not None else None for volume in claims.bound]
        self._selected = {node for claim in claims.unbound if (node := selected_node(claim)) is not None}
        to_match = [claim for claim in claims.unbound if selected_node(claim) is None]
        searches = [ClaimSearch(index, claim) for claim in to_match]
        self._searches = sorted(searches, key=lambda search: search.size)
        self._to_provision = [claim for claim in claims.unbound if selected_node(claim) is not None]
        self._provisioning = {claim.metadata.key: provisioning_of(index, claim) for claim in claims.unbound}

    def codes(self, rows: Rows) -> Ints:
        """The codes of ``rows``."""
        codes = self._bound_codes(rows)
        if not self._provisioning:
            return codes
        for left, places in self._left_on(rows):
            codes[places] |= NOTHING_TO_BIND if left is None else self._provision_codes(left, rows[places])
        return codes

    def find(self, row: int) -> Finding:
        """What the pod's claims get on ``row``."""
        rows = np.array((row,), dtype=np.intp)
        finding = Finding(int(self._bound_codes(rows)[0]))
        left = self._match(row, finding.bindings)
        if left is None:
            finding.code |= NOTHING_TO_BIND
        else:
            finding.provisions = left
            finding.code |= int(self._provision_codes(left, rows)[0])
        return finding

    def _bound_codes(self, rows: Rows) -> Ints:
        """The first bound volume that is missing or out of reach decides."""
        codes = np.zeros(rows.shape[0], dtype=np.int64)
        for volume in self._bound:
            undecided = np.flatnonzero(codes == 0)
            if volume is None:
                codes[undecided] = VOLUME_MISSING
                break
            codes[undecided[~volume.evaluate(rows[undecided])]] = WRONG_NODE
        return codes

    def _left_on(self, rows: Rows) -> list[tuple[list[PersistentVolumeClaim] | None, Rows]]:
        """The claims that no existing volume is there for, and the places in ``rows`` for which that holds; None where
        claims must go elsewhere."""
        if not self._selected and not any(search.is_open for search in self._searches):
            return [([search.claim for search in self._searches], np.arange(rows.shape[0], dtype=np.intp))]
        if len(self._searches) == 1 and not self._to_provision:
            found = self._searches[0].found_on(rows)
            if found is not None:
                return [([], np.flatnonzero(found)), ([self._searches[0].claim], np.flatnonzero(~found))]
        groups: dict[tuple[str, ...] | None, tuple[list[PersistentVolumeClaim] | None, list[int]]] = {}
        for place, row in enumerate(rows.tolist()):
            left = self._match(row, [])
            key = tuple([claim.metadata.name for claim in left]) if left is not None else None
            groups.setdefault(key, (left, []))[1].append(place)
        return [(left, np.array(places, dtype=np.intp)) for left, places in groups.values()]

    def _match(self, row: int, bindings: list[Binding]) -> list[PersistentVolumeClaim] | None:
        """Find existing volumes, for the smallest claim first; returns the claims that need new ones. None when a claim
        is to be had on another node."""
        node = self._columns.nodes[row]
        if node is None or self._selected - {node.metadata.name}:
            return None
        taken: set[str] = set()
        left = list(self._to_provision)
        for search in self._searches:
            volume = search.find(row, node, taken)
            if volume is None:
                left.append(search.claim)
            else:
                taken.add(volume.metadata.name)
                bindings.append((volume, search.claim))
        return left

    def _provision_codes(self, claims: Sequence[PersistentVolumeClaim], rows: Rows) -> Ints:
        """The first claim for which no volume can be made decides."""
        codes = np.zeros(rows.shape[0], dtype=np.int64)
        for claim in claims:
            provisioning = self._provisioning[claim.metadata.key]
            undecided = np.flatnonzero(codes == 0)
            if not provisioning.possible:
                codes[undecided] = NOTHING_TO_BIND
                break
            if provisioning.allowed is not None:
                codes[undecided[~provisioning.allowed.passing(rows[undecided])]] = NOTHING_TO_BIND
            if provisioning.capacity is not None:
                undecided = np.flatnonzero(codes == 0)
                codes[undecided[~provisioning.capacity.passing(rows[undecided])]] = NO_CAPACITY
        return codes


def selected_node(claim: PersistentVolumeClaim) -> str | None:
    """The node where the claim's volume is being made."""
    return claim.metadata.annotations.get(SELECTED_NODE)


def binding_lacks(index: VolumeIndex, volumes: PodVolumes, row: int) -> list[Lack]:
    """Why claims cannot be had on ``row``: their volumes are out of reach, or none can be found or made."""
    node, claims = index.view.columns.nodes[row], read_claims(index, volumes)
    if node is None or isinstance(claims, str):
        return []
    found = list(_out_of_reach(index, volumes, row, node))
    elsewhere = [claim for claim in claims.unbound if selected_node(claim) not in (None, node.metadata.name)]
    found += [Lack(f"{_named(claim)} is to be had on node {selected_node(claim)}") for claim in elsewhere]
    if not elsewhere:
        for claim in Finder(index, claims).find(row).provisions:
            found += _not_made(index, claim, row, node)
    return found


def _out_of_reach(index: VolumeIndex, volumes: PodVolumes, row: int, node: Node) -> Iterator[Lack]:
    for use in volumes.claims:
        claim = index.claims.get(use.key)
        if claim is None or not is_fully_bound(claim):
            continue
        name = claim.spec.volume_name
        volume = index.volumes.get(name)
        if volume is None:
            yield Lack(f"{_named(claim)}: its volume {name} does not exist")
        elif not BoundVolume(index, volume).evaluate(np.array((row,), dtype=np.intp))[0]:
            for text in _unmet(volume, node):
                yield Lack(f"{_named(claim)}: {text} for its volume {name}")


def _unmet(volume: PersistentVolume, node: Node) -> list[str]:
    required = affinity_of(volume)
    terms = required.node_selector_terms if required is not None else []
    # The fields of nodes in node affinities of volumes are not checked.
    by_labels = NodeSelector([NodeSelectorTerm(match_expressions=term.match_expressions) for term in terms])
    return nearest_unmet(by_labels, node) or ["another node is needed, by what its CSI driver says,"]


def _not_made(index: VolumeIndex, claim: PersistentVolumeClaim, row: int, node: Node) -> Iterator[Lack]:
    """Why no volume can be made for a claim that none is there for."""
    provisioning, name = provisioning_of(index, claim), class_of_claim(claim)
    requested = claim.spec.resources.requests.get(STORAGE)
    size = requested.value if requested is not None else 0
    if not provisioning.possible:
        what = f"{_named(claim)} ({amount_text(STORAGE, size)}): no free volume of class {name} suits it here"
        yield Lack(f"{what}, and none are made on demand")
    elif provisioning.allowed is not None and not provisioning.allowed.of(row):
        storage_class = index.storage_class(name)
        where = _places(storage_class.allowed_topologies) if storage_class is not None else ""
        yield Lack(f"{_named(claim)}: volumes of class {name} are made only where {where}")
    elif provisioning.capacity is not None and not provisioning.capacity.of(row):
        largest = largest_volume(index, name, node)
        text = f"{_named(claim)} needs {amount_text(STORAGE, size)} of class {name}, the largest volume that there is "
        yield Lack(f"{text}room for here has {amount_text(STORAGE, largest)}", (size - largest) / max(size, 1))


def _places(terms: Iterable[TopologySelectorTerm]) -> str:
    """Any of the terms will do."""
    return " or ".join(
        " and ".join(f"{each.key} in ({', '.join(each.values)})" for each in term.match_label_expressions)
        for term in terms
        if term.match_label_expressions
    )


def _named(claim: PersistentVolumeClaim) -> str:
    return f"claim {claim.metadata.name}"
