"""Amounts of CPU and memory, and explained amounts of one resource with the terms that they are the sum of.

CPU is in milli-CPU and memory in bytes, rounded as the Go original rounds: where the original goes through a float64,
so does this; products are truncated towards zero, and quotients are rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec

from koordinator.api.meta import WireStruct
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import CPU, MEMORY

_LARGEST: Final = 2**63 - 1

# The names of terms; amounts that make the result smaller are negative.
CAPACITY: Final = "capacity"
SAFETY_MARGIN: Final = "safetyMargin"
SYSTEM_USAGE: Final = "systemUsage"
HOST_APPLICATIONS: Final = "hostApplications"
RESERVED: Final = "reserved"
RESERVED_ABOVE_SYSTEM_USAGE: Final = "reservedAboveSystemUsage"
POD_USAGE: Final = "podUsage"
BATCH_POD_USAGE: Final = "batchPodUsage"
BATCH_PODS_WITHOUT_METRIC: Final = "batchPodsWithoutMetric"
POD_REQUESTS: Final = "podRequests"
POD_MAX_USAGE_REQUEST: Final = "podMaxUsageRequest"
PODS_WITHOUT_METRIC: Final = "podsWithoutMetric"
DANGLING_PODS: Final = "danglingPods"
PROD_RECLAIMABLE: Final = "prodReclaimable"
NOT_UNUSED: Final = "notUnused"
UNALLOCATED_SHARE: Final = "unallocatedShare"
STATIC_RESERVED: Final = "staticReserved"
ROUNDING: Final = "rounding"

# The names of adjustments, which are applied after the sum has been limited to its bounds.
NORMALIZATION: Final = "cpuNormalization"
THIRD_PARTY: Final = "thirdPartyAllocations"

# The names of inputs, from which terms are computed.
NODE_USAGE: Final = "nodeUsage"
KEPT: Final = "keptForSystem"
"""The larger of what is reserved and what the system and host applications use."""
UNUSED: Final = "unused"
PROD_REQUESTS: Final = "prodRequests"
UNALLOCATED: Final = "unallocated"


class Amounts(NamedTuple):
    """An amount of both resources."""

    cpu: int
    """Milli-CPU."""
    memory: int
    """Bytes; where amounts are shares of a zone, thousandths of a byte."""

    def plus(self, other: Amounts) -> Amounts:
        return Amounts(self.cpu + other.cpu, self.memory + other.memory)

    def at_least(self, other: Amounts) -> Amounts:
        """The larger of each."""
        return Amounts(max(self.cpu, other.cpu), max(self.memory, other.memory))


NOTHING: Final = Amounts(0, 0)


def cpu_and_memory(resources: Mapping[str, Quantity]) -> Amounts:
    """The two resources of a list; missing ones count as zero."""
    cpu, memory = resources.get(CPU), resources.get(MEMORY)
    return Amounts(0 if cpu is None else cpu.milli, 0 if memory is None else memory.value)


def columns(amounts: Sequence[Amounts]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """All CPU, and all memory."""
    cpu, memory = zip(*amounts, strict=True) if amounts else ((), ())
    return cpu, memory


def total(amounts: Iterable[Amounts]) -> Amounts:
    cpu, memory = columns([*amounts])
    return Amounts(sum(cpu), sum(memory))


def scaled(amount: int, factor: float) -> int:
    """An amount times a factor, rounded towards zero."""
    product = float(amount) * factor
    if not math.isfinite(product):
        return _LARGEST if product > 0 else 0
    return int(product)


def fraction(percent: int) -> float:
    return float(percent) / 100.0


def share(amount: int, parts: int) -> int:
    """One of ``parts`` equal parts, rounded up."""
    return amount if parts == 1 else math.ceil(float(amount) / parts)


def is_different(old: Quantity | None, new: Quantity | None, threshold: float) -> bool:
    """Whether one of the two is missing, or the new one differs by more than ``threshold`` times the old one."""
    if old is None or new is None:
        return old is not new
    return abs(float(new.milli - old.milli)) > float(old.milli) * threshold


class Term(NamedTuple):
    """One term of a sum."""

    name: str
    amount: int


_AMOUNT: Final = attrgetter("amount")


class ExplainedAmount(WireStruct):
    """The mid, batch or free capacity of one resource of a node, or of one of its zones, with its computation. CPU is
    in milli-CPU, memory in bytes."""

    resource: str
    zone: str = ""
    value: int = 0
    """The sum of the terms, at most ``cap`` and at least 0."""
    policy: str = ""
    metric_time: datetime | None = None
    """When the metric that this is computed from was reported."""
    terms: tuple[Term, ...] = ()
    cap: int | None = None
    inputs: dict[str, int] = msgspec.field(default_factory=dict)
    """The inputs of the terms."""
    adjustments: tuple[Term, ...] = ()
    """The changes that were made to ``value`` before it was written to the node."""
    published: int | None = None
    """The value with its adjustments, as written to the node. None: nothing has been written."""
    reset: str = ""
    """Why there is no amount: a code; empty when there is one."""
    message: str = ""
    """The same as a sentence."""

    @property
    def is_reset(self) -> bool:
        return bool(self.reset)


def bounded(total: int, cap: int | None) -> int:
    """A sum kept between 0 and its cap."""
    return max(total if cap is None else min(total, cap), 0)


def explained(
    resource: str,
    policy: str,
    metric_time: datetime | None,
    terms: tuple[Term, ...],
    cap: int | None = None,
    inputs: Mapping[str, int] | None = None,
    zone: str = "",
) -> ExplainedAmount:
    """The amount with the sum of its terms; terms of zero are omitted."""
    kept = tuple(filter(_AMOUNT, terms))
    return ExplainedAmount(
        resource=resource,
        zone=zone,
        value=bounded(sum(map(_AMOUNT, kept)), cap),
        policy=policy,
        metric_time=metric_time,
        terms=kept,
        cap=cap,
        inputs={} if inputs is None else dict(inputs),
    )


def reset(resource: str, code: str, message: str, metric_time: datetime | None = None) -> ExplainedAmount:
    """No amount, with the reason."""
    return ExplainedAmount(resource=resource, reset=code, message=message, metric_time=metric_time)


def published(amount: ExplainedAmount, adjustments: tuple[Term, ...]) -> ExplainedAmount:
    """The amount as written to the node after ``adjustments``; those of zero are omitted."""
    value = amount.value + sum(map(_AMOUNT, adjustments))
    return msgspec.structs.replace(amount, adjustments=tuple(filter(_AMOUNT, adjustments)), published=max(value, 0))


def sentence(amount: ExplainedAmount) -> str:
    """A sentence for terminals and events."""
    place = f"{amount.resource} of zone {amount.zone}" if amount.zone else amount.resource
    if amount.is_reset:
        return f"{place} is not offered: {amount.message}"
    parts = [f"{'-' if each.amount < 0 else '+'} {each.name} {abs(each.amount)}" for each in amount.terms]
    total = " ".join(parts).removeprefix("+ ") or "0"
    limits = "at least 0" if amount.cap is None else f"at least 0, at most {amount.cap}"
    text = f"{place} = {amount.value}: {total}, {limits} (policy {amount.policy})"
    steps = "".join(f", {each.name} {each.amount:+d}" for each in amount.adjustments)
    return f"{text}{steps}, published {amount.published}" if steps else text
