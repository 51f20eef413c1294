"""The result of a simulation as a JSON document: the difference between the cluster before and after the change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.kinds import PODS, REPLICA_SETS, RESERVATIONS
from koordinator.api.timestamps import format_time
from koordinator.cluster.verbs.target import decode
from koordinator.scheduler.explain import explain_pod
from koordinator.scheduler.explain.explainer import amount_text
from koordinator.simulate.change import Remarks
from koordinator.simulate.in_process_api import InProcessApi
from koordinator.simulate.pod_documents import is_finished, is_of_daemon_set, key_of, owner_of
from koordinator.simulate.quota_amounts import QuotaAmounts, quota_amounts, quota_changes
from koordinator.simulate.simulated_cluster import SimulatedCluster
from koordinator.simulate.snapshot import Snapshot

NOT_SIMULATED: Final = (
    "kubelets: their own admission, image pulls, start-up and readiness",
    "autoscalers, operators, koord-descheduler",
    "changes of load: node metrics stay as in the snapshot",
    "LimitRanges, and webhooks other than koord-manager's for pods",
)
"""Included in every result."""
_BY_CONTROLLER: Final = "a controller of koord-scheduler (ElasticQuota revokes pods of quotas that use too much)"
_EXPLAINED: Final = 20
"""The number of groups of pending pods for which advice is computed."""


@dataclass(slots=True)
class _Trace:
    """One pod, or Reservation, that has changed, with its documents before and after; None if it did not exist."""

    before: Document | None
    after: Document | None
    last: Document


@dataclass(frozen=True, slots=True)
class NodeAmounts:
    """What is requested of each resource of each node, and what is allocatable."""

    of_nodes: Mapping[str, Mapping[str, tuple[int, int]]]
    """Node -> resource -> requested and allocatable."""

    @classmethod
    def of(cls, cluster: SimulatedCluster) -> NodeAmounts:
        columns = cluster.scheduler.state.view.columns
        return cls({node: columns.numbers[row].by_name() for node, row in columns.row_of.items()})

    @property
    def resources(self) -> Iterable[str]:
        """The resources of all nodes, each once."""
        return dict.fromkeys(name for amounts in self.of_nodes.values() for name in amounts)

    def of_node(self, node: str, resource: str) -> tuple[int, int]:
        """Requested and allocatable; zeros for an unknown node or resource."""
        return self.of_nodes.get(node, {}).get(resource, (0, 0))

    def total(self, resource: str) -> tuple[int, int]:
        found = [self.of_node(node, resource) for node in self.of_nodes]
        return sum(requested for requested, _ in found), sum(allocatable for _, allocatable in found)


@dataclass(frozen=True, slots=True)
class Baseline:
    """The settled cluster before any change."""

    revision: int
    amounts: NodeAmounts
    placed: int
    """How many pods were pending in the snapshot and would be placed without any change."""
    pending: int
    """How many pods would be pending without any change."""
    departures: frozenset[str]
    quotas: QuotaAmounts

    @classmethod
    def of(cls, cluster: SimulatedCluster) -> Baseline:
        traces = _traces(cluster.api, PODS, cluster.loaded_at)
        placed = sum(_node(trace.after) != "" and _node(trace.before) == "" for trace in traces.values())
        return cls(
            cluster.api.environment.storage.revision(),
            NodeAmounts.of(cluster),
            placed,
            len(cluster.scheduler.queue),
            frozenset(cluster.pods.departures),
            quota_amounts(cluster),
        )


def outcome(
    snapshot: Snapshot, cluster: SimulatedCluster, baseline: Baseline, remarks: Sequence[Remarks]
) -> dict[str, Any]:
    """The result; its members are described in docs/what-if.md."""
    traces = _traces(cluster.api, PODS, baseline.revision)
    departures = {uid: each for uid, each in cluster.pods.departures.items() if uid not in baseline.departures}
    replaces = {each.replacement: each.pod for each in departures.values() if each.replacement}
    names = _Names(cluster.api)
    placed = [
        _placement(cluster, trace.after, replaces.get(uid), names)
        for uid, trace in traces.items()
        if trace.after is not None
        and _node(trace.after)
        and not _node(trace.before)
        and not _came_with_node(cluster, trace.after)
    ]
    pending = [
        (trace.after, trace.before)
        for trace in traces.values()
        if trace.after is not None and not _node(trace.after) and not is_finished(trace.after)
    ]
    new_pending = [pod for pod, before in pending if before is None]
    document: dict[str, Any] = {
        "snapshot": _snapshot(snapshot),
        "changes": [each.done for each in remarks],
        "blocked": [text for each in remarks for text in each.blocked],
        "placed": sorted(placed, key=lambda each: (each["workload"], each["pod"])),
        "departed": [
            _departure(departure, traces.get(departure.replacement), names) for departure in departures.values()
        ],
        "pending": _pending(cluster, new_pending, replaces, names),
        "reservations": _reservations(cluster, baseline.revision),
        "before": {"wouldBePlaced": baseline.placed, "pending": baseline.pending},
        "after": {"pending": len(cluster.scheduler.queue)},
        **_capacity(cluster, baseline.amounts),
        "quotas": quota_changes(baseline.quotas, quota_amounts(cluster)),
        "notes": [text for each in remarks for text in each.notes],
        "notSimulated": list(NOT_SIMULATED),
        "settled": not cluster.unsettled,
    }
    for each in remarks:
        document |= each.facts
    return document


class _Names:
    """The names of pods' workloads, in words: ``deployment shop/web``."""

    def __init__(self, api: InProcessApi) -> None:
        self._api = api
        self._known: dict[str, str] = {}

    def of(self, pod: Document) -> str:
        owner, namespace = owner_of(pod), pod["metadata"]["namespace"]
        if owner is None:
            return f"pod {namespace}/{pod['metadata']['name']}"
        found = self._known.get(owner["uid"])
        if found is None:
            found = self._known[owner["uid"]] = self._top(owner, namespace)
        return found

    def _top(self, owner: Document, namespace: str) -> str:
        if owner["kind"] == REPLICA_SETS.name:
            replica_set = self._api.document(REPLICA_SETS, owner["name"], namespace)
            above = owner_of(replica_set) if replica_set is not None else None
            if above is not None:
                return f"{above['kind'].lower()} {namespace}/{above['name']}"
        return f"{owner['kind'].lower()} {namespace}/{owner['name']}"


