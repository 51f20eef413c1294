"""What is known of each node's health, and what is said when it turns: an event, once, and a count."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from koordinator.api.kinds import NODES
from koordinator.api.node import Node
from koordinator.base.metrics import Metrics
from koordinator.kube.event_series import reference_to
from koordinator.kube.events import EventRecorder
from koordinator.model.overcommit.abnormal_condition import ConditionChange, remembered
from koordinator.model.overcommit.abnormality import REASONS, NodeHealth, observe
from koordinator.model.overcommit.metric_facts import MetricFacts
from koordinator.model.overcommit.node_facts import NodeFacts
from koordinator.model.overcommit.policies import Policies

OTHER: Final = "Other"
"""In metrics, a reason that another version gave."""
_ABNORMAL: Final = "ColocationAbnormal"
_NORMAL: Final = "ColocationNormal"
_ACTION: Final = "Judge"


def reason_label(code: str) -> str:
    return code if code in REASONS else OTHER


@dataclass(slots=True)
class _Judged:
    uid: str
    """A node that is made anew under the same name starts anew."""
    health: NodeHealth
    said: str | None = None
    """The reason that was written last, empty for none; None: nothing has been written yet."""


class AbnormalNodes:
    """Judges nodes one look after another; what is to be written, its caller writes."""

    def __init__(self, recorder: EventRecorder, metrics: Metrics) -> None:
        self._recorder = recorder
        self._judged: dict[str, _Judged] = {}
        self._transitions = metrics.tally(
            "koord_manager_abnormal_node_transitions_total", "Nodes that turned abnormal or normal", ("reason", "to")
        )

    def judge(
        self,
        node: Node,
        facts: NodeFacts,
        metric: MetricFacts | None,
        policies: Policies,
        now: datetime,
        *,
        runs_pods: bool,
    ) -> NodeHealth | None:
        """The node's health after this look; None where nobody is to judge it."""
        name, uid = node.metadata.name, node.metadata.uid
        if not (policies.capacity.enable and policies.abnormality.enable):
            self._judged.pop(name, None)
            return None
        known = self._judged.get(name)
        if known is None or known.uid != uid:
            known = self._judged[name] = _Judged(uid, remembered(node, now))
        known.health = observe(
            known.health, facts, metric, policies.capacity, now, policies.abnormality, runs_pods=runs_pods
        )
        return known.health

    def written(self, node: Node, change: ConditionChange) -> None:
        """A change has been written: tell of it, unless it was told before and only its echo is still on its way."""
        known = self._judged.get(node.metadata.name)
        before = change.before if known is None or known.said is None else known.said
        if known is not None:
            known.said = change.after
        if before == change.after:
            return
        if before:
            self._transitions.labels(reason_label(before), "normal").inc()
        if change.after:
            self._transitions.labels(reason_label(change.after), "abnormal").inc()
        self._tell(node, change, before)

    def forget(self, name: str) -> None:
        self._judged.pop(name, None)

    def clear(self) -> None:
        self._judged.clear()

    def _tell(self, node: Node, change: ConditionChange, before: str) -> None:
        regarding = reference_to(NODES, node)
        if change.after:
            self._recorder.event(regarding, "Warning", _ABNORMAL, _ACTION, f"{change.after}: {change.message}")
        else:
            self._recorder.event(regarding, "Normal", _NORMAL, _ACTION, f"{before} is over: {change.message}")
