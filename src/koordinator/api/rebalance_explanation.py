"""The explanation of rebalancing: what koord-descheduler would do now. See ``explanations``."""

from __future__ import annotations

from koordinator.api.explanations import Explanation, ExplanationPart


class HotNode(ExplanationPart):
    """A node that is over a threshold of LowNodeLoad."""

    profile: str = ""
    plugin: str = ""
    node: str = ""
    pool: str = ""
    pods: str = ""
    """Whose usage it is: ``all``, or ``prod`` for that of the pods of class prod alone."""
    usage: dict[str, float] = {}
    """Resource -> percent of what is allocatable, of those that are over their thresholds."""
    thresholds: dict[str, float] = {}
    cycles: int = 0
    """In how many cycles in a row it was hot, of the ``needed`` before its pods are evicted."""
    needed: int = 0
    confirmed: bool = False


class PlannedEviction(ExplanationPart):
    """A pod that a plugin proposes to evict."""

    uid: str = ""
    pod: str = ""
    node: str = ""
    profile: str = ""
    plugin: str = ""
    reason: str = ""
    why: str | None = None
    """Why it is refused; None for one that is taken."""


class PlannedChange(ExplanationPart):
    plugin: str = ""
    what: str = ""
    reason: str = ""


class PluginRemark(ExplanationPart):
    profile: str = ""
    plugin: str = ""
    text: str = ""


class StayingPods(ExplanationPart):
    why: str = ""
    pods: int = 0
    examples: list[str] = []


class RebalanceExplanation(Explanation, kw_only=True):
    """What a cycle of koord-descheduler would do if it began now, and why all other pods stay."""

    rebalance: str
    """The profiles."""
    nodes: int = 0
    pods: int = 0
    hot: list[HotNode] = []
    evictions: list[PlannedEviction] = []
    refused: list[PlannedEviction] = []
    others: list[PlannedChange] = []
    remarks: list[PluginRemark] = []
    errors: list[str] = []
    stays: list[StayingPods] = []
    """By reason, the commonest first."""
