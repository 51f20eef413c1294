"""Network bandwidth as users write it: in the NodeSLO for classes of pods, and in the annotation of a single pod.

All values are bits per second. Both ways in which koordlet enforces bandwidth, traffic control and Terway, read them
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from koordinator.api import annotations as annotation_keys
from koordinator.api.codec import DecodeError
from koordinator.api.meta import WireStruct
from koordinator.api.quantity import Quantity, QuantityError
from koordinator.api.resource_qos import ResourceQoSStrategy
from koordinator.koordlet.enforce.strategies.qos_classes import qos_classes
from koordinator.koordlet.enforce.strategies.snapshot import read_annotation

BITS: Final = 8
"""Of a byte: the kernel and Terway count bytes."""
_ANNOTATION: Final = f"metadata.annotations[{annotation_keys.NETWORK_QOS}]"


class _PodBandwidth(WireStruct):
    """Of the pod's annotation; quantities of bits per second."""

    ingress_limit: str = ""
    egress_limit: str = ""


@dataclass(frozen=True, slots=True)
class PodLimits:
    """What a pod may receive and send at most, 0 for no limit. ``problems`` say which limits cannot be read, and what
    is allowed; these count as none."""

    ingress: int = 0
    egress: int = 0
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClassBandwidth:
    """What is guaranteed to a class of pods in one direction, and the most; 0 for neither. ``problems`` as of a pod."""

    request: int
    limit: int
    problems: tuple[str, ...]


def pod_limits(annotations: Mapping[str, str]) -> PodLimits:
    """Of a pod with these annotations."""
    try:
        given = read_annotation(annotations, annotation_keys.NETWORK_QOS, _PodBandwidth) or _PodBandwidth()
    except DecodeError as error:
        return PodLimits(problems=(str(error),))
    problems: list[str] = []

    def amount(name: str, value: str) -> int:
        try:
            return _quantity(value) if value else 0
        except ValueError as error:
            problems.append(f"{_ANNOTATION}.{name}: {error}")
            return 0

    ingress, egress = amount("ingressLimit", given.ingress_limit), amount("egressLimit", given.egress_limit)
    return PodLimits(ingress, egress, tuple(problems))


def class_bandwidth(
    strategy: ResourceQoSStrategy | None, name: str, direction: Literal["egress", "ingress"], total: int
) -> ClassBandwidth:
    """What the NodeSLO says of the class ``name``; nothing where it is not enabled."""
    class_ = qos_classes(strategy).get(name)
    config = class_.network_qos if class_ is not None else None
    amounts, problems = [0, 0], list[str]()
    for number, bound in enumerate(("request", "limit") if config is not None and config.enable else ()):
        try:
            amounts[number] = _bits(getattr(config, f"{direction}_{bound}"), total)
        except ValueError as error:
            field = f"resourceQOSStrategy.{name.lower()}Class.networkQOS.{direction}{bound.title()}"
            problems.append(f"{field}: {error}")
    return ClassBandwidth(amounts[0], amounts[1], tuple(problems))


def _bits(value: int | str | None, total: int) -> int:
    """A value of the NodeSLO, where numbers are percentages of ``total``; 0 for none.

    ValueError, with what is allowed, for what is neither a percentage nor a quantity of up to ``total``.
    """
    if value is None:
        return 0
    if isinstance(value, int):
        if not 0 <= value <= 100:
            raise ValueError(f"{value}, allowed: a percentage from 0 to 100, or a quantity as text")
        return total * value // 100
    amount = _quantity(value)
    if amount > total:
        raise ValueError(f"{value!r}, allowed: up to systemStrategy.totalNetworkBandwidth, which is {total}")
    return amount


def _quantity(text: str) -> int:
    """ValueError, with what is allowed, for what is no quantity or is below 0."""
    try:
        amount = Quantity.parse(text).value
    except QuantityError:
        amount = -1
    if amount < 0:
        raise ValueError(f"{text!r}, allowed: a quantity of 0 or more bits per second, such as 50M")
    return amount
