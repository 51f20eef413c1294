"""Whether a quota admits another pod, and if not why. The messages are the original's, so that searches of events
match."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from koordinator.scheduler.plugins.elastic_quota.accounts import Accounts
from koordinator.scheduler.plugins.elastic_quota.amounts import (
    NOTHING,
    Amounts,
    add,
    exceeding,
    masked,
    printed,
    to_wire,
)
from koordinator.scheduler.plugins.elastic_quota.forest import QuotaNode


@dataclass(frozen=True, slots=True)
class AdmissionRules:
    """The plugin arguments that affect admission."""

    by_runtime: bool = True
    """A quota may use its runtime, that is its current share; otherwise all of its max."""
    checks_parents: bool = False


def why_not(
    accounts: Accounts,
    node: QuotaNode,
    requested: Mapping[str, int],
    *,
    is_non_preemptible: bool,
    is_counted: bool,
    rules: AdmissionRules,
) -> str | None:
    """Why the quota does not admit a pod with this request; None if it does.

    ``is_counted``: the quota's request includes the pod's already, as it does for every pod of the API.
    """
    if node.detached:
        return f"quota {node.name} belongs to no tree: {node.detached}"
    request = masked(requested, node.specification.max)
    limit = limit_of(accounts, node, NOTHING if is_counted else request, rules)
    exceeded = exceeding(_sum(request, node.total.used), limit)
    if exceeded:
        return f"Insufficient quotas, quotaName: {node.name}, {_numbers(limit, node.total.used, request, exceeded)}"
    if is_non_preemptible:
        refusal = _beyond_min(node, request)
        if refusal is not None:
            return refusal
    return _beyond_parents(accounts, node, request, rules) if rules.checks_parents else None


def limit_of(accounts: Accounts, node: QuotaNode, requested: Mapping[str, int], rules: AdmissionRules) -> Amounts:
    """How much the quota may use, if ``requested`` is added to its request."""
    return accounts.limit(node, requested) if rules.by_runtime else dict(node.specification.max)


def _beyond_min(node: QuotaNode, request: Mapping[str, int]) -> str | None:
    """Non-preemptible pods must fit in the quota's min, since what they use cannot be reclaimed."""
    used, least = node.total.non_preemptible_used, node.specification.min
    exceeded = exceeding(_sum(request, used), least)
    if not exceeded:
        return None
    return (
        f"Insufficient non-preemptible quotas, quotaName: {node.name}, min: {_printed(least)}, "
        f"nonPreemptibleUsed: {_printed(used)}, pod's request: {_printed(request)}, "
        f"exceedDimensions: [{' '.join(exceeded)}]"
    )


def _beyond_parents(
    accounts: Accounts, node: QuotaNode, request: Mapping[str, int], rules: AdmissionRules
) -> str | None:
    topology = [node.name]
    for parent in node.ancestors():
        if parent.parent is None:
            return None
        topology.insert(0, parent.name)
        used, limit = parent.total.used, limit_of(accounts, parent, NOTHING, rules)
        exceeded = exceeding(masked(_sum(request, used), request), limit)
        if exceeded:
            numbers = _numbers(limit, used, request, exceeded)
            return f"Insufficient quotas, quotaNameTopo: [{' '.join(topology)}], {numbers}"
    return None


def _numbers(limit: Mapping[str, int], used: Mapping[str, int], request: Mapping[str, int], exceeded: list[str]) -> str:
    return (
        f"runtime: {_printed(limit)}, used: {_printed(used)}, pod's request: {_printed(request)}, "
        f"exceedDimensions: [{' '.join(exceeded)}]"
    )


def _printed(amounts: Mapping[str, int]) -> str:
    return printed(to_wire(amounts))


def _sum(left: Mapping[str, int], right: Mapping[str, int]) -> Amounts:
    total = dict(right)
    add(total, left)
    return total
