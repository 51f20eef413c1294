"""Arithmetic over amounts of quotas: exact, by resource name."""

from __future__ import annotations

from collections.abc import Mapping

from koordinator.api.pod import ResourceList

Amounts = dict[str, int]
"""Resource name -> exact amount in units of 10**-9."""


def exact(resources: ResourceList) -> Amounts:
    return {name: quantity.nanos for name, quantity in resources.items()}


def added(left: Mapping[str, int], right: Mapping[str, int]) -> Amounts:
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}


def less(left: Mapping[str, int], right: Mapping[str, int]) -> Amounts:
    """``left`` minus ``right``, with the names of both."""
    return {name: left.get(name, 0) - right.get(name, 0) for name in {**left, **right}}


def larger(left: Mapping[str, int], right: Mapping[str, int]) -> Amounts:
    """The larger of both for every name that either has."""
    return {
        name: max(left.get(name, right.get(name, 0)), right.get(name, left.get(name, 0))) for name in {**left, **right}
    }


def fits(requested: Mapping[str, int], given: Mapping[str, int]) -> bool:
    """Whether no request exceeds the given amount; a name that one side lacks is 0 there."""
    return all(requested.get(name, 0) <= given.get(name, 0) for name in {**requested, **given})


def negative(resources: ResourceList) -> list[str]:
    """The names of amounts below zero, sorted."""
    return sorted(name for name, quantity in resources.items() if quantity.nanos < 0)
