"""Persistent volumes in the order in which claims look for them: by class, the smallest first.

A volume on a node's own disk can only be used where its affinity names the host, so such volumes are kept by host: a
node is shown its own and those that are not tied to one, and nothing else.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import msgspec

from koordinator.api.pod import NodeSelector, NodeSelectorTerm
from koordinator.api.volume import PersistentVolume, class_of_volume
from koordinator.base.groups import Groups
from koordinator.model.node_selector import NodePredicate, term_predicate
from koordinator.scheduler.plugins.node_labels import HOST_NAME

STORAGE: Final = "storage"
_AVAILABLE: Final = "Available"
_NO_LISTS: Final[Mapping[bytes, Sequence[Candidate]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """A volume that a claim may be bound to; sorts by size, then by name."""

    size: int
    """In billionths, as Quantity.nanos."""
    name: str
    volume: PersistentVolume = field(compare=False)
    passes: NodePredicate | None = field(default=None, compare=False)
    """The node affinity of a volume that is tied to hosts."""


def hosts_of_volume(volume: PersistentVolume) -> frozenset[str] | None:
    """The only hosts on which the volume can be used; None when its affinity does not name them."""
    required = affinity_of(volume)
    return hosts_of(required) if required is not None else None


def affinity_of(volume: PersistentVolume) -> NodeSelector | None:
    """Where the volume can be used; None for everywhere."""
    affinity = volume.spec.node_affinity
    return affinity.required if affinity is not None else None


def affinity_key(volume: PersistentVolume) -> bytes:
    """Equal for volumes that can be used on the same nodes."""
    return msgspec.json.encode(affinity_of(volume))


def claim_key(volume: PersistentVolume) -> str | None:
    """The claim that the volume is bound to or kept for."""
    reference = volume.spec.claim_ref
    return f"{reference.namespace}/{reference.name}" if reference is not None else None


class VolumeLists:
    """Volumes that are free, and those that belong to a claim, as assumed. ``set`` and ``remove`` keep them current."""

    def __init__(self) -> None:
        self._free: dict[str, dict[bytes, list[Candidate]]] = {}
        """By class and affinity."""
        self._on_hosts: dict[str, dict[str, list[Candidate]]] = {}
        """By class and host."""
        self._of_claim = Groups[str, str, PersistentVolume]()
        self._listed: dict[str, PersistentVolume] = {}

    def set(self, volume: PersistentVolume) -> None:
        """The volume is like this now."""
        name, key = volume.metadata.name, claim_key(volume)
        self.remove(name)
        self._listed[name] = volume
        if key is not None:
            self._of_claim.put(key, name, volume)
        elif is_free(volume):
            required = affinity_of(volume) if hosts_of_volume(volume) is not None else None
            passes = volume_predicate(required) if required is not None else None
            for lists, place in self._places(volume):
                insort(lists.setdefault(place, []), Candidate(size_of(volume), name, volume, passes))

    def remove(self, name: str) -> None:
        """The volume is gone."""
        volume = self._listed.pop(name, None)
        if volume is None:
            return
        key = claim_key(volume)
        if key is not None:
            self._of_claim.take(key, name)
        elif is_free(volume):
            for lists, place in self._places(volume):
                candidates = lists[place]
                del candidates[bisect_left(candidates, Candidate(size_of(volume), name, volume))]
                if not candidates:
                    del lists[place]

    def known(self, name: str) -> PersistentVolume | None:
        """The volume as it is listed."""
        return self._listed.get(name)

    def free(self, class_name: str) -> Mapping[bytes, Sequence[Candidate]]:
        """Free volumes of a class that are not tied to hosts, by their affinity (see affinity_key)."""
        return self._free.get(class_name, _NO_LISTS)

    def on_host(self, class_name: str, host: str) -> Sequence[Candidate]:
        """Free volumes of a class that can only be used on hosts of which this is one."""
        return self._on_hosts.get(class_name, {}).get(host, ())

    def any_on_hosts(self, class_name: str) -> bool:
        """Whether a class has free volumes that are tied to hosts."""
        return bool(self._on_hosts.get(class_name))

    def of_claim(self, key: str) -> Mapping[str, PersistentVolume]:
        """Volumes that are bound to a claim or kept for it, by name."""
        return self._of_claim.of(key)

    def _places(self, volume: PersistentVolume) -> list[tuple[dict[Any, list[Candidate]], str | bytes]]:
        """The lists that the volume, which is free, belongs in."""
        class_name, hosts = class_of_volume(volume), hosts_of_volume(volume)
        if hosts is None:
            return [(self._free.setdefault(class_name, {}), affinity_key(volume))]
        by_host = self._on_hosts.setdefault(class_name, {})
        return [(by_host, host) for host in sorted(hosts)]


def is_free(volume: PersistentVolume) -> bool:
    """Whether any claim may have the volume."""
    available = volume.status.phase == _AVAILABLE and volume.metadata.deletion_timestamp is None
    return volume.spec.claim_ref is None and available


def size_of(volume: PersistentVolume) -> int:
    """In billionths."""
    capacity = volume.spec.capacity.get(STORAGE)
    return capacity.nanos if capacity is not None else 0


def volume_predicate(selector: NodeSelector) -> NodePredicate:
    """A volume's node affinity: any of the terms. Their conditions on fields of the node are not checked: upstream
    passes them a node with nothing but labels (component-helpers, CheckNodeAffinity)."""
    terms = [compiled for term in selector.node_selector_terms if (compiled := _by_labels(term)) is not None]
    return lambda node: any(term(node) for term in terms)


def _by_labels(term: NodeSelectorTerm) -> NodePredicate | None:
    if term.match_fields and not term.match_expressions:
        return lambda node: True
    return term_predicate(NodeSelectorTerm(match_expressions=term.match_expressions))


def hosts_of(selector: NodeSelector) -> frozenset[str] | None:
    """The only host names that a matching node can bear; None when some term allows any."""
    hosts = frozenset[str]()
    for term in selector.node_selector_terms:
        named = [set(each.values) for each in term.match_expressions if each.key == HOST_NAME and each.operator == "In"]
        if not named:
            return None
        hosts |= set.intersection(*named)
    return hosts
