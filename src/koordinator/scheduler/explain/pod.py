"""Explains a pod: its last attempts, what it waits for, what would help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypedDict

import msgspec
import numpy as np
from numpy.typing import NDArray

from koordinator.api.explanations import (
    AttemptRecord,
    CloseNode,
    FittingNodes,
    PodExplanation,
    QueueState,
    RejectedNodes,
)
from koordinator.api.pod import Pod
from koordinator.api.resource_names import PODS
from koordinator.api.timestamps import format_micro_time
from koordinator.model.gang_declaration import gang_id_of
from koordinator.scheduler.engine.columns import NodeColumns, Rows
from koordinator.scheduler.engine.decision import Attempt, Placement, Rejection
from koordinator.scheduler.engine.framework import FEASIBLE, FilterPlugin, PluginError
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.advice import advise
from koordinator.scheduler.explain.explainer import Explainer, amount_text, event_meaning
from koordinator.scheduler.explain.sources import FilterResults, Objection, Sources, filter_nodes
from koordinator.scheduler.plugins.reservation.reserve_pod import allocated_record
from koordinator.scheduler.queue.queued_pod import Pool, QueuedPod

_LOOKED_AT: Final = 64
"""The number of nodes whose shortfalls are computed in full; they are preselected by values of the columns."""


def fitting(filter_results: FilterResults, columns: NodeColumns) -> list[str]:
    """The nodes that pass all filters now."""
    free = ~(filter_results.codes != FEASIBLE).any(axis=0)
    return [columns.names[row] for row in filter_results.rows[free].tolist()]


def closest(filter_results: FilterResults, view: ClusterView, count: int) -> list[CloseNode]:
    """Up to ``count`` nodes, the closest first; nodes that fit are omitted."""
    objecting = (filter_results.codes != FEASIBLE).sum(axis=0)
    order = np.lexsort((_missing(filter_results.pod, view.columns, filter_results.rows), objecting))
    candidates = [index for index in order.tolist() if objecting[index]][:_LOOKED_AT]
    names = [view.columns.names[row] for row in filter_results.rows[candidates].tolist()]
    found = list(zip(names, map(filter_results.objections, candidates), strict=True))
    nearest = sorted(found, key=lambda each: (_distance(each[1]), each[0]))[:count]
    return [CloseNode(node=name, lacks=[each.document for each in objections]) for name, objections in nearest]


def _distance(objections: Sequence[Objection]) -> tuple[int, bool, float]:
    """Fewest plugins first; then nodes on which eviction or time may help; then the least missing."""
    missing = sum(lack.shortfall for objection in objections for lack in objection.lacks)
    hopeless = any(reason.unresolvable for objection in objections for reason in objection.reasons)
    return len(objections), hopeless, missing


def _missing(pod: PodInfo, columns: NodeColumns, rows: Rows) -> NDArray[np.float64]:
    """The sum over resources of the missing amounts, as shares of the requested ones."""
    missing = np.zeros(rows.shape[0])
    for name, amount in pod.request.counted.items():
        column = columns.resources.column_of[name]
        missing += np.maximum(amount - columns.unused[rows, column], 0) / amount
    return missing


_CLOSEST: Final = 5
_FITTING: Final = 3
_GATED: Final = "It is not tried until its scheduling gates are gone: the controller that set a gate takes it off."
_HELD_BACK: Final = "It is tried as soon as what is named above holds no more."


def explain_pod(sources: Sources, namespace: str, name: str) -> PodExplanation | None:
    """The explanation of the pod; None when it was neither tried lately nor is queued nor on a node."""
    key = f"{namespace}/{name}"
    entry = sources.queued(key)
    found = _on_node(sources.view, key) if entry is None else None
    attempts = _own(sources.decisions.attempts(key), entry, found[1] if found is not None else None)
    if not attempts and entry is None and found is None:
        return None
    records = [_attempt(attempt) for attempt in attempts]
    if entry is not None:
        return PodExplanation(
            pod=key,
            scheduler=entry.pod.pod.spec.scheduler_name,
            requests=_requests(entry.pod, sources.view),
            gang=gang_id_of(entry.pod.pod) or None,
            message=_message(sources, entry, attempts),
            facts=_facts(sources, entry.pod),
            queue=_queued(entry, sources.monotonic()),
            attempts=records,
            **_outlook(sources, entry, attempts),
        )
    if found is None:
        return PodExplanation(pod=key, attempts=records)
    taken_from = allocated_record(found[1].pod)
    return PodExplanation(
        pod=key,
        node=found[0],
        scheduler=found[1].pod.spec.scheduler_name,
        reservation=taken_from.name if taken_from is not None else None,
        gang=gang_id_of(found[1].pod) or None,
        facts=_facts(sources, found[1]),
        attempts=records,
    )


def _own(attempts: Sequence[Attempt], entry: QueuedPod | None, placed: PodInfo | None) -> Sequence[Attempt]:
    """The attempts without those of earlier pods of the same name: attempt numbers start at 1 again with each pod."""
    first = len(attempts) - 1
    while first > 0 and attempts[first - 1].number < attempts[first].number:
        first -= 1
    if not attempts or (entry is not None and attempts[-1].number > entry.attempts):
        return ()
    last = attempts[-1].placement
    if placed is not None and last is not None and last.pod.uid != placed.uid:
        return ()
    return attempts[first:]


def _on_node(view: ClusterView, key: str) -> tuple[str, PodInfo] | None:
    for row, pods in view.pods_on.items():
        for pod in pods.values():
            if pod.key == key:
                return view.columns.names[row], pod
    return None


def _facts(sources: Sources, pod: PodInfo) -> dict[str, list[str]] | None:
    profile = sources.profiles.get(pod.pod.spec.scheduler_name)
    explainers = [part for part in profile.parts if isinstance(part, Explainer)] if profile is not None else ()
    return {each.name: facts for each in explainers if (facts := _facts_of(each, pod))} or None


def _facts_of(plugin: Explainer, pod: PodInfo) -> list[str]:
    try:
        return list(plugin.pod_facts(pod))
    except Exception as error:
        # A plugin may raise anything; the facts of the others are shown.
        return [f"{type(error).__name__}: {error}"]


def _requests(pod: PodInfo, view: ClusterView) -> dict[str, str]:
    column_of = view.columns.resources.column_of
    ordered = sorted(pod.request.amounts.items(), key=lambda each: (column_of[each[0]], each[0]))
    return {name: amount_text(name, amount) for name, amount in ordered if name != PODS}


def _message(sources: Sources, entry: QueuedPod, attempts: Sequence[Attempt]) -> str:
    """The text of the pod's event and condition: the message of the last attempt, or the reason why there is none.

    That reason is asked for anew: what it counts, such as the pods of a gang, has changed since the pod was gated.
    """
    if entry.pool is Pool.GATED:
        return _gate(sources, entry) or entry.reason
    if not attempts:
        return entry.reason
    last = attempts[-1]
    return last.rejection.message if last.rejection is not None else last.error or entry.reason


def _gate(sources: Sources, entry: QueuedPod) -> str:
    """What holds the pod back now; empty when nothing does, or when a plugin fails."""
    try:
        gated = sources.profiles[entry.pod.pod.spec.scheduler_name].gate(entry.pod)
    except PluginError:
        return ""
    return f"{gated[0]}: {gated[1]}" if gated is not None else ""


class _Outlook(TypedDict, total=False):
    """The parts of an explanation that are about the present."""

    advice: list[str]
    not_evaluated: str
    fitting_now: FittingNodes
    closest_nodes: list[CloseNode]


def _outlook(sources: Sources, entry: QueuedPod, attempts: Sequence[Attempt]) -> _Outlook:
    """At present: the nodes that would fit, the closest of the others, and advice."""
    view, profile = sources.view, sources.profiles[entry.pod.pod.spec.scheduler_name]
    if entry.pool is Pool.GATED:
        return {"advice": [_of_gated(entry.pod.pod)]}
    last = attempts[-1].rejection if attempts else None
    rejected = last.rejected if last is not None else ()
    try:
        sources.notify_time()
        filter_results = filter_nodes(profile, view, entry.pod)
        near = closest(filter_results, view, _CLOSEST)
        advice = advise(rejected, entry.pod, view, filter_results)
    except Exception as error:
        # A plugin may raise anything; the rest of the explanation is shown.
        return {
            "advice": advise(rejected, entry.pod, view, None),
            "not_evaluated": f"{type(error).__name__}: {error}",
        }
    fits = fitting(filter_results, view.columns)
    return {
        "advice": advice,
        "fitting_now": FittingNodes(
            nodes=len(fits), examples=fits[:_FITTING], held_back_by=_held_back(profile, last) or None
        ),
        "closest_nodes": near,
    }


def _of_gated(pod: Pod) -> str:
    """What takes a pod that is held back out of that."""
    if pod.spec.scheduling_gates:
        return _GATED
    gang = gang_id_of(pod)
    return f"{_HELD_BACK} koord explain gang {gang} says which members it waits for." if gang else _HELD_BACK


def _held_back(profile: Profile, last: Rejection | None) -> list[str]:
    """The plugins that ended the last attempt independently of nodes, which no Filter result shows."""
    if last is None:
        return []
    filters = {plugin.name for plugin in profile.all(FilterPlugin)}
    return sorted({entry.plugin for entry in last.rejected if entry.plugin not in filters})


def _queued(entry: QueuedPod, now: float) -> QueueState:
    state = QueueState(pool=entry.pool.value, attempts=entry.attempts, reason=entry.reason or None)
    if entry.pool is Pool.BACKOFF:
        left = round(max(0.0, entry.backoff_until - now), 1)
        return msgspec.structs.replace(state, tried_again_in_seconds=left)
    if entry.pool is Pool.UNSCHEDULABLE:
        kinds = sorted(entry.events_to_register)
        words = [event_meaning(kind) for kind in kinds]
        return msgspec.structs.replace(state, wakes_on=kinds, tried_again_when=words)
    return state


def _attempt(attempt: Attempt) -> AttemptRecord:
    record = AttemptRecord(time=format_micro_time(attempt.at), attempt=attempt.number)
    if attempt.placement is not None:
        return _placement(record, attempt.placement)
    if attempt.rejection is not None:
        return _rejection(record, attempt.rejection)
    return msgspec.structs.replace(record, result="error", message=attempt.error)


def _placement(record: AttemptRecord, placement: Placement) -> AttemptRecord:
    return msgspec.structs.replace(
        record,
        result="placed",
        node=placement.node_name,
        evaluated_nodes=placement.evaluated,
        feasible_nodes=placement.feasible,
        nodes_with_the_same_score=placement.tied,
        other_nodes_rejected_by=list(placement.rejecting_plugins),
        top_nodes=list(placement.top),
    )


def _rejection(record: AttemptRecord, rejection: Rejection) -> AttemptRecord:
    after = rejection.after
    return msgspec.structs.replace(
        record,
        result="unschedulable",
        message=rejection.message,
        evaluated_nodes=rejection.evaluated,
        rejected=[
            RejectedNodes(
                plugin=entry.plugin,
                reasons=list(entry.reasons),
                nodes=entry.count,
                examples=list(entry.examples),
                evicting_pods_may_help=not entry.unresolvable,
            )
            for entry in rejection.rejected
        ],
        wakes_on=sorted(rejection.events_to_register),
        nominated_node=after.nominated_node if after.found else None,
        evicts=[victim.key for victim in after.victims] if after.found else None,
        gangs_evicted_whole=sorted(set(after.with_gangs.values())) or None,
    )
