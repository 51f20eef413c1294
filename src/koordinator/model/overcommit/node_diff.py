"""Computes the patches for a plan: its difference from the stored Node and NodeResourceTopology.

Small differences are delayed: amounts are written when one of them differs by more than a threshold, or when the last
write is long enough ago. A patch has only what changes, so that whatever others write stays. The patch of a
NodeResourceTopology is a JSON patch, since zones and resources are lists, which a merge patch would replace with all
that others have written there. It must be sent for the version that it was computed from alone, or what it appends to a
list is appended again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from msgspec import Struct

from koordinator.api import annotations as annotation_keys
from koordinator.api.node import Node
from koordinator.api.node_resource_topology import NodeResourceTopology, ResourceInfo, Zone
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY
from koordinator.model.overcommit.abnormality import ConditionChange, condition_change
from koordinator.model.overcommit.amounts import ExplainedAmount, is_different
from koordinator.model.overcommit.batch import BATCH_RESOURCES
from koordinator.model.overcommit.plan import Plan, quantity_of
from koordinator.model.overcommit.policies import CapacityPolicy
from koordinator.model.overcommit.ratios import is_normalization_due

Entries = dict[str, Quantity | None]
"""Resource name -> its amount on the node; None: the resource is removed."""

_FIELDS: Final = ("capacity", "allocatable", "available")
_ZERO: Final = Quantity(0)


class NodeDiff(Struct, frozen=True):
    """The difference of a Node, and whether it is time to write it."""

    allocatable: Entries
    capacity: Entries
    annotations: Mapping[str, str | None]
    labels: Mapping[str, str]
    status_due: str = ""
    """Why the status is due to be written, or counts as written when nothing differs; empty: it is not due."""
    metadata_due: str = ""
    """Why the metadata are due to be written; empty: they are not."""

    def status_patch(self) -> dict[str, Any] | None:
        """A merge patch for the node's status, which includes the metadata; None when there is nothing to write."""
        if not self.status_due:
            return None
        status = {
            part: {name: None if amount is None else str(amount) for name, amount in entries.items()}
            for part, entries in (("allocatable", self.allocatable), ("capacity", self.capacity))
            if entries
        }
        patch = self._metadata()
        if status:
            patch["status"] = status
        return patch or None

    def metadata_patch(self) -> dict[str, Any] | None:
        """A merge patch for the node; None when there is nothing to write, or when the status patch includes it."""
        if not self.metadata_due or self.status_due:
            return None
        return self._metadata() or None

    def _metadata(self) -> dict[str, Any]:
        metadata: dict[str, Any] = {}
        if self.annotations:
            metadata["annotations"] = dict(self.annotations)
        if self.labels:
            metadata["labels"] = dict(self.labels)
        return {"metadata": metadata} if metadata else {}


class ZoneDiff(Struct, frozen=True):
    """The difference of the zones of a NodeResourceTopology, if it is time to write it."""

    due: str = ""
    """Why zones are due to be written, or count as written when nothing differs; empty: they are not due."""
    operations: tuple[dict[str, Any], ...] = ()
    """A JSON patch of this very version; empty when there is nothing to write."""


class LastWrites(NamedTuple):
    """When this process last wrote each part of a node; None: never."""

    status: datetime | None = None
    zones: datetime | None = None


class PlanDiff(Struct, frozen=True):
    """All that is due to be written for one plan."""

    node: NodeDiff
    zones: ZoneDiff
    condition: ConditionChange | None


def diff_plan(
    node: Node,
    topology: NodeResourceTopology | None,
    plan: Plan,
    policy: CapacityPolicy,
    now: datetime,
    last: LastWrites,
) -> PlanDiff:
    """Compare a plan with the stored objects. If the plan has no health, an existing condition is removed."""
    return PlanDiff(
        node=diff_node(node, plan, policy, now, last.status),
        zones=ZoneDiff() if topology is None else diff_zones(topology, plan, policy, now, last.zones),
        condition=condition_change(node, plan.health, now),
    )


def diff_node(
    node: Node, plan: Plan, policy: CapacityPolicy, now: datetime, last_status_write: datetime | None
) -> NodeDiff:
    """Compare a plan with a node. ``last_status_write``: when this process last wrote the node's status."""
    wanted = _wanted(node, plan)
    labels = {key: text for devices in plan.devices for key, text in devices.labels.items()}
    stored = node.metadata
    annotations = {key: text for key, text in plan.annotations.items() if stored.annotations.get(key) != text}
    relabelled = {key: text for key, text in labels.items() if stored.labels.get(key) != text}
    has_status = bool(node.status.allocatable) and bool(node.status.capacity)
    return NodeDiff(
        allocatable=_differing(node.status.allocatable, wanted),
        capacity=_differing(node.status.capacity, wanted),
        annotations=annotations,
        labels=relabelled,
        status_due=_status_due(node, wanted, policy, now, last_status_write) if has_status else "",
        metadata_due=_metadata_due(node, plan, annotations, relabelled) if has_status else "",
    )


def diff_zones(
    topology: NodeResourceTopology, plan: Plan, policy: CapacityPolicy, now: datetime, last_write: datetime | None
) -> ZoneDiff:
    """Compare a plan with the stored zones. A zone without amounts in the plan has no batch capacity. ``last_write``:
    when this process last wrote the zones."""
    if not any(amount.resource in BATCH_RESOURCES for amount in plan.amounts):
        return ZoneDiff()
    planned = {zone.zone: {BATCH_CPU: _quantity(zone.cpu), BATCH_MEMORY: _quantity(zone.memory)} for zone in plan.zones}
    operations: list[dict[str, Any]] = []
    due = ""
    for place, zone in enumerate(topology.zones):
        wanted = planned.get(zone.name) or _zeros(zone)
        due = due or _zone_due(zone, wanted, 0.0 if zone.name not in planned else policy.resource_diff_threshold)
        operations += _operations(place, zone, wanted)
    if not due and _is_expired(last_write, policy, now):
        due = f"zones were last written more than {policy.update_time_threshold_seconds} seconds ago, or never"
    return ZoneDiff(due, tuple(operations) if due else ())


