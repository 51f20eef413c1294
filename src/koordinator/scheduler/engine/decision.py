"""What was decided about a pod and why: the result of an attempt.

The texts that say why no node fits are kube-scheduler's: people and programs search events for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from koordinator.api.explanations import ScoredNode
from koordinator.scheduler.engine.binding_points import CycleState
from koordinator.scheduler.engine.columns import NodeReference
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import NO_PLAN, PostFilterResult
from koordinator.scheduler.engine.profile import Profile

NO_NODES: Final = "no nodes available to schedule pods"
_NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
NO_VICTIMS: Final = "No preemption victims found for incoming pod"


def fit_error(node_count: int, reasons: Mapping[str, int], after: str = "") -> str:
    """``0/5 nodes are available: 2 Insufficient cpu, 3 node(s) were unschedulable. <after>``.

    ``reasons`` maps the text of a reason to the number of nodes with it; the phrases are sorted as strings, as upstream
    does.
    """
    text = f"0/{node_count} nodes are available:"
    if reasons:
        text += f" {', '.join(sorted(f'{count} {reason}' for reason, count in reasons.items()))}."
    return f"{text} {after}" if after else text


def pre_filter_error(node_count: int, reason: str, after: str = "") -> str:
    """The text when PreFilter rejects all nodes at once: the plugin's reason, without a count."""
    text = f"0/{node_count} nodes are available: {reason}."
    return f"{text} {after}" if after else text


def preemption_error(node_count: int, reasons: Mapping[str, int], tried: int) -> str:
    """The text when preemption helps on no node: ``reasons`` (text -> nodes) of the ``tried`` nodes, and that it could
    not have helped on the others."""
    return fit_error(node_count, +Counter({**reasons, _NOT_HELPFUL: node_count - tried}))


def restricted_text(plugins: Iterable[str]) -> str:
    """The reason of the nodes that PreFilter plugins excluded."""
    return f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(plugins))}]"


@dataclass(frozen=True, slots=True)
class RejectedNodes:
    """Nodes that one plugin rejected for the same reasons."""

    plugin: str
    reasons: tuple[str, ...]
    unresolvable: bool
    """Evicting pods from these nodes would not help."""
    count: int
    examples: tuple[str, ...]


class Placement(msgspec.Struct, frozen=True):
    """The pod goes to ``node``."""

    state: CycleState
    """The attempt, with the pod and a reference to the node."""
    pod: PodInfo
    profile: Profile
    """Without the plugins that do not concern the pod."""
    node: NodeReference
    evaluated: int
    feasible: int
    best_nodes: tuple[str, ...]
    """The chosen node first, then the next best."""
    best_scores: tuple[list[int], ...]
    """Weighted scores of each of ``best_nodes`` by ``plugins``. Not combined with the names here, since they are rarely
    read."""
    plugins: tuple[str, ...]
    rejecting_plugins: tuple[str, ...] = ()
    """The plugins that were the first to reject some other node."""
    tied: int = 0
    """How many nodes had the highest score, ``node_name`` among them, which was chosen at random; 0 when the pod was
    nominated to the node or a plugin named it, so that the score did not decide."""

    @property
    def node_name(self) -> str:
        return self.node.name

    @property
    def top(self) -> tuple[ScoredNode, ...]:
        """The best nodes with the weighted score of each plugin."""
        return tuple(
            ScoredNode(node=node, score=sum(scores), score_by_plugin=dict(zip(self.plugins, scores, strict=True)))
            for node, scores in zip(self.best_nodes, self.best_scores, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Rejection:
    """No node is feasible."""

    message: str
    """The text of the event and of the pod's condition."""
    evaluated: int
    rejected: tuple[RejectedNodes, ...]
    plugins: frozenset[str]
    events_to_register: frozenset[str]
    """The kinds of event that may make a node feasible."""
    pod_class: int = 0
    """The number of the class of pods that this holds for; 0 when it holds for this pod alone."""
    waits_as: Hashable = None
    """Shared by pods, also of other classes, that wait for the same events, see CyclePreFilterPlugin.waits_as."""
    refusal: str = ""
    """The reason, as it is in ``message``, of the plugin that ended the attempt before any node was filtered."""
    after: PostFilterResult = NO_PLAN
    """The result of the PostFilter plugins."""

    @property
    def why(self) -> str:
        """``message`` without what PostFilter plugins have added."""
        return self.message.removesuffix(f" {self.after.message}") if self.after.message else self.message


class Attempt(msgspec.Struct, frozen=True):
    """One entry of the log of attempts. Exactly one of ``placement``, ``rejection`` and ``error`` is set."""

    at: datetime
    number: int
    placement: Placement | None = None
    rejection: Rejection | None = None
    error: str = ""