def _traces(api: InProcessApi, kind: Any, revision: int) -> dict[str, _Trace]:
    """By uid: the objects changed since ``revision``, in the order of their first change."""
    resource, found = api.resource(kind), dict[str, _Trace]()
    for change in api.changes(kind, revision):
        current = decode(resource, change.current)
        uid = current["metadata"]["uid"]
        trace = found.get(uid)
        if trace is None:
            before = decode(resource, change.previous) if change.previous is not None else None
            trace = found[uid] = _Trace(before, None, current)
        trace.last = current
        trace.after = None if change.type == "deleted" else current
    return found


def _snapshot(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "cluster": snapshot.cluster,
        "began": format_time(snapshot.began),
        "ended": format_time(snapshot.ended),
        "nodes": snapshot.count("nodes"),
        "pods": snapshot.count("pods"),
        "missing": dict(snapshot.missing),
    }


def _placement(cluster: SimulatedCluster, pod: Document, replaced: Document | None, names: _Names) -> dict[str, Any]:
    key = key_of(pod)
    found: dict[str, Any] = {"pod": key, "workload": names.of(pod), "node": _node(pod)}
    placement = next(
        (
            attempt.placement
            for attempt in reversed(cluster.scheduler.decisions.attempts(key))
            if attempt.placement is not None
        ),
        None,
    )
    if placement is not None:
        found |= {"feasibleNodes": placement.feasible, "nodesWithTheSameScore": placement.tied}
    if replaced is not None:
        found["replaces"] = {"pod": key_of(replaced), "node": _node(replaced)}
    return found


def _departure(departure: Any, replacement: _Trace | None, names: _Names) -> dict[str, Any]:
    found: dict[str, Any] = {
        "pod": key_of(departure.pod),
        "workload": names.of(departure.pod),
        "node": departure.node,
        "cause": departure.cause,
    }
    if departure.by:
        found["by"] = departure.by
    elif departure.cause == "evicted":
        found["message"] = _BY_CONTROLLER
    if departure.not_replaced:
        found["notReplaced"] = departure.not_replaced
    if replacement is not None:
        found["replacement"] = {"pod": key_of(replacement.last), "node": _node(replacement.last)}
        if replacement.after is None:
            found["replacement"]["leaves"] = True
    return found


