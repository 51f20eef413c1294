"""The quota that a profile wants, and the smallest writes that bring the stored quota there.

The quota's min is the allocatable of the profile's nodes, times a ratio, and its max is practically unlimited: it is
the root of a tree, whose other quotas share it out. An annotation notes how much of it is on unschedulable nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels
from koordinator.api.codec import DecodeError, decode, to_document
from koordinator.api.document import Document
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.elastic_quota_profile import ElasticQuotaProfile
from koordinator.api.kinds import ELASTIC_QUOTAS
from koordinator.api.node import Node
from koordinator.api.pod import ResourceList
from koordinator.api.quantity import Format, Quantity
from koordinator.api.usable_amounts import NO_LIMIT
from koordinator.model.label_selector import compile_selector
from koordinator.model.patch.difference import merge_difference
from koordinator.model.quota_tree.annotation_values import write_amounts

_NO_LIMIT: Final = Quantity.from_value(NO_LIMIT)
_NOTHING: Final = Quantity.from_value(0)
_DEFAULT_KEYS: Final = ("cpu", "memory")
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3


@dataclass(frozen=True, slots=True)
class Plan:
    """The writes for one profile; None where nothing is to be written. Patches are JSON merge patches."""

    profile_patch: Document | None = None
    create_quota: Document | None = None
    quota_patch: Document | None = None
    remarks: tuple[str, ...] = ()
    """The parts of the profile that cannot be used and are ignored: field, value and what is allowed."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The parts of the quota that the profile owns."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    min: ResourceList
    max: ResourceList


def decide(profile: ElasticQuotaProfile, quota: ElasticQuota | None, nodes: Iterable[Node]) -> Plan:
    """The plan for a profile. ``quota`` is the profile's stored quota, None without one. Raises SelectorError for a
    node selector that cannot be used."""
    metadata = profile.metadata
    remarks: list[str] = []
    own_tree = metadata.labels.get(labels.QUOTA_TREE_ID, "")
    tree = own_tree or tree_id(metadata.namespace, metadata.name)
    wanted = _wanted(profile, tree, nodes, remarks)
    profile_patch = None if own_tree else {"metadata": {"labels": {labels.QUOTA_TREE_ID: tree}}}
    if quota is None:
        return Plan(profile_patch, create_quota=_created(profile, wanted), remarks=tuple(remarks))
    return Plan(profile_patch, quota_patch=_changes(quota, wanted) or None, remarks=tuple(remarks))


def _wanted(profile: ElasticQuotaProfile, tree: str, nodes: Iterable[Node], remarks: list[str]) -> _Wanted:
    metadata, spec = profile.metadata, profile.spec
    selector = compile_selector(spec.node_selector)
    members = [node for node in nodes if selector.matches(node.metadata.labels)]
    ratio = _ratio(spec.resource_ratio, remarks)
    total = _scaled(_sum(members), ratio)
    unschedulable = _scaled(_sum(node for node in members if not _takes_pods(node)), ratio)
    keys = _resource_keys(metadata.annotations.get(annotation_keys.QUOTA_RESOURCE_KEYS), remarks)
    return _Wanted(
        labels={
            labels.QUOTA_PROFILE: metadata.name,
            **spec.quota_labels,
            labels.QUOTA_TREE_ID: tree,
            labels.QUOTA_IS_ROOT: "true",
        },
        annotations={
            annotation_keys.QUOTA_TOTAL_RESOURCE: write_amounts(total),
            annotation_keys.QUOTA_UNSCHEDULABLE_RESOURCE: write_amounts(unschedulable),
        },
        min={key: total.get(key, _NOTHING) for key in keys},
        max=dict.fromkeys(keys, _NO_LIMIT),
    )


def tree_id(namespace: str, name: str) -> str:
    """The tree of a profile that names none: the 64-bit FNV-1a hash of its key, in decimal."""
    value = _FNV_OFFSET
    for byte in f"{namespace}/{name}".encode():
        value = (value ^ byte) * _FNV_PRIME % 2**64
    return str(value)


def _takes_pods(node: Node) -> bool:
    ready = any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
    return ready and not node.spec.unschedulable


def _sum(nodes: Iterable[Node]) -> ResourceList:
    """The sum of the nodes' allocatable."""
    parts: dict[str, list[Quantity]] = {}
    for node in nodes:
        for name, amount in node.status.allocatable.items():
            parts.setdefault(name, []).append(amount)
    return {name: _total(amounts) for name, amounts in parts.items()}


def _total(amounts: Sequence[Quantity]) -> Quantity:
    """A single amount as it is; a sum in the format of its first amount that is not zero."""
    if len(amounts) == 1:
        return amounts[0]
    printed = next((amount.format for amount in amounts if amount), Format.DECIMAL_SI)
    return Quantity(sum(amount.nanos for amount in amounts), printed)


def _scaled(total: ResourceList, ratio: float | None) -> ResourceList:
    """The amounts times ``ratio``: CPU in milli-CPU, everything else in whole units, truncated; unchanged without a
    ratio."""
    if ratio is None:
        return total
    return {name: _times(name, amount, ratio) for name, amount in total.items()}


def _times(name: str, amount: Quantity, ratio: float) -> Quantity:
    if name == "cpu":
        return Quantity.from_milli(int(amount.milli * ratio))
    return Quantity.from_value(int(amount.value * ratio), Format.BINARY_SI if name == "memory" else Format.DECIMAL_SI)


def _ratio(text: str | None, remarks: list[str]) -> float | None:
    if text is None:
        return None
    ratio = float(text) if _NUMBER.fullmatch(text) else 0.0
    if 0 < ratio <= 1:
        return ratio
    remarks.append(
        f"spec.resourceRatio: {text!r} is not usable, all is counted: a number above 0 and up to 1 is allowed"
    )
    return 1.0


def _resource_keys(text: str | None, remarks: list[str]) -> tuple[str, ...]:
    if text is None:
        return _DEFAULT_KEYS
    try:
        return tuple(dict.fromkeys(decode(text, list[str])))
    except DecodeError:
        remarks.append(
            f"metadata.annotations[{annotation_keys.QUOTA_RESOURCE_KEYS}]: {text!r} is not usable, "
            'cpu and memory are taken: a JSON list of resource names such as ["cpu","memory"] is allowed'
        )
        return _DEFAULT_KEYS


def _created(profile: ElasticQuotaProfile, wanted: _Wanted) -> Document:
    document: Document = to_document(
        {
            "apiVersion": ELASTIC_QUOTAS.api_version,
            "kind": ELASTIC_QUOTAS.name,
            "metadata": {
                "name": profile.spec.quota_name,
                "namespace": profile.metadata.namespace,
                "labels": wanted.labels,
                "annotations": wanted.annotations,
            },
            "spec": {"min": wanted.min, "max": wanted.max},
        }
    )
    return document


def _changes(quota: ElasticQuota, wanted: _Wanted) -> Document:
    """The patch of the quota. Labels and annotations of other owners stay; amounts that are no longer wanted are
    removed."""
    known = quota.metadata
    document: Document = to_document(
        merge_difference(
            {
                "metadata": {"labels": known.labels, "annotations": known.annotations},
                "spec": {"min": quota.spec.min, "max": quota.spec.max},
            },
            {
                "metadata": {
                    "labels": {**known.labels, **wanted.labels},
                    "annotations": {**known.annotations, **wanted.annotations},
                },
                "spec": {"min": wanted.min, "max": wanted.max},
            },
        )
    )
    return document
