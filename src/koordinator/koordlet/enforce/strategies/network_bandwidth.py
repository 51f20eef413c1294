"""Network bandwidth as users write it: in the NodeSLO for classes of pods, and in the annotation of a single pod.

All values are bits per second. Both ways in which koordlet enforces bandwidth, traffic control and Terway, read them
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api.codec import DecodeError, decode
from koordinator.api.meta import WireStruct
from koordinator.api.quantity import Quantity, QuantityError
from koordinator.api.resource_qos import NetworkQoSConfig, ResourceQoS

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


def pod_limits(annotations: Mapping[str, str]) -> PodLimits:
    """Of a pod with these annotations."""
    text = annotations.get(annotation_keys.NETWORK_QOS)
    if not text:
        return PodLimits()
    try:
        given = decode(text, _PodBandwidth)
    except DecodeError as error:
        return PodLimits(problems=(f"{_ANNOTATION}: {error}",))
    problems: list[str] = []

    def amount(name: str, value: str) -> int:
        try:
            return _quantity(value) if value else 0
        except ValueError as error:
            problems.append(f"{_ANNOTATION}.{name}: {error}")
            return 0

    ingress, egress = amount("ingressLimit", given.ingress_limit), amount("egressLimit", given.egress_limit)
    return PodLimits(ingress, egress, tuple(problems))


def class_config(class_: ResourceQoS | None) -> NetworkQoSConfig:
    """What the NodeSLO says of a class of pods; nothing where it is not enabled."""
    config = class_.network_qos if class_ is not None else None
    return config if config is not None and config.enable else NetworkQoSConfig()


def bits(value: int | str | None, total: int) -> int:
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
