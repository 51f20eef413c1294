"""Network bandwidth as users write it: in the NodeSLO for classes of pods, and in the annotation of a single pod.

All values are bits per second. Both ways in which koordlet enforces bandwidth, traffic control and Terway, read them
here.
"""

from __future__ import annotations

from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api.meta import WireStruct
from koordinator.api.quantity import Quantity, QuantityError

BITS: Final = 8
"""Of a byte: the kernel and Terway count bytes."""
ANNOTATION: Final = f"metadata.annotations[{annotation_keys.NETWORK_QOS}]"


class PodBandwidth(WireStruct):
    """Of the pod's annotation; quantities of bits per second."""

    ingress_limit: str = ""
    egress_limit: str = ""


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
    amount = quantity(value)
    if amount > total:
        raise ValueError(f"{value!r}, allowed: up to systemStrategy.totalNetworkBandwidth, which is {total}")
    return amount


def quantity(text: str) -> int:
    """ValueError, with what is allowed, for what is no quantity or is below 0."""
    try:
        amount = Quantity.parse(text).value
    except QuantityError:
        amount = -1
    if amount < 0:
        raise ValueError(f"{text!r}, allowed: a quantity of 0 or more bits per second, such as 50M")
    return amount
