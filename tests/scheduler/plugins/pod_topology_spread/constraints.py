"""Constraints in few words."""

from __future__ import annotations

from collections.abc import Sequence

from koordinator.api.meta import LabelSelector, LabelSelectorRequirement
from koordinator.api.pod import TopologySpreadConstraint


def has(*keys: str) -> LabelSelector:
    return LabelSelector(match_expressions=[LabelSelectorRequirement(key=key, operator="Exists") for key in keys])


FOO = has("foo")


def spread(
    key: str,
    skew: int = 1,
    selector: LabelSelector | None = FOO,
    *,
    domains: int | None = None,
    affinity: str | None = None,
    taints: str | None = None,
    labels: Sequence[str] = (),
    action: str = "DoNotSchedule",
) -> TopologySpreadConstraint:
    return TopologySpreadConstraint(
        max_skew=skew,
        topology_key=key,
        when_unsatisfiable=action,
        label_selector=selector,
        min_domains=domains,
        node_affinity_policy=affinity,
        node_taints_policy=taints,
        match_label_keys=list(labels),
    )
