"""Why a pod's volumes keep it from a node, claim by claim, in words. Reads the index again: this need not be fast."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from koordinator.api.node import Node
from koordinator.api.pod import NodeSelector, NodeSelectorTerm
from koordinator.api.volume import PersistentVolume, PersistentVolumeClaim, TopologySelectorTerm, class_of_claim
from koordinator.scheduler.explain.explainer import Lack, amount_text, some
from koordinator.scheduler.plugins.unmet_selector import nearest_unmet
from koordinator.scheduler.plugins.volumes.claims import is_fully_bound, read_claims
from koordinator.scheduler.plugins.volumes.finder import (
    BoundVolume,
    Finder,
    Provisioning,
    largest_volume,
    selected_node,
)
from koordinator.scheduler.plugins.volumes.index import VolumeIndex
from koordinator.scheduler.plugins.volumes.pod_volumes import PodVolumes, conflict
from koordinator.scheduler.plugins.volumes.volume_lists import STORAGE, affinity_of


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
    provisioning, name = Provisioning(index, claim), class_of_claim(claim)
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


def disk_lacks(index: VolumeIndex, volumes: PodVolumes, row: int) -> list[Lack]:
    """The pods on ``row`` that use a disk in a way that does not allow sharing."""
    found = []
    for disk in volumes.disks:
        users = [
            f"{each.namespace}/{each.pod}" for each in index.placed.on_row(row).values() if conflict([disk], each.disks)
        ]
        if users:
            found.append(Lack(f"volume {disk.name}: its disk is in use there by {some(users)}"))
    return found


def sharing_lacks(index: VolumeIndex, volumes: PodVolumes, in_use: Iterable[str]) -> list[Lack]:
    """The pods that use claims that one pod may use at a time; ``in_use`` are the keys of such claims."""
    found = []
    for key in in_use:
        pods_on = index.view.pods_on
        users = [pods_on[row][uid].key for uid, row in index.placed.users(key).items() if uid in pods_on.get(row, ())]
        if users:
            name = key.removeprefix(f"{volumes.namespace}/")
            found.append(Lack(f"claim {name} is for one pod at a time (ReadWriteOncePod), {some(users)} uses it"))
    return found


def _named(claim: PersistentVolumeClaim) -> str:
    return f"claim {claim.metadata.name}"
