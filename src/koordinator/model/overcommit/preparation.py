"""What is to be written on a node: the difference between a plan and the node as stored, and whether it is due.

Small differences wait: amounts are written when one of them is off by more than a threshold, or when it has been long
enough since the last time. Patches name what changes and nothing else, so whatever others write on a node stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from koordinator.api import annotations as annotation_keys
from koordinator.api.codec import DecodeError
from koordinator.api.node import Node
from koordinator.api.quantity import Format, Quantity
from koordinator.api.resource_names import BATCH_CPU
from koordinator.model.overcommit.amounts import is_different, scaled
from koordinator.model.overcommit.batch import BATCH_RESOURCES
from koordinator.model.overcommit.decision import Plan, Problem
from koordinator.model.overcommit.explained_sum import NORMALIZATION, THIRD_PARTY, Addend, ExplainedAmount, published
from koordinator.model.overcommit.normalization import RatioError, is_normalization_due, read_normalization
from koordinator.model.overcommit.policies import BATCH_RESOURCE, CapacityPolicy
from koordinator.model.overcommit.third_party import origin_text, third_party_batch

Entries = dict[str, Quantity | None]
"""Resource name -> what a node is to offer of it; None: it is not to be named at all."""


@dataclass(frozen=True, slots=True)
class NodeChanges:
    """What differs, and whether it is time to write it."""

    allocatable: Entries
    capacity: Entries
    annotations: Mapping[str, str | None]
    labels: Mapping[str, str]
    amounts: tuple[ExplainedAmount, ...]
    """Those of the plan, with what was made of them on the way to the node."""
    problems: tuple[Problem, ...] = ()
    status_due: str = ""
    """Why the status is to be written, or to be taken for written when nothing differs; empty: it is not."""
    metadata_due: str = ""
    """Why the metadata are to be written; empty: they are not."""

    def status_patch(self) -> dict[str, Any] | None:
        """A merge patch for the node's status, which takes the metadata along; None when there is nothing to write."""
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
        """A merge patch for the node; None when there is nothing to write, or when the status takes it along."""
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


def prepare(
    node: Node, plan: Plan, policy: CapacityPolicy, now: datetime, last_status_sync: datetime | None
) -> NodeChanges:
    """Compare a plan with a node. ``last_status_sync``: when this process last wrote the node's status."""
    problems = list(plan.problems)
    wanted, amounts, origin = _wanted(node, plan, problems)
    labels: dict[str, str] = {}
    for devices in plan.devices:
        labels.update(devices.labels)
    annotations = {**plan.annotations, **origin}
    stored = node.metadata
    changed = {key: text for key, text in annotations.items() if stored.annotations.get(key) != text}
    relabelled = {key: text for key, text in labels.items() if stored.labels.get(key) != text}
    is_ready = bool(node.status.allocatable) and bool(node.status.capacity)
    return NodeChanges(
        allocatable=_differing(node.status.allocatable, wanted),
        capacity=_differing(node.status.capacity, wanted),
        annotations=changed,
        labels=relabelled,
        amounts=amounts,
        problems=tuple(problems),
        status_due=_status_due(node, wanted, policy, now, last_status_sync) if is_ready else "",
        metadata_due=_metadata_due(stored.annotations, changed, relabelled) if is_ready else "",
    )


def normalized(cpu: int, plan: Plan) -> int:
    """Batch CPU in terms of what a core of the node's CPU model is worth, rounded up to whole milli-CPU."""
    text = plan.annotations.get(annotation_keys.CPU_NORMALIZATION_RATIO, plan.kept_normalization)
    try:
        ratio = read_normalization(text)
    except RatioError:
        return cpu
    return -(-scaled(cpu * 1000, ratio) // 1000) if ratio is not None and ratio > 1 else cpu


def is_expired(last_sync: datetime | None, policy: CapacityPolicy, now: datetime) -> bool:
    return last_sync is None or now - last_sync > timedelta(seconds=policy.update_time_threshold_seconds)


def _wanted(
    node: Node, plan: Plan, problems: list[Problem]
) -> tuple[Entries, tuple[ExplainedAmount, ...], dict[str, str]]:
    """The entries of a plan, their amounts with adjustments, and the annotation that goes with batch resources."""
    third_party = _third_party(node, plan, problems)
    wanted: Entries = {}
    amounts: list[ExplainedAmount] = []
    origin: dict[str, Quantity] = {}
    for amount in plan.amounts:
        name = amount.resource
        value = normalized(amount.value, plan) if name == BATCH_CPU else amount.value
        if name in BATCH_RESOURCES:
            origin[name] = quantity_of(name, value)
        if amount.is_reset:
            wanted[name] = None
            amounts.append(amount)
            continue
        taken = min(third_party.get(name, 0), value)
        wanted[name] = quantity_of(name, value - taken)
        steps = (Addend(NORMALIZATION, value - amount.value), Addend(THIRD_PARTY, -taken))
        amounts.append(published(amount, steps))
    for devices in plan.devices:
        wanted.update(dict.fromkeys(devices.removed))
        wanted.update(devices.amounts)
    key = annotation_keys.ORIGIN_EXTENDED_ALLOCATABLE
    return wanted, tuple(amounts), {key: origin_text(node.metadata.annotations.get(key), origin)} if origin else {}


def _third_party(node: Node, plan: Plan, problems: list[Problem]) -> Mapping[str, int]:
    """What others have given away of the batch resources that the plan offers; unreadable annotations take nothing."""
    if not any(amount.resource in BATCH_RESOURCES and not amount.is_reset for amount in plan.amounts):
        return {}
    try:
        taken = third_party_batch(node.metadata.annotations)
    except DecodeError as error:
        where = f"metadata.annotations[{annotation_keys.THIRD_PARTY_ALLOCATIONS}]"
        problems.append(Problem(BATCH_RESOURCE, f"{where} takes nothing off: {error}"))
        return {}
    return {name: taken[name] for name in BATCH_RESOURCES if name in taken}


def quantity_of(resource: str, value: int) -> Quantity:
    return Quantity.from_value(value, Format.BINARY_SI if resource.endswith("memory") else Format.DECIMAL_SI)


def _differing(stored: Mapping[str, Quantity], wanted: Entries) -> Entries:
    return {name: amount for name, amount in wanted.items() if stored.get(name) != amount}


def _status_due(
    node: Node, wanted: Entries, policy: CapacityPolicy, now: datetime, last_status_sync: datetime | None
) -> str:
    threshold = policy.resource_diff_threshold
    for name, amount in wanted.items():
        if is_different(node.status.allocatable.get(name), amount, threshold):
            return f"{name} differs by more than {threshold:g} of what the node says"
    if last_status_sync is None:
        return "the status has not been written since the start of this process"
    if is_expired(last_status_sync, policy, now):
        return f"the status was last written more than {policy.update_time_threshold_seconds} seconds ago"
    return ""


def _metadata_due(stored: Mapping[str, str], changed: Mapping[str, str | None], labels: Mapping[str, str]) -> str:
    key = annotation_keys.CPU_NORMALIZATION_RATIO
    if key in changed and is_normalization_due(stored.get(key), changed[key]):
        return f"annotation {key} differs"
    if annotation_keys.RESOURCE_AMPLIFICATION_RATIO in changed:
        return f"annotation {annotation_keys.RESOURCE_AMPLIFICATION_RATIO} differs"
    for label in labels:
        return f"label {label} differs"
    return ""
