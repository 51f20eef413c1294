"""Whether a quota admits another pod, and if not why; and what ``koord explain quota`` shows: the source of each number
of a quota, which siblings lend and borrow, and which pod is admitted next.

The messages of admission are the original's, so that searches of events match.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from koordinator.api.explanations import UNLIMITED, QuotaExplanation, QuotaPods, QuotaResource, Sibling, WaitingPod
from koordinator.scheduler.plugins.elastic_quota.accounts import Accounts, CountedPod
from koordinator.scheduler.plugins.elastic_quota.amounts import (
    NOTHING,
    Amounts,
    exceeding,
    masked,
    printed,
    summed,
    to_wire,
)
from koordinator.scheduler.plugins.elastic_quota.forest import Forest, QuotaNode


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether quotas admit pods. ``by_runtime``: a quota may use its runtime, that is its current share; otherwise all
    of its max."""

    accounts: Accounts
    by_runtime: bool = True
    checks_parents: bool = False

    def why_not(
        self, node: QuotaNode, requested: Mapping[str, int], *, is_non_preemptible: bool, is_counted: bool
    ) -> str | None:
        """Why the quota does not admit a pod with this request; None if it does.

        ``is_counted``: the quota's request includes the pod's already, as it does for every pod of the API.
        """
        if node.detached:
            return f"quota {node.name} belongs to no tree: {node.detached}"
        request = masked(requested, node.specification.max)
        limit = self.limit_of(node, NOTHING if is_counted else request)
        exceeded = exceeding(summed((request, node.total.used)), limit)
        if exceeded:
            return f"Insufficient quotas, quotaName: {node.name}, {_numbers(limit, node.total.used, request, exceeded)}"
        if is_non_preemptible:
            refusal = _beyond_min(node, request)
            if refusal is not None:
                return refusal
        return self._beyond_parents(node, request) if self.checks_parents else None

    def limit_of(self, node: QuotaNode, requested: Mapping[str, int] = NOTHING) -> Amounts:
        """How much the quota may use, if ``requested`` is added to its request."""
        return self.accounts.limit(node, requested) if self.by_runtime else dict(node.specification.max)

    def _beyond_parents(self, node: QuotaNode, request: Mapping[str, int]) -> str | None:
        topology = [node.name]
        for parent in node.ancestors():
            if parent.parent is None:
                return None
            topology.insert(0, parent.name)
            used, limit = parent.total.used, self.limit_of(parent)
            exceeded = exceeding(masked(summed((request, used)), request), limit)
            if exceeded:
                numbers = _numbers(limit, used, request, exceeded)
                return f"Insufficient quotas, quotaNameTopo: [{' '.join(topology)}], {numbers}"
        return None


def _beyond_min(node: QuotaNode, request: Mapping[str, int]) -> str | None:
    """Non-preemptible pods must fit in the quota's min, since what they use cannot be reclaimed."""
    used, least = node.total.non_preemptible_used, node.specification.min
    exceeded = exceeding(summed((request, used)), least)
    if not exceeded:
        return None
    return (
        f"Insufficient non-preemptible quotas, quotaName: {node.name}, min: {_printed(least)}, "
        f"nonPreemptibleUsed: {_printed(used)}, pod's request: {_printed(request)}, "
        f"exceedDimensions: [{' '.join(exceeded)}]"
    )


def _numbers(limit: Mapping[str, int], used: Mapping[str, int], request: Mapping[str, int], exceeded: list[str]) -> str:
    return (
        f"runtime: {_printed(limit)}, used: {_printed(used)}, pod's request: {_printed(request)}, "
        f"exceedDimensions: [{' '.join(exceeded)}]"
    )


def _printed(amounts: Mapping[str, int]) -> str:
    return printed(to_wire(amounts))


_WAITING_SHOWN: Final = 10


