"""Amounts of resources as quotas count them: resource name -> integer, in milli-CPUs for CPU, in whole units for
others; and the amounts that an ElasticQuota specifies by its spec, labels and annotations, with the errors in them.

How the children of one parent quota share its runtime is the original's arithmetic (runtime_quota_calculator.go and
scale_minquota_when_over_root_res.go), in integers, and independent of the order of the children.

The webhooks of koord-manager reject all errors in an ElasticQuota. If they are not installed, or were not when the
quota was created, the errors are reported from here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from koordinator.api import labels as label_keys
from koordinator.api.annotations import QUOTA_SHARED_WEIGHT, QUOTA_TOTAL_RESOURCE
from koordinator.api.codec import DecodeError
from koordinator.api.elastic_quota import ROOT_QUOTA, ElasticQuota
from koordinator.api.pod import ResourceList
from koordinator.api.quantity import Format, Quantity
from koordinator.api.resource_names import CPU, DEPRECATED_BATCH_NAMES, MEMORY, with_current_names
from koordinator.model.quota_tree.annotation_values import read_amounts
from koordinator.model.quota_tree.quota import parent_of

Amounts = dict[str, int]
NOTHING: Final[Mapping[str, int]] = {}


def from_wire(resources: ResourceList) -> Amounts:
    """The amounts of a ResourceList, rounded up as in the original."""
    return {name: quantity.milli if name == CPU else quantity.value for name, quantity in resources.items()}


def to_wire(amounts: Mapping[str, int]) -> ResourceList:
    """The ResourceList sorted by name, in the original's formats: memory with binary suffixes, all else decimal."""
    return {name: _quantity(name, amounts[name]) for name in sorted(amounts)}


def _quantity(name: str, amount: int) -> Quantity:
    if name == CPU:
        return Quantity.from_milli(amount)
    return Quantity.from_value(amount, Format.BINARY_SI if name == MEMORY else Format.DECIMAL_SI)


def printed(resources: ResourceList) -> str:
    """``cpu:4,memory:8Gi``, the original's format of a ResourceList in messages."""
    return ",".join(sorted(f"{name}:{quantity}" for name, quantity in resources.items())) or "<empty>"


def add(total: Amounts, amounts: Mapping[str, int], times: int = 1) -> None:
    """Add to ``total`` in place; a name stays even when its amount is 0 again."""
    for name, amount in amounts.items():
        # Nearly always it is there: this runs several times for each event of each pod.
        try:
            total[name] += times * amount
        except KeyError:
            total[name] = times * amount


def summed(parts: Iterable[Mapping[str, int]]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        add(total, part)
    return total


def masked(amounts: Mapping[str, int], names: Collection[str]) -> Amounts:
    return {name: amount for name, amount in amounts.items() if name in names}


def larger(left: Mapping[str, int], right: Mapping[str, int]) -> Amounts:
    """The maximum of both for each name in either; a missing name counts as 0."""
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}


def limited(amounts: Mapping[str, int], limit: Mapping[str, int]) -> Amounts:
    """``amounts`` cut to ``limit``; a name missing in ``limit`` is not limited."""
    return {name: min(amount, limit.get(name, amount)) for name, amount in amounts.items()}


def exceeding(amounts: Mapping[str, int], limit: Mapping[str, int]) -> list[str]:
    """The names whose amounts exceed ``limit``, sorted; a name missing in ``limit`` is not limited."""
    return sorted([name for name, amount in amounts.items() if name in limit and amount > limit[name]])


def without_zeros(amounts: Mapping[str, int]) -> Amounts:
    return {name: amount for name, amount in amounts.items() if amount}


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of one child to one resource."""

    name: str
    request: int
    """The child's request, limited to its max."""
    floor: int
    """What the child gets if it requests it, whatever others request: its scaled min, or its guarantee if larger."""
    weight: int
    lends: bool
    """Whether others may use the part of its floor that it does not request."""


def share(total: int, claims: Sequence[Claim]) -> dict[str, int]:
    """Child name -> share. Each child first gets the smaller of its request and its floor, or its floor if it lends
    nothing. The rest is divided by weight among the children that request more, until their requests are satisfied or
    nothing is left. Floors are granted even beyond ``total``."""
    shares: dict[str, int] = {}
    unsatisfied: list[Claim] = []
    for claim in claims:
        if claim.request > claim.floor:
            unsatisfied.append(claim)
            shares[claim.name] = claim.floor
        else:
            shares[claim.name] = claim.request if claim.lends else claim.floor
    left = total - sum(shares.values())
    while left > 0 and unsatisfied:
        portions = _by_weight(left, unsatisfied)
        if not portions:
            break
        left = 0
        for claim in unsatisfied:
            shares[claim.name] += portions.get(claim.name, 0)
            left += max(shares[claim.name] - claim.request, 0)
            shares[claim.name] = min(shares[claim.name], claim.request)
        unsatisfied = [claim for claim in unsatisfied if shares[claim.name] < claim.request]
    return shares


def _by_weight(amount: int, claims: Iterable[Claim]) -> dict[str, int]:
    """Child name -> portion of ``amount`` by the method of largest remainders, ties by name; empty without weights."""
    weighted = [claim for claim in claims if claim.weight > 0]
    weights = sum(claim.weight for claim in weighted)
    if not weights:
        return {}
    portions: dict[str, int] = {}
    remainders: list[tuple[int, str]] = []
    for claim in weighted:
        portions[claim.name], remainder = divmod(claim.weight * amount, weights)
        remainders.append((-remainder, claim.name))
    residual = amount - sum(portions.values())
    for _, name in sorted(remainders)[:residual]:
        portions[name] += 1
    return portions


def scaled_min(own: Mapping[str, int], together: Mapping[str, int], available: Mapping[str, int]) -> Amounts:
    """The min of one child, scaled down in proportion if the mins of all children (``together``) exceed ``available``.

    Computed in floating point and truncated to an integer, as in the original. A resource missing in ``available`` is
    not scaled.
    """
    scaled = dict(own)
    for name, amount in available.items():
        total = together.get(name, 0)
        if amount >= total:
            continue
        part = int(float(amount) * float(own.get(name, 0)) / float(total)) if amount > 0 else 0
        if part or name in own:
            scaled[name] = part
    return scaled


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
