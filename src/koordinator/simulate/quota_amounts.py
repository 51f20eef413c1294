"""The use and the limits of elastic quotas, before and after a change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA
from koordinator.scheduler.plugins.elastic_quota.amounts import to_wire
from koordinator.scheduler.plugins.elastic_quota.plugin import ElasticQuota
from koordinator.scheduler.plugins.elastic_quota.status import amounts_of
from koordinator.simulate.simulated_cluster import SimulatedCluster

QuotaAmounts = Mapping[str, Mapping[str, Mapping[str, int]]]
"""Quota -> ``used``, ``request``, ``runtime``, ``max`` -> resource -> amount."""
_SHOWN: Final = ("used", "request", "runtime", "max")
_BUILT_IN: Final = (ROOT_QUOTA, DEFAULT_QUOTA, SYSTEM_QUOTA)
"""They have no limits of their own, and pods that name no quota count against them."""


def quota_amounts(cluster: SimulatedCluster) -> QuotaAmounts:
    """The amounts of all quotas at present; empty if the scheduler runs without ElasticQuota."""
    for engine in cluster.scheduler.engines.values():
        for plugin in engine.profile.all(ElasticQuota):
            forest = plugin.accounts.forest
            found = {name: amounts_of(forest, node) for name, node in forest.nodes.items() if name not in _BUILT_IN}
            return {name: {key: amounts[key] for key in _SHOWN} for name, amounts in found.items()}
    return {}


def quota_changes(before: QuotaAmounts, after: QuotaAmounts) -> list[dict[str, Any]]:
    """The quotas and resources that differ; None for the amounts of a quota that does not exist."""
    found = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        resources = sorted({key for each in (old, new) if each for amounts in each.values() for key in amounts})
        for resource in resources:
            was, now = _of(old, resource), _of(new, resource)
            if was != now:
                found.append({"quota": name, "resource": resource, "before": was, "after": now})
    return found


def _of(amounts: Mapping[str, Mapping[str, int]] | None, resource: str) -> dict[str, str] | None:
    if amounts is None:
        return None
    return {
        key: str(to_wire({resource: amounts[key][resource]})[resource]) for key in _SHOWN if resource in amounts[key]
    }
