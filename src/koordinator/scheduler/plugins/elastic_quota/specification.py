"""The spec, labels and annotations of an ElasticQuota as integers, and the errors in them.

The webhooks of koord-manager reject all of these errors. If they are not installed, or were not when the quota was
created, the errors are reported from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from koordinator.api import labels as label_keys
from koordinator.api.annotations import QUOTA_SHARED_WEIGHT, QUOTA_TOTAL_RESOURCE
from koordinator.api.codec import DecodeError
from koordinator.api.elastic_quota import ROOT_QUOTA, ElasticQuota
from koordinator.api.resource_names import DEPRECATED_BATCH_NAMES, with_current_names
from koordinator.model.quota_tree.annotation_values import read_amounts
from koordinator.model.quota_tree.quota import parent_of
from koordinator.scheduler.plugins.elastic_quota.amounts import Amounts, from_wire


@dataclass(frozen=True, slots=True)
class AccountSettings:
    """The plugin arguments and feature gates on which the amounts depend, beside quotas, pods and nodes."""

    default_max: Mapping[str, int] = field(default_factory=dict)
    system_max: Mapping[str, int] = field(default_factory=dict)
    scales_min: bool = True
    guarantees_usage: bool = False
    by_tree: bool = False
    """Every tree id has a tree of its own (gate MultiQuotaTree)."""
    has_default: bool = True
    """A pod whose quota does not exist counts against the default quota (not with gate DisableDefaultQuota)."""


@dataclass(frozen=True, slots=True)
class QuotaSpecification:
    """The amounts in effect: none is negative, and min is not above max."""

    name: str
    parent: str
    """The name of the parent: the root's for top-level quotas; empty for the root itself."""
    tree: str = ""
    is_parent: bool = False
    lends: bool = True
    min: Mapping[str, int] = field(default_factory=dict)
    max: Mapping[str, int] = field(default_factory=dict)
    weight: Mapping[str, int] = field(default_factory=dict)
    tree_total: Mapping[str, int] | None = None
    """The total of the tree of which this quota is the root; None if it is no root, or states no total."""
    takes_from_default: bool = True
    """Whether ``tree_total`` is subtracted from the default tree."""
    faults: tuple[str, ...] = ()
    """The errors, each with the field, its value and what is allowed."""


def specification_of(quota: ElasticQuota) -> QuotaSpecification:
    """The specification of the object; ``faults`` lists the values that were replaced."""
    labels, faults = quota.metadata.labels, list[str]()
    given_max = dict(with_current_names(quota.spec.max, DEPRECATED_BATCH_NAMES))
    given_min = dict(with_current_names(quota.spec.min, DEPRECATED_BATCH_NAMES))
    maximum = _not_negative("spec.max", from_wire(given_max), faults)
    minimum = _not_negative("spec.min", from_wire(given_min), faults)
    for name, amount in sorted(minimum.items()):
        if amount > maximum.get(name, amount):
            faults.append(
                f"spec.min: {name} is {given_min[name]}, more than spec.max allows: it counts as {given_max[name]}"
            )
            minimum[name] = maximum[name]
    weight = _annotated(quota, QUOTA_SHARED_WEIGHT, "spec.max", faults)
    if weight is not None:
        weight = _not_negative(f"metadata.annotations[{QUOTA_SHARED_WEIGHT}]", weight, faults)
    is_tree_root = labels.get(label_keys.QUOTA_IS_ROOT) == "true"
    return QuotaSpecification(
        name=quota.metadata.name,
        parent=parent_of(quota.metadata),
        tree=labels.get(label_keys.QUOTA_TREE_ID, ""),
        is_parent=labels.get(label_keys.QUOTA_IS_PARENT) == "true",
        lends=labels.get(label_keys.QUOTA_ALLOW_LENT_RESOURCE) != "false",
        min=minimum,
        max=maximum,
        weight=weight if weight is not None and any(weight.values()) else maximum,
        tree_total=_annotated(quota, QUOTA_TOTAL_RESOURCE, "nothing", faults) if is_tree_root else None,
        takes_from_default=labels.get(label_keys.QUOTA_IGNORE_DEFAULT_TREE) != "true",
        faults=tuple(faults),
    )


def _not_negative(field: str, amounts: Amounts, faults: list[str]) -> Amounts:
    for name, amount in sorted(amounts.items()):
        if amount < 0:
            faults.append(f"{field}: {name} is negative, it has to be at least 0: it counts as 0")
    return {name: max(amount, 0) for name, amount in amounts.items()}


def _annotated(quota: ElasticQuota, annotation: str, instead: str, faults: list[str]) -> Amounts | None:
    text = quota.metadata.annotations.get(annotation)
    if not text:
        return None
    try:
        return from_wire(read_amounts(text))
    except DecodeError as error:
        faults.append(
            f"metadata.annotations[{annotation}]: {text[:100]!r} is no JSON object of quantities ({error}): "
            f"{instead} counts"
        )
        return None


def built_in(name: str, maximum: Mapping[str, int]) -> QuotaSpecification:
    """The specification of the default or the system quota if there is no object for it."""
    return QuotaSpecification(name, ROOT_QUOTA, max=maximum, weight=maximum)