def explain_quota(admission: Admission, name: str) -> QuotaExplanation | None:
    """The explanation; None for an unknown quota."""
    accounts = admission.accounts
    forest = accounts.forest
    node = forest.nodes.get(name)
    if node is None:
        return None
    quota, limit = accounts.object(name), admission.limit_of(node)
    waiting = sorted(
        (pod for pod in accounts.pods_of(name) if not pod.is_assigned), key=lambda pod: (-pod.kind.priority, pod.key)
    )
    assigned = sum(1 for pod in accounts.pods_of(name) if pod.is_assigned)
    return QuotaExplanation(
        quota=name,
        parents=[each.name for each in node.ancestors()],
        faults=list(accounts.faults(quota)) if quota is not None else [],
        resources=[_resource(forest, node, limit, key) for key in sorted({*limit, *node.total.used})],
        siblings=_siblings(forest, node),
        pods=QuotaPods(assigned=assigned, waiting=len(waiting)),
        next=next((pod.key for pod in waiting if _refusal(admission, node, pod) is None), ""),
        waiting=[_waiting(admission, node, pod) for pod in waiting[:_WAITING_SHOWN]],
    )


def _resource(forest: Forest, node: QuotaNode, limit: Mapping[str, int], key: str) -> QuotaResource:
    used, allowed = node.total.used.get(key, 0), limit.get(key)
    amounts: dict[str, int | None] = {
        "min": node.specification.min.get(key, 0),
        "max": node.specification.max.get(key),
        "request": node.request.get(key, 0),
        "used": used,
        "runtime": allowed,
        "free": None if allowed is None else max(allowed - used, 0),
    }
    shown = {name: _shown(key, amount) if amount is not None else UNLIMITED for name, amount in amounts.items()}
    return QuotaResource(name=key, **shown, why=_why(forest, node, key))


def _why(forest: Forest, node: QuotaNode, key: str) -> str:
    """The explanation of the quota's current share of a resource, as a sentence."""
    if node.detached:
        return f"no pod is admitted: {node.detached}"
    parent = node.parent
    if node.is_outside or parent is None or key not in parent.keys:
        return "its max: it shares this with nobody"
    share, floor = forest.runtime(node).get(key, 0), forest.floor(node).get(key, 0)
    request, least = node.limited_request.get(key, 0), node.specification.min.get(key, 0)
    available = forest.runtime(parent).get(key, 0)
    of_parent = f"the {_shown(key, available)} that {parent.name} has"
    scaled = f"its min of {_shown(key, least)}, scaled to {_shown(key, floor)} as {parent.name} has too little"
    kept = "its min" if floor == least else scaled
    if request <= floor:
        if forest.lends(node) and share < floor:
            return f"all that it requests; {_shown(key, floor - share)} of {kept} is lent"
        return f"{kept}, of {of_parent}"
    borrowed = f"{kept} and {_shown(key, share - floor)} more by its weight" if share > floor else f"{kept} and no more"
    return f"{borrowed}, of {of_parent}; it requests {_shown(key, request)}"


def _siblings(forest: Forest, node: QuotaNode) -> list[Sibling]:
    """What each child of the quota's parent lends, and borrows beyond its min."""
    if node.parent is None or node.is_outside:
        return []
    found = []
    for each in node.parent.children:
        share, floor = forest.runtime(each), forest.floor(each)
        keys = [key for key in sorted(share) if key in each.specification.max]
        lent = {key: floor[key] - share[key] for key in keys if share[key] < floor.get(key, 0)}
        borrowed = {key: share[key] - floor.get(key, 0) for key in keys if share[key] > floor.get(key, 0)}
        found.append(Sibling(quota=each.name, lends=_list(lent), borrows=_list(borrowed)))
    return found


def _waiting(admission: Admission, node: QuotaNode, pod: CountedPod) -> WaitingPod:
    return WaitingPod(
        pod=pod.key,
        priority=pod.kind.priority,
        request=_list(masked(pod.kind.request, node.specification.max)),
        reason=_refusal(admission, node, pod) or "",
    )


def _refusal(admission: Admission, node: QuotaNode, pod: CountedPod) -> str | None:
    return admission.why_not(node, pod.kind.request, is_non_preemptible=pod.kind.is_non_preemptible, is_counted=True)


def _shown(key: str, amount: int) -> str:
    return str(to_wire({key: amount})[key])


def _list(amounts: Mapping[str, int]) -> str:
    return printed(to_wire(amounts)) if amounts else ""
