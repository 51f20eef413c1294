"""What pods add to the load of their node, beyond what it has measured of itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from koordinator.scheduler.plugins.load_aware.settings import Vector

OF_NODE: Final = 0
"""What is to be added to the measured usage of the node."""
OF_PROD: Final = 1
"""What pods of the prod class use and are expected to use."""
OF_ESTIMATES: Final = 2
"""What all are expected to use, measured or not."""


class Share(msgspec.Struct, frozen=True, gc=False):
    """Of one pod, or of all pods of a node together; vectors by resource."""

    prod_usage: Vector
    node_delta: Vector
    prod_delta: Vector
    estimated: Vector
    loads: tuple[Vector, ...] = ()
    """The same, as the kinds of load contain it: indexed by OF_NODE, OF_PROD, OF_ESTIMATES."""

    def __post_init__(self) -> None:
        prod = added(self.prod_usage, self.prod_delta) if any(self.prod_usage) else self.prod_delta
        msgspec.structs.force_setattr(self, "loads", (self.node_delta, prod, self.estimated))

    def without(self, other: Share) -> Share:
        """How much more this is than ``other``."""
        return Share(
            _less(self.prod_usage, other.prod_usage),
            _less(self.node_delta, other.node_delta),
            _less(self.prod_delta, other.prod_delta),
            _less(self.estimated, other.estimated),
        )


def total(shares: Iterable[Share], width: int) -> Share:
    """Of ``width`` resources."""
    listed = list(shares)
    nothing = (0,) * width
    return Share(
        added(nothing, *[share.prod_usage for share in listed]),
        added(nothing, *[share.node_delta for share in listed]),
        added(nothing, *[share.prod_delta for share in listed]),
        added(nothing, *[share.estimated for share in listed]),
    )


def added(*vectors: Vector) -> Vector:
    """The sum, resource by resource."""
    return tuple(map(sum, zip(*vectors, strict=True)))


def _less(one: Vector, other: Vector) -> Vector:
    return tuple([more - less for more, less in zip(one, other, strict=True)])
