"""Which amounts can be meant: nothing at least, and no more than all computers together have.

A quantity of any size is valid on the wire. An amount that somebody has written about a node or a pod, and that
decisions compute with, is brought within these bounds where it is read, and its author is told of the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordinator.api.quantity import Quantity, QuantityError

MOST: Final = 2**56
"""The largest amount that counts, in milli-CPU or whole units. A hundred times this, and the sum over the pods of a
node, stay within 64 bits, so that no absurd amount in an object can overflow a sum."""


_FAR_FROM_THE_BOUND: Final = MOST * 10**6
"""In units of 10**-9: what is less is within the bounds of milli-CPU and of whole units."""

NO_LIMIT: Final = (2**63 - 1) // 2000
"""What koord-manager, as the original, writes as the max of a quota that is the root of a tree; of memory it is less
than what counts."""


def are_plain(amounts: Mapping[str, Quantity]) -> bool:
    """Whether all of them are far from the bounds, which is quick to see, and nearly always so."""
    # A generator would cost twice as much.
    for amount in amounts.values():  # noqa: SIM110
        if not 0 <= amount.nanos < _FAR_FROM_THE_BOUND:
            return False
    return True


def unusable(amounts: Mapping[str, Quantity], field: str) -> list[str]:
    """A sentence for each amount that is out of bounds; ``field`` is the path of ``amounts``."""
    return [f"{field}.{name}: {why}" for name, amount in amounts.items() if (why := _why_not(name, amount))]


def limit_text(resource: str, amount: str) -> str:
    """A limit, or what is left of one, as a person reads it: an amount that no cluster has is written for none."""
    try:
        quantity = Quantity.parse(amount)
    except QuantityError:
        return amount
    counted = quantity.milli if resource == "cpu" else quantity.value
    return "no limit" if counted > MOST or quantity.value == NO_LIMIT else amount


def is_below_zero(amounts: Mapping[str, Quantity]) -> bool:
    """Whether any of them is: such a record says nothing."""
    return any(amount.nanos < 0 for amount in amounts.values())


def bounded(amount: int) -> int:
    """The amount that counts, for one in milli-CPU or whole units."""
    return max(0, min(amount, MOST))


def _why_not(name: str, amount: Quantity) -> str:
    if 0 <= (amount.milli if name == "cpu" else amount.value) <= MOST:
        return ""
    return f"{amount} is not usable: allowed are 0 to {MOST}{'m' if name == 'cpu' else ''}"
