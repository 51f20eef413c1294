"""From the failures of an evaluation to a Rejection: counts, examples, the message and what would unblock the pod."""

from __future__ import annotations

from collections import Counter
from typing import Final

from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.decision import Rejection, RuledOut
from koordinator.scheduler.engine.evaluation import Evaluation, Failure
from koordinator.scheduler.engine.events import EventKind
from koordinator.scheduler.engine.fit_error import (
    NO_NODES,
    fit_error,
    pre_filter_error,
    preemption_text,
    restricted_text,
)
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile

_EXAMPLES: Final = 3


def no_nodes() -> Rejection:
    """The cluster has no nodes at all."""
    return Rejection(NO_NODES, 0, (), frozenset(), frozenset({EventKind.NODE_ADD}))


def reject(profile: Profile, state: ClusterState, evaluation: Evaluation, pod: PodInfo) -> Rejection:
    """Explain an evaluation without a feasible row; ``pod`` is the member of the class that was tried."""
    total = len(state.view.columns.row_of)
    if evaluation.plan.rejection is not None:
        return _by_pre_filter(profile, state, evaluation.plan.rejection, pod)
    failures = [(failure, tuple(failure.plugin.reasons(pod, failure.state, failure.code)))
                for failure in evaluation.failures()]  # fmt: skip
    ruled_out = [_ruled_out(state, failure, reasons) for failure, reasons in failures]
    plugins = {entry.plugin for entry in ruled_out}
    skipped = total - sum(entry.count for entry in ruled_out)
    if evaluation.plan.restricted_by and skipped:
        text = restricted_text(evaluation.plan.restricted_by)
        ruled_out.append(RuledOut(", ".join(evaluation.plan.restricted_by), (text,), True, skipped, ()))
        plugins.update(evaluation.plan.restricted_by)
    counts: Counter[str] = Counter()
    for entry in ruled_out:
        for text in entry.reasons:
            counts[text] += entry.count
    resolvable = [failure for failure, reasons in failures if not any(reason.unresolvable for reason in reasons)]
    after = _after(profile, state, pod, [row for failure in resolvable for row in failure.rows.tolist()])
    return _rejection(profile, fit_error(total, counts, after), total - skipped, ruled_out, plugins)


def _by_pre_filter(profile: Profile, state: ClusterState, rejection: tuple[str, Reason], pod: PodInfo) -> Rejection:
    plugin, reason = rejection
    rows = list(state.view.columns.row_of.values())
    after = _after(profile, state, pod, [] if reason.unresolvable else rows)
    ruled_out = [RuledOut(plugin, (reason.text,), reason.unresolvable, len(rows), ())]
    return _rejection(profile, pre_filter_error(len(rows), reason.text, after), 0, ruled_out, {plugin})


def _rejection(
    profile: Profile, message: str, evaluated: int, ruled_out: list[RuledOut], plugins: set[str]
) -> Rejection:
    wakes_on = frozenset[str]().union(*(profile.plugins[name].wakes_on() for name in plugins))
    return Rejection(message, evaluated, tuple(ruled_out), frozenset(plugins), wakes_on)


def _ruled_out(state: ClusterState, failure: Failure, reasons: tuple[Reason, ...]) -> RuledOut:
    names = state.view.columns.names
    return RuledOut(
        failure.plugin.name,
        tuple(reason.text for reason in reasons),
        any(reason.unresolvable for reason in reasons),
        failure.rows.size,
        tuple(names[row] for row in failure.rows[:_EXAMPLES].tolist()),
    )


def _after(profile: Profile, state: ClusterState, pod: PodInfo, resolvable: list[int]) -> str:
    """What DefaultPreemption says when it can do nothing. Where it has victims to choose from it says nothing."""
    if not profile.preempts:
        return ""
    total = len(state.view.columns.row_of)
    if pod.pod.spec.preemption_policy == "Never":
        return preemption_text(total, 0, never=True)
    lowest = state.lowest_priority
    if lowest is not None and lowest < pod.priority:
        on = state.view.pods_on
        if any(other.priority < pod.priority for row in resolvable for other in on[row].values()):
            return ""
    return preemption_text(total, len(resolvable), never=False)
