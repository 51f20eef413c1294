"""Why a node would be one pod too many: the constraint, its domain there, and the domain that all are compared with."""

from __future__ import annotations

from koordinator.api.node import Node
from koordinator.scheduler.explain.explainer import Lack
from koordinator.scheduler.explain.wording import selector_text
from koordinator.scheduler.plugins.pod_topology_spread.constraints import SpreadConstraint
from koordinator.scheduler.plugins.pod_topology_spread.hard_spread import ClassSpread, Unmet


def lacks_of(state: ClassSpread, node: Node, row: int) -> list[Lack]:
    """One for each constraint that ``row``, on which ``node`` is, does not meet."""
    return [_lack(unmet, node) for unmet in state.unmet(row)]


def _lack(unmet: Unmet, node: Node) -> Lack:
    constraint = unmet.constraint
    key = constraint.topology_key
    if unmet.missing_key:
        return Lack(f"the node has no label {key}")
    skew = unmet.pods + constraint.matches_itself - unmet.least
    has = f"{key}={node.metadata.labels.get(key, '')} has {_pods(unmet.pods)} with {selector_text(constraint.selector)}"
    itself = "with this one the skew would be" if constraint.matches_itself else "the skew is"
    text = f"{has}, {_compared_with(unmet)}: {itself} {skew}, maxSkew is {constraint.max_skew}"
    return Lack(text, (skew - constraint.max_skew) / skew)


def _compared_with(unmet: Unmet) -> str:
    constraint: SpreadConstraint = unmet.constraint
    if unmet.domains < constraint.min_domains:
        return f"and with {unmet.domains} of at least {constraint.min_domains} domains (minDomains) 0 is the least"
    return f"the least is {unmet.least} in {constraint.topology_key}={unmet.emptiest}"


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"