def _wanted(node: Node, plan: Plan) -> Entries:
    """Of what is to be removed only what the node has: most nodes have none of the dozen resources of devices."""
    wanted: Entries = {amount.resource: None if amount.is_reset else _quantity(amount) for amount in plan.amounts}
    had = node.status.allocatable.keys() | node.status.capacity.keys()
    for devices in plan.devices:
        wanted.update(dict.fromkeys(had.intersection(devices.removed)))
        wanted.update(devices.amounts)
    return wanted


def _quantity(amount: ExplainedAmount) -> Quantity:
    return quantity_of(amount.resource, amount.value if amount.published is None else amount.published)


def _is_expired(last_write: datetime | None, policy: CapacityPolicy, now: datetime) -> bool:
    """A write that is still to come was made before the clock was set back: when that was, nobody knows."""
    threshold = timedelta(seconds=policy.update_time_threshold_seconds)
    return last_write is None or not last_write <= now <= last_write + threshold


def _differing(stored: Mapping[str, Quantity], wanted: Entries) -> Entries:
    return {name: amount for name, amount in wanted.items() if stored.get(name) != amount}


def _status_due(
    node: Node, wanted: Entries, policy: CapacityPolicy, now: datetime, last_status_write: datetime | None
) -> str:
    threshold = policy.resource_diff_threshold
    for name, amount in wanted.items():
        if is_different(node.status.allocatable.get(name), amount, threshold):
            return f"{name} differs by more than {threshold:g} of what the node says"
    if last_status_write is None:
        return "the status has not been written since the start of this process"
    if _is_expired(last_status_write, policy, now):
        return f"the status was last written more than {policy.update_time_threshold_seconds} seconds ago"
    return ""


def _metadata_due(node: Node, plan: Plan, annotations: Mapping[str, str | None], labels: Mapping[str, str]) -> str:
    key = annotation_keys.CPU_NORMALIZATION_RATIO
    if key in annotations and is_normalization_due(node.metadata.annotations.get(key), plan.ratios.cpu_normalization):
        return f"annotation {key} differs"
    if annotation_keys.RESOURCE_AMPLIFICATION_RATIO in annotations:
        return f"annotation {annotation_keys.RESOURCE_AMPLIFICATION_RATIO} differs"
    if annotation_keys.ADAPTIVE_SLO in annotations:
        return f"annotation {annotation_keys.ADAPTIVE_SLO} differs"
    for label in labels:
        return f"label {label} differs"
    return ""


def _zeros(zone: Zone) -> dict[str, Quantity]:
    return {info.name: _ZERO for info in zone.resources if info.name in BATCH_RESOURCES}


def _zone_due(zone: Zone, wanted: Mapping[str, Quantity], threshold: float) -> str:
    stored = {info.name: info for info in zone.resources}
    for name, amount in wanted.items():
        info = stored.get(name)
        if info is None or any(is_different(getattr(info, field), amount, threshold) for field in _FIELDS):
            return f"{name} of zone {zone.name} differs by more than {threshold:g} of what is stored"
    return ""


def _operations(place: int, zone: Zone, wanted: Mapping[str, Quantity]) -> list[dict[str, Any]]:
    root = f"/zones/{place}/resources"
    resources, changes = _without_repeated(zone.resources, wanted, root)
    places = {info.name: index for index, info in enumerate(resources)}
    for name, amount in wanted.items():
        if name in places:
            info, path = resources[places[name]], f"{root}/{places[name]}"
            fields = [field for field in _FIELDS if getattr(info, field) != amount]
            changes += [{"op": "add", "path": f"{path}/{field}", "value": str(amount)} for field in fields]
    # From the last index to the first, so that an insertion does not shift later ones.
    missing = sorted((name for name in wanted if name not in places), reverse=True)
    if missing and not resources:
        entries = [_entry(name, wanted[name]) for name in reversed(missing)]
        changes.append({"op": "add", "path": root, "value": entries})
    elif missing:
        changes += [
            {"op": "add", "path": f"{root}/{_place_for(name, resources)}", "value": _entry(name, wanted[name])}
            for name in missing
        ]
    return changes


def _without_repeated(
    resources: Sequence[ResourceInfo], wanted: Mapping[str, Quantity], root: str
) -> tuple[list[ResourceInfo], list[dict[str, Any]]]:
    """The entries without what has one already, as earlier versions have left it, and the operations that remove it."""
    kept, removals, names = list[ResourceInfo](), list[dict[str, Any]](), set[str]()
    for index, info in enumerate(resources):
        if info.name in names and info.name in wanted:
            removals.append({"op": "remove", "path": f"{root}/{index}"})
        else:
            kept.append(info)
        names.add(info.name)
    return kept, removals[::-1]


def _place_for(name: str, resources: Sequence[ResourceInfo]) -> int:
    """The index for a name in a list that is sorted by name."""
    return next((index for index, info in enumerate(resources) if info.name > name), len(resources))


def _entry(name: str, amount: Quantity) -> dict[str, str]:
    return {"name": name, **dict.fromkeys(_FIELDS, str(amount))}