def _pending(
    cluster: SimulatedCluster, pods: Iterable[Document], replaces: Mapping[str, Document], names: _Names
) -> list[dict[str, Any]]:
    """Pods of the same workload that wait for the same reason are one entry."""
    waiting = cluster.scheduler.state.view.waiting
    reasons = {entry.pod.uid: entry.reason for entry in cluster.scheduler.queue.pods()}
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for pod in pods:
        uid, key = pod["metadata"]["uid"], key_of(pod)
        held = waiting.get(uid)
        if held is not None:
            message = f"has room on {held.node_name}, and waits for the rest of its gang"
        elif pod["spec"].get("schedulerName") not in cluster.scheduler.engines:
            message = f"is left to the scheduler {pod['spec'].get('schedulerName')!r}, which is not simulated"
        else:
            # Some messages contain the pod's name, and are otherwise equal for all pods of a workload.
            message = reasons.get(uid, "").replace(f"preemptor pod {pod['metadata']['name']}", "the preemptor")
        group = groups.setdefault(
            (names.of(pod), message), {"workload": names.of(pod), "message": message, "pods": [], "advice": []}
        )
        entry: dict[str, Any] = {"pod": key}
        if uid in replaces:
            entry["replaces"] = {"pod": key_of(replaces[uid]), "node": _node(replaces[uid])}
        group["pods"].append(entry)
    for group in list(groups.values())[:_EXPLAINED]:
        namespace, _, name = group["pods"][0]["pod"].partition("/")
        found = explain_pod(cluster.scheduler.sources, namespace, name)
        group["message"] = group["message"] or (found.message if found is not None else None) or ""
        group["advice"] = (found.advice if found is not None else None) or []
    return list(groups.values())


def _reservations(cluster: SimulatedCluster, revision: int) -> list[dict[str, Any]]:
    reasons = {entry.pod.uid: entry.reason for entry in cluster.scheduler.queue.pods()}
    found = []
    for trace in _traces(cluster.api, RESERVATIONS, revision).values():
        after = trace.after
        if after is None or (trace.before is not None and _reserved(trace.before) == _reserved(after)):
            continue
        entry = {"reservation": after["metadata"]["name"], "node": _reserved(after)}
        if not entry["node"]:
            entry["message"] = reasons.get(after["metadata"]["uid"], "")
        found.append(entry)
    return found


def _reserved(reservation: Document) -> str:
    return str((reservation.get("status") or {}).get("nodeName") or "")


def _capacity(cluster: SimulatedCluster, before: NodeAmounts) -> dict[str, Any]:
    """Of the nodes and resources that have changed, and of the whole cluster."""
    after = NodeAmounts.of(cluster)
    resources = dict.fromkeys((*before.resources, *after.resources))
    nodes = []
    for node in sorted({*before.of_nodes, *after.of_nodes}):
        amounts = {
            name: _amounts(name, before.of_node(node, name), after.of_node(node, name))
            for name in resources
            if before.of_node(node, name) != after.of_node(node, name)
        }
        if amounts:
            state = "added" if node not in before.of_nodes else "removed" if node not in after.of_nodes else "changed"
            nodes.append({"node": node, "state": state, "resources": amounts})
    total = {
        name: _amounts(name, before.total(name), after.total(name))
        for name in resources
        if any(before.total(name)) or any(after.total(name))
    }
    return {"nodes": nodes, "cluster": {"nodes": [len(before.of_nodes), len(after.of_nodes)], "resources": total}}


def _amounts(resource: str, before: tuple[int, int], after: tuple[int, int]) -> dict[str, Any]:
    return {
        when: {
            "requested": amount_text(resource, requested),
            "allocatable": amount_text(resource, allocatable),
            "percent": round(100 * requested / allocatable, 1) if allocatable else None,
        }
        for when, (requested, allocatable) in (("before", before), ("after", after))
    }


def _node(pod: Document | None) -> str:
    return "" if pod is None else str(pod["spec"].get("nodeName") or "")


def _came_with_node(cluster: SimulatedCluster, pod: Document) -> bool:
    """A pod of a DaemonSet on a node that was added: the scheduler did not choose the node."""
    return is_of_daemon_set(pod) and not cluster.scheduler.decisions.attempts(key_of(pod))
