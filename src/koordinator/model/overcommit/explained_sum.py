"""An amount with the sum that it is the result of, so that nobody has to guess why a number is what it is."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from koordinator.api.codec import DecodeError
from koordinator.api.meta import WireStruct

# The names of addends; amounts that make the result smaller are negative.
CAPACITY: Final = "capacity"
SAFETY_MARGIN: Final = "safetyMargin"
SYSTEM_USAGE: Final = "systemUsage"
HOST_APPLICATIONS: Final = "hostApplications"
RESERVED: Final = "reserved"
RESERVED_ABOVE_SYSTEM_USAGE: Final = "reservedAboveSystemUsage"
POD_USAGE: Final = "podUsage"
POD_REQUESTS: Final = "podRequests"
POD_MAX_USAGE_REQUEST: Final = "podMaxUsageRequest"
PODS_WITHOUT_METRIC: Final = "podsWithoutMetric"
DANGLING_PODS: Final = "danglingPods"
PROD_RECLAIMABLE: Final = "prodReclaimable"
NOT_UNUSED: Final = "notUnused"
UNALLOCATED_SHARE: Final = "unallocatedShare"
STATIC_RESERVED: Final = "staticReserved"
ROUNDING: Final = "rounding"

# The names of adjustments, which come after the sum has been kept within its bounds.
NORMALIZATION: Final = "cpuNormalization"
THIRD_PARTY: Final = "thirdPartyAllocations"

# The names of terms: what addends came from.
NODE_USAGE: Final = "nodeUsage"
KEPT: Final = "keptForSystem"
"""The larger of what is reserved and what the system and host applications use."""
UNUSED: Final = "unused"
PROD_REQUESTS: Final = "prodRequests"
UNALLOCATED: Final = "unallocated"


class Addend(NamedTuple):
    name: str
    amount: int


class ExplainedAmount(WireStruct):
    """What a node (or one of its zones) offers of one resource, and why. Batch and mid CPU are in milli-CPU, memory is
    in bytes."""

    resource: str
    zone: str = ""
    value: int = 0
    """The addends' sum, at most ``cap`` and at least 0."""
    policy: str = ""
    metric_time: datetime | None = None
    """When the metric that this is computed from was reported."""
    addends: tuple[Addend, ...] = ()
    cap: int | None = None
    terms: dict[str, int] = {}
    adjustments: tuple[Addend, ...] = ()
    """What was made of ``value`` before it was written on the node."""
    published: int | None = None
    """The value and its adjustments: what the node says. None: nothing has been written."""
    reset: str = ""
    """Why there is no amount at all: a code; empty when there is one."""
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
    addends: tuple[Addend, ...],
    cap: int | None = None,
    terms: Mapping[str, int] | None = None,
    zone: str = "",
) -> ExplainedAmount:
    """The amount that addends come to; those of zero are left out."""
    total = 0
    for addend in addends:
        total += addend.amount
    return ExplainedAmount(
        resource=resource,
        zone=zone,
        value=bounded(total, cap),
        policy=policy,
        metric_time=metric_time,
        addends=tuple([addend for addend in addends if addend.amount]),
        cap=cap,
        terms={} if terms is None else dict(terms),
    )


def reset(resource: str, code: str, message: str, metric_time: datetime | None = None) -> ExplainedAmount:
    """No amount, and why."""
    return ExplainedAmount(resource=resource, reset=code, message=message, metric_time=metric_time)


def published(amount: ExplainedAmount, adjustments: tuple[Addend, ...]) -> ExplainedAmount:
    """The amount as it stands on the node after ``adjustments``."""
    value = amount.value + sum(each.amount for each in adjustments)
    return msgspec.structs.replace(
        amount, adjustments=tuple(each for each in adjustments if each.amount), published=max(value, 0)
    )


def sentence(amount: ExplainedAmount) -> str:
    """In words, for terminals and events."""
    place = f"{amount.resource} of zone {amount.zone}" if amount.zone else amount.resource
    if amount.is_reset:
        return f"{place} is not offered: {amount.message}"
    parts = [f"{'-' if each.amount < 0 else '+'} {each.name} {abs(each.amount)}" for each in amount.addends]
    total = " ".join(parts).removeprefix("+ ") or "0"
    limits = "at least 0" if amount.cap is None else f"at least 0, at most {amount.cap}"
    text = f"{place} = {amount.value}: {total}, {limits} (policy {amount.policy})"
    steps = "".join(f", {each.name} {each.amount:+d}" for each in amount.adjustments)
    return f"{text}{steps}, published {amount.published}" if steps else text


def to_json(amounts: tuple[ExplainedAmount, ...]) -> str:
    """The compact form for an annotation or an answer: the same text for the same amounts."""
    return _encoder.encode(amounts).decode()


def from_json(text: str | bytes) -> tuple[ExplainedAmount, ...]:
    """What ``to_json`` wrote. Raises DecodeError."""
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"no explained amounts: {error}") from error


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(tuple[ExplainedAmount, ...])
