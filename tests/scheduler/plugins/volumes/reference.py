"""The four volume plugins once more: node by node, slow, and plain enough to be read against the specification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from koordinator.api.node import Node
from koordinator.api.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, Volume
from koordinator.api.volume import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
    VolumeNodeAffinity,
)

FilterResult = list[tuple[str, bool]]
"""(reason, unresolvable)."""
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE, BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
SELECTED = "volume.kubernetes.io/selected-node"
BOUND = "pv.kubernetes.io/bind-completed"
AWS = "kubernetes.io/aws-ebs"


class RejectedError(Exception):
    """Every node is rejected before any is looked at."""


@dataclass
class Picture:
    """The cluster, as plain objects by key; what is assumed lies over what the API has."""

    nodes: dict[str, Node] = field(default_factory=dict)
    csi_nodes: dict[str, CSINode] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    claims: dict[str, PersistentVolumeClaim] = field(default_factory=dict)
    volumes: dict[str, PersistentVolume] = field(default_factory=dict)
    classes: dict[str, StorageClass] = field(default_factory=dict)
    drivers: dict[str, CSIDriver] = field(default_factory=dict)
    capacities: dict[str, CSIStorageCapacity] = field(default_factory=dict)
    attachments: dict[str, VolumeAttachment] = field(default_factory=dict)
    assumed_claims: dict[str, PersistentVolumeClaim] = field(default_factory=dict)
    assumed_volumes: dict[str, PersistentVolume] = field(default_factory=dict)

    def on(self, name: str) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.spec.node_name == name]

    def claim(self, key: str) -> PersistentVolumeClaim | None:
        return self.assumed_claims.get(key) or self.claims.get(key)

    def all_volumes(self) -> list[PersistentVolume]:
        """The smallest first."""
        volumes = [self.assumed_volumes.get(name, volume) for name, volume in self.volumes.items()]
        return sorted(volumes, key=lambda volume: (size(volume), volume.metadata.name))


def filter_result(picture: Picture, pod: Pod) -> FilterResult | dict[str, FilterResult]:
    """Node -> the reasons of the first plugin that rejects it; the reason alone if that is all nodes."""
    try:
        restrictions_before(picture, pod)
        binding_before(picture, pod)
        zones = zones_before(picture, pod)
    except RejectedError as rejected:
        return [(str(rejected), True)]
    return {
        name: restrictions(picture, pod, node)
        or limits(picture, pod, node)
        or binding(picture, pod, node)
        or zone(node, zones)
        for name, node in sorted(picture.nodes.items())
    }


def claim_names(pod: Pod, *, ephemeral: bool = True) -> list[tuple[str, bool]]:
    """(name of a claim, whether it is ephemeral)."""
    found = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim:
            found.append((volume.persistent_volume_claim.claim_name, False))
        elif volume.ephemeral and ephemeral:
            found.append((f"{pod.metadata.name}-{volume.name}", True))
    return found


def owned(pod: Pod, claim: PersistentVolumeClaim) -> bool:
    return any(owner.controller and owner.uid == pod.metadata.uid for owner in claim.metadata.owner_references)


def class_name(claim: PersistentVolumeClaim) -> str:
    return claim.spec.storage_class_name or ""


def size(obj: PersistentVolume | PersistentVolumeClaim) -> int:
    amounts = obj.spec.capacity if isinstance(obj, PersistentVolume) else obj.spec.resources.requests
    return amounts["storage"].nanos if "storage" in amounts else 0


def label_matches(node: Node, selector: NodeSelector | None) -> bool:
    """For selectors of In requirements."""
    if selector is None:
        return True
    return any(
        all(node.metadata.labels.get(each.key) in each.values for each in term.match_expressions)
        for term in selector.node_selector_terms
    )


def usable(volume: PersistentVolume, node: Node) -> bool:
    affinity = volume.spec.node_affinity
    return label_matches(node, affinity.required if affinity else None)


# VolumeRestrictions.


def restrictions_before(picture: Picture, pod: Pod) -> None:
    for name, _ in claim_names(pod, ephemeral=False):
        if f"default/{name}" not in picture.claims:
            raise RejectedError(f'persistentvolumeclaim "{name}" not found')


def restrictions(picture: Picture, pod: Pod, node: Node) -> FilterResult:
    for mine in pod.spec.volumes:
        for other in picture.on(node.metadata.name):
            if any(same_disk(mine, theirs) for theirs in other.spec.volumes):
                return [("node(s) had no available disk", False)]
    for name, _ in claim_names(pod, ephemeral=False):
        users = [
            other
            for other in picture.pods.values()
            if other.spec.node_name in picture.nodes and (name, False) in claim_names(other)
        ]
        if "ReadWriteOncePod" in picture.claims[f"default/{name}"].spec.access_modes and users:
            text = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
            return [(f"{text}already in-use by another pod", False)]
    return []


def same_disk(a: Volume, b: Volume) -> bool:
    if a.gce_persistent_disk and b.gce_persistent_disk:
        read_only = a.gce_persistent_disk.read_only and b.gce_persistent_disk.read_only
        return a.gce_persistent_disk.pd_name == b.gce_persistent_disk.pd_name and not read_only
    if a.aws_elastic_block_store and b.aws_elastic_block_store:
        return a.aws_elastic_block_store.volume_id == b.aws_elastic_block_store.volume_id
    return False


# NodeVolumeLimits, for drivers of CSI volumes, and of AWS disks that pods name themselves.


def limits(picture: Picture, pod: Pod, node: Node) -> FilterResult:
    csi_node = picture.csi_nodes.get(node.metadata.name)
    for name, _ in claim_names(pod):
        if f"default/{name}" not in picture.claims:
            missing = f'persistentvolumeclaim "{name}" not found'
            return [(f"looking up PVC default/{name}: {missing}", True)]
    new = handles(picture, pod, csi_node)
    present: dict[str, str] = {}
    for other in picture.on(node.metadata.name):
        present.update(handles(picture, other, csi_node))
    attached = dict(present)
    for attachment in picture.attachments.values():
        volume = picture.volumes.get(attachment.spec.source.persistent_volume_name or "")
        if attachment.spec.node_name == node.metadata.name and volume is not None and volume.spec.csi:
            attached[f"{attachment.spec.attacher}/{volume.spec.csi.volume_handle}"] = attachment.spec.attacher
    for driver in csi_node.spec.drivers if csi_node else []:
        if driver.allocatable is None or driver.allocatable.count is None:
            continue
        more = [handle for handle, of in new.items() if of == driver.name and handle not in present]
        there = [handle for handle, of in attached.items() if of == driver.name]
        if more and len(there) + len(more) > driver.allocatable.count:
            return [("node(s) exceed max volume count", False)]
    return []


def handles(picture: Picture, pod: Pod, csi_node: CSINode | None) -> dict[str, str]:
    """Unique name -> driver."""
    found = {}
    for volume in pod.spec.volumes:
        if volume.aws_elastic_block_store and csi_node:
            found[f"ebs.csi.aws.com/{volume.aws_elastic_block_store.volume_id}"] = "ebs.csi.aws.com"
    for name, ephemeral in claim_names(pod):
        claim = picture.claims.get(f"default/{name}")
        if claim is None or (ephemeral and not owned(pod, claim)):
            continue
        bound = picture.volumes.get(claim.spec.volume_name)
        if bound is not None and bound.spec.csi:
            found[f"{bound.spec.csi.driver}/{bound.spec.csi.volume_handle}"] = bound.spec.csi.driver
        elif bound is not None and bound.spec.aws_elastic_block_store and csi_node:
            found[f"ebs.csi.aws.com/{bound.spec.aws_elastic_block_store.volume_id}"] = "ebs.csi.aws.com"
        elif bound is None and class_name(claim) in picture.classes:
            provisioner = picture.classes[class_name(claim)].provisioner
            found[f"{provisioner}/unbound/{name}"] = provisioner
    return found


# VolumeBinding.


def binding_before(picture: Picture, pod: Pod) -> None:
    for name, ephemeral in claim_names(pod):
        claim = picture.claims.get(f"default/{name}")
        if claim is None:
            waiting = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
            raise RejectedError(waiting if ephemeral else f'persistentvolumeclaim "{name}" not found')
        if claim.status.phase == "Lost":
            lost = f'bound to non-existent persistentvolume "{claim.spec.volume_name}"'
            raise RejectedError(f'persistentvolumeclaim "{name}" {lost}')
        if claim.metadata.deletion_timestamp:
            raise RejectedError(f'persistentvolumeclaim "{name}" is being deleted')
        if ephemeral and not owned(pod, claim):
            of = f"for pod default/{pod.metadata.name}"
            raise RejectedError(f"PVC default/{name} was not created {of} (pod is not owner)")
    for claim in claims_of(picture, pod):
        waits = class_name(claim) in picture.classes and mode(picture, claim) == "WaitForFirstConsumer"
        if not is_bound(claim) and (not waits or claim.spec.volume_name):
            raise RejectedError("pod has unbound immediate PersistentVolumeClaims")


def mode(picture: Picture, claim: PersistentVolumeClaim) -> str | None:
    return picture.classes[class_name(claim)].volume_binding_mode


def claims_of(picture: Picture, pod: Pod) -> list[PersistentVolumeClaim]:
    found = {name: picture.claim(f"default/{name}") for name, _ in claim_names(pod)}
    return [claim for claim in found.values() if claim is not None]


def is_bound(claim: PersistentVolumeClaim) -> bool:
    return bool(claim.spec.volume_name) and BOUND in claim.metadata.annotations


def binding(picture: Picture, pod: Pod, node: Node) -> FilterResult:
    claims = claims_of(picture, pod)
    reasons = []
    for claim in claims:
        if is_bound(claim):
            volume = picture.volumes.get(claim.spec.volume_name)
            if volume is None:
                reasons.append("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")
                break
            if not usable(translated(picture, volume, node), node):
                reasons.append("node(s) didn't match PersistentVolume's node affinity")
                break
    unbound = [claim for claim in claims if not is_bound(claim)]
    text = place(picture, unbound, node)[0]
    return [(each, True) for each in sorted([*reasons, *([text] if text else [])])]


def translated(picture: Picture, volume: PersistentVolume, node: Node) -> PersistentVolume:
    """AWS disks, with an affinity to zones or labelled with them, where the driver does the work of the plugin."""
    csi_node = picture.csi_nodes.get(node.metadata.name)
    migrated = csi_node.metadata.annotations.get("storage.alpha.kubernetes.io/migrated-plugins") if csi_node else None
    if volume.spec.aws_elastic_block_store is None or migrated != AWS:
        return volume
    key = "topology.ebs.csi.aws.com/zone"
    terms = [term.match_expressions for term in affinity_terms(volume)]
    text = volume.metadata.labels.get(ZONE, volume.metadata.labels.get(BETA_ZONE))
    if any(each.key == ZONE for term in terms for each in term):
        terms = [[msgspec.structs.replace(each, key=key) if each.key == ZONE else each for each in t] for t in terms]
    elif text is not None:
        zones = NodeSelectorRequirement(key=key, operator="In", values=[value for value in text.split("__") if value])
        terms = [[*term, zones] for term in terms or [[]]]
    if not terms:
        return volume
    required = NodeSelector(node_selector_terms=[NodeSelectorTerm(match_expressions=term) for term in terms])
    affinity = VolumeNodeAffinity(required=required)
    return msgspec.structs.replace(volume, spec=msgspec.structs.replace(volume.spec, node_affinity=affinity))


def affinity_terms(volume: PersistentVolume) -> Sequence[NodeSelectorTerm]:
    affinity = volume.spec.node_affinity
    return affinity.required.node_selector_terms if affinity and affinity.required else ()


def place(
    picture: Picture, claims: list[PersistentVolumeClaim], node: Node
) -> tuple[str, list[tuple[PersistentVolume, PersistentVolumeClaim]], list[PersistentVolumeClaim]]:
    """(why not, volume with claim, claims whose volumes have to be made)."""
    nothing = "node(s) didn't find available persistent volumes to bind"
    to_make = [claim for claim in claims if SELECTED in claim.metadata.annotations]
    if any(claim.metadata.annotations[SELECTED] != node.metadata.name for claim in to_make):
        return nothing, [], []
    pairs: list[tuple[PersistentVolume, PersistentVolumeClaim]] = []
    for claim in sorted((claim for claim in claims if claim not in to_make), key=size):
        volume = match(picture, claim, node, {taken.metadata.name for taken, _ in pairs})
        if volume is None:
            to_make.append(claim)
        else:
            pairs.append((volume, claim))
    for claim in to_make:
        storage_class = picture.classes[class_name(claim)]
        if storage_class.provisioner == "kubernetes.io/no-provisioner":
            return nothing, [], []
        allowed = [each for term in storage_class.allowed_topologies for each in term.match_label_expressions]
        if allowed and not any(node.metadata.labels.get(each.key) in each.values for each in allowed):
            return nothing, [], []
        if not has_capacity(picture, claim, storage_class, node):
            return "node(s) did not have enough free storage", [], []
    return "", pairs, to_make


def match(picture: Picture, claim: PersistentVolumeClaim, node: Node, taken: set[str]) -> PersistentVolume | None:
    fit = [volume for volume in picture.all_volumes() if suits(volume, claim) and volume.metadata.name not in taken]
    for volume in fit:
        if volume.spec.claim_ref is not None:
            return volume if usable(volume, node) else None
    for volume in fit:
        has_modes = set(claim.spec.access_modes) <= set(volume.spec.access_modes)
        if volume.status.phase == "Available" and has_modes and usable(volume, node):
            return volume
    return None


def suits(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    reference = volume.spec.claim_ref
    if reference is not None:
        same_name = reference.name == claim.metadata.name and reference.namespace == claim.metadata.namespace
        if not same_name or reference.uid not in ("", claim.metadata.uid):
            return False
    return (
        size(volume) >= size(claim)
        and volume.spec.storage_class_name == class_name(claim)
        and (volume.spec.volume_mode or "Filesystem") == (claim.spec.volume_mode or "Filesystem")
        and volume.metadata.deletion_timestamp is None
    )


def has_capacity(picture: Picture, claim: PersistentVolumeClaim, storage_class: StorageClass, node: Node) -> bool:
    driver = picture.drivers.get(storage_class.provisioner)
    if "storage" not in claim.spec.resources.requests or driver is None or not driver.spec.storage_capacity:
        return True
    for each in picture.capacities.values():
        limit = each.maximum_volume_size or each.capacity
        topology = each.node_topology.match_labels if each.node_topology else {"nowhere": ""}
        reachable = all(node.metadata.labels.get(key) == value for key, value in topology.items())
        large = limit is not None and limit.value >= claim.spec.resources.requests["storage"].value
        if each.storage_class_name == storage_class.metadata.name and reachable and large:
            return True
    return False


# VolumeZone.


def zones_before(picture: Picture, pod: Pod) -> list[tuple[str, set[str]]]:
    found = []
    for name, _ in claim_names(pod, ephemeral=False):
        claim = picture.claims[f"default/{name}"]
        if not claim.spec.volume_name:
            # VolumeBinding has made sure that its class waits.
            continue
        volume = picture.volumes.get(claim.spec.volume_name)
        if volume is None:
            raise RejectedError(f'persistentvolume "{claim.spec.volume_name}" not found')
        for key in (BETA_ZONE, BETA_REGION, ZONE, REGION):
            if key in volume.metadata.labels:
                values = {value.strip() for value in volume.metadata.labels[key].split("__")}
                if "" not in values:
                    found.append((key, values))
    return found


def zone(node: Node, zones: list[tuple[str, set[str]]]) -> FilterResult:
    labels = node.metadata.labels
    if not any(key in labels for key in (BETA_ZONE, BETA_REGION, ZONE, REGION)):
        return []
    current = {BETA_ZONE: ZONE, BETA_REGION: REGION}
    for key, values in zones:
        value = labels[key] if key in labels else labels.get(current.get(key, key))
        if value not in values:
            return [("node(s) had no available volume zone", True)]
    return []
