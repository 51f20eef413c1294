"""Checks whether two node selectors overlap.

Any two selectors of different labels both match a node that has both labels; refusing that would refuse nearly all
configurations. The check is whether a node that has only what one selector requires is matched by the other as well.
That is decided label by label, so that every combination of values is covered at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

from koordinator.api.meta import LabelSelector


@dataclass(frozen=True, slots=True)
class LabelDemand:
    """The requirements of a selector on one label. ``allowed`` None is any value; ``present`` and ``absent`` both:
    nothing can match."""

    allowed: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()
    present: bool = False
    absent: bool = False


_NO_DEMAND = LabelDemand()


def label_demands(selector: LabelSelector) -> Mapping[str, LabelDemand]:
    """Label -> the requirements of a selector on it."""
    demands: dict[str, LabelDemand] = {}
    for key, value in selector.match_labels.items():
        demands[key] = _both(demands.get(key, _NO_DEMAND), LabelDemand(frozenset({value}), present=True))
    for expression in selector.match_expressions:
        match expression.operator:
            case "In":
                demand = LabelDemand(frozenset(expression.values), present=True)
            case "NotIn":
                demand = LabelDemand(excluded=frozenset(expression.values))
            case "Exists":
                demand = LabelDemand(present=True)
            case _:
                demand = LabelDemand(absent=True)
        demands[expression.key] = _both(demands.get(expression.key, _NO_DEMAND), demand)
    return demands


def shared_node(one: Mapping[str, LabelDemand], other: Mapping[str, LabelDemand]) -> dict[str, str] | None:
    """Labels of a node that has only what ``one`` requires and that both match; None when there is no such node."""
    labels = {}
    for key in sorted(one.keys() | other.keys()):
        mine, theirs = one.get(key, _NO_DEMAND), other.get(key, _NO_DEMAND)
        if not mine.present:
            if theirs.present:
                return None
            continue
        value = _value(_both(mine, theirs))
        if value is None:
            return None
        labels[key] = value
    return labels


def _both(one: LabelDemand, other: LabelDemand) -> LabelDemand:
    if one.allowed is None or other.allowed is None:
        allowed = other.allowed if one.allowed is None else one.allowed
    else:
        allowed = one.allowed & other.allowed
    return LabelDemand(allowed, one.excluded | other.excluded, one.present or other.present, one.absent or other.absent)


def _value(demand: LabelDemand) -> str | None:
    """The first value that meets a demand for a label's presence."""
    if demand.absent:
        return None
    if demand.allowed is not None:
        return min(demand.allowed - demand.excluded, default=None)
    return next(f"x{number}" for number in count() if f"x{number}" not in demand.excluded)
