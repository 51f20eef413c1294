"""Combines what the scheduler knows with what the API has, so that each question gets a result."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from koordinator.api.kinds import Kind
from koordinator.api.meta import EXTENSIONS_MEMBER
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import CPU
from koordinator.base.spelling import meant
from koordinator.cli.explain_cluster import Cluster
from koordinator.cli.explain_failure import (
    ExplainError,
    ForbiddenError,
    NotFoundError,
    UnknownToProgramError,
    left_out,
)
from koordinator.cli.explain_migration import migration_document
from koordinator.cli.explain_object import read_from
from koordinator.cli.explain_source import ProgramEndpoint, fetch
from koordinator.cli.explain_state import (
    PodFacts,
    condition_message,
    node_state,
    object_state,
    pod_state,
    scheduler_of,
)
from koordinator.cli.explain_suppression import suppression_document
from koordinator.cli.explain_target import LISTED, REBALANCE, Target, TargetKind
from koordinator.cli.explain_workload import workload_state

_EVENTS_KEPT: Final = 20


@dataclass(frozen=True, slots=True)
class Explanation:
    """``document`` is what there is to say about an object of ``kind``; ``incomplete`` says why the scheduler's part of
    it is missing."""

    document: dict[str, Any]
    incomplete: ExplainError | None = None
    kind: TargetKind = "pod"


@dataclass(frozen=True, slots=True)
class Sources:
    """``cluster`` is None when the scheduler alone can be queried. With ``cluster_is_sure`` both are of one cluster for
    certain; a scheduler that was named by its URL may be of another than kubectl's."""

    scheduler: ProgramEndpoint
    manager: ProgramEndpoint
    descheduler: ProgramEndpoint
    cluster: Cluster | None
    cluster_is_sure: bool = True


async def explain(target: Target, sources: Sources) -> Explanation:
    """Everything about the target. Raises ExplainError when nothing at all is to be had."""
    if target.kind == "node":
        return await _node(target.name, sources)
    if target.kind == "interference":
        return Explanation(await _interference(target.name, sources), kind=target.kind)
    if target.kind == "rebalance":
        document = await fetch(sources.descheduler, "/explain/rebalance")
        return Explanation(_checked(document, target.kind, sources), kind=target.kind)
    if target.kind == "migration":
        return Explanation(await _migration(target.name, sources), kind=target.kind)
    namespace = target.namespace or (sources.cluster.namespace if sources.cluster is not None else "default")
    if target.workload is not None:
        return Explanation(await _workload(target.workload, namespace, target.name, sources), kind=target.kind)
    paths: dict[TargetKind, str] = {
        "quota": f"ElasticQuota/quotas/{target.name}",
        "reservation": f"Reservation/reservations/{target.name}",
        "gang": f"Coscheduling/gang/{namespace}/{target.name}",
    }
    if target.kind in paths:
        path = f"/apis/v1/plugins/{paths[target.kind]}/explanation"
        try:
            document = await fetch(sources.scheduler, path)
        except UnknownToProgramError as error:
            raise NotFoundError(f"{error}{await _similar(target, namespace, sources)}") from error
        except ForbiddenError as error:
            return await _object_alone(target, namespace, sources, error)
        return Explanation(_checked(document, target.kind, sources), kind=target.kind)
    try:
        result = await _pod(namespace, target.name, sources)
    except NotFoundError as error:
        if not target.guessed:
            raise
        return await _node_instead(target.name, sources, error)
    if target.guessed:
        result.document["takenFor"] = "pod"
    return result


async def _object_alone(target: Target, namespace: str, sources: Sources, error: ForbiddenError) -> Explanation:
    """What the object itself says to who may not query the scheduler. Raises ``error`` where it cannot be read."""
    cluster = sources.cluster
    if cluster is None or cluster.client is None:
        raise error
    async with read_from(cluster) as reader:
        found = await reader.object(LISTED[target.kind], target.name, namespace)
    if found is None:
        raise NotFoundError(f"there is no {target.kind} {target.name} in {cluster.name}") from error
    document = {target.kind: target.name, "api": object_state(target.kind, found)}
    return _of_api(document, error, target.kind)


def _of_api(document: dict[str, Any], error: ExplainError | None, kind: TargetKind) -> Explanation:
    """An explanation without what the scheduler knows. Who may not query it has all that there is for them."""
    if not isinstance(error, ForbiddenError):
        return Explanation(document, error, kind)
    _leave_out(document, "what koord-scheduler knows", error)
    return Explanation(document, kind=kind)


def _leave_out(document: dict[str, Any], what: str, error: ExplainError) -> None:
    """``what`` of the API or of a program is missing because of ``error``."""
    if isinstance(error, ForbiddenError):
        _add_left_out(document, [left_out(what, error)])
    else:
        document["apiNotQueried"] = str(error)


def _add_left_out(document: dict[str, Any], sentences: Sequence[str]) -> None:
    if sentences:
        document["leftOut"] = [*document.get("leftOut", ()), *sentences]


async def _similar(target: Target, namespace: str, sources: Sources) -> str:
    """``; there is NAME``: what may be meant, as far as the API says it."""
    cluster = sources.cluster
    if cluster is None or cluster.client is None or not sources.cluster_is_sure:
        return ""
    within = namespace if target.kind == "gang" else ""
    try:
        async with read_from(cluster) as reader:
            names = await reader.similar(target.kind, target.name, within)
    except ExplainError:
        return ""
    return f"; there {'is' if len(names) == 1 else 'are'} {', '.join(names)}" if names else ""


async def _node_instead(name: str, sources: Sources, no_pod: NotFoundError) -> Explanation:
    """The user did not say that the name is a pod's, and there is no such pod."""
    try:
        result = await _node(name, sources)
    except NotFoundError:
        hint = f"; did you mean koord explain {REBALANCE}?" if meant(name, [REBALANCE]) else ""
        raise NotFoundError(f"no node is named {name}, and {no_pod}{hint}") from no_pod
    result.document["takenFor"] = "node"
    return result


async def _pod(namespace: str, name: str, sources: Sources) -> Explanation:
    try:
        document = _checked(await fetch(sources.scheduler, f"/debug/explain/{namespace}/{name}"), "pod", sources)
    except UnknownToProgramError as error:
        if sources.cluster is None:
            raise
        served = await _served(sources.scheduler)
        return await _pod_of_api(namespace, name, sources.cluster, served, None if served is not None else error)
    except ExplainError as error:
        if sources.cluster is None or sources.cluster.client is None:
            raise
        return await _pod_of_api(namespace, name, sources.cluster, None, error)
    if sources.cluster is None or not sources.cluster_is_sure:
        return Explanation(document)
    try:
        async with read_from(sources.cluster) as reader:
            facts = await reader.pod_facts(namespace, name, None)
    except ExplainError as error:
        _leave_out(document, "what the API says of the pod", error)
        return Explanation(document)
    _add_left_out(document, reader.left_out)
    state = pod_state(facts)
    if state.needs_saying or facts.pod is None:
        document["api"] = _api_of_pod(facts)
    return Explanation(document)


def _checked(document: Any, kind: str, sources: Sources) -> dict[str, Any]:
    """Any server on that port may respond with JSON."""
    if not isinstance(document, dict) or kind not in document:
        queried = sources.descheduler if kind == "rebalance" else sources.scheduler
        raise ExplainError(
            f"{queried.url or 'what was queried'} does not explain a {kind}; is that a koord-{queried.program}?"
        )
    return document


async def _pod_of_api(
    namespace: str, name: str, cluster: Cluster, served: Collection[str] | None, incomplete: ExplainError | None
) -> Explanation:
    async with read_from(cluster) as reader:
        facts = await reader.pod_facts(namespace, name, served)
    if facts.pod is None:
        state = pod_state(facts)
        raise NotFoundError(f"{state.sentence}. {state.next}".rstrip("."))
    document: dict[str, Any] = {"pod": facts.key, "api": _api_of_pod(facts)}
    _add_left_out(document, reader.left_out)
    return _of_api(document, incomplete, "pod")


async def _served(scheduler: ProgramEndpoint) -> Collection[str] | None:
    """The names under which the scheduler takes pods; None when it does not say."""
    try:
        document = await fetch(scheduler, "/configz")
        return frozenset(profile["schedulerName"] for profile in document["componentconfig"]["profiles"])
    except (ExplainError, KeyError, TypeError):
        # Another version, or a Go koord-scheduler: nothing is claimed about its profiles.
        return None


def _api_of_pod(facts: PodFacts) -> dict[str, Any]:
    state = pod_state(facts)
    document: dict[str, Any] = {"state": state.kind, "sentence": state.sentence, "next": state.next}
    if facts.pod is None:
        return document
    spec, status = facts.pod.get("spec") or {}, facts.pod.get("status") or {}
    document |= {
        "phase": status.get("phase") or "",
        "scheduler": scheduler_of(facts.pod),
        "node": spec.get("nodeName") or "",
        "message": "" if spec.get("nodeName") else condition_message(facts.pod),
        "events": [_event(each) for each in facts.events[-_EVENTS_KEPT:]],
    }
    return {key: value for key, value in document.items() if value}


def _event(event: Mapping[str, Any]) -> dict[str, str]:
    series = event.get("series") or {}
    time = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or ""
    return {
        "time": f"{str(time)[:19]}Z" if time else "",
        "from": event.get("reportingComponent") or (event.get("source") or {}).get("component") or "",
        "reason": event.get("reason") or "",
        "message": event.get("message") or "",
    }


async def _node(name: str, sources: Sources) -> Explanation:
    cluster = sources.cluster
    try:
        document = _checked(await fetch(sources.scheduler, f"/debug/explain-node/{name}"), "node", sources)
    except UnknownToProgramError:
        if cluster is None or cluster.client is None:
            raise
        return Explanation(await _node_of_api(name, cluster, known_to_scheduler=False), kind="node")
    except ExplainError as error:
        if cluster is None or cluster.client is None:
            raise
        return _of_api(await _node_of_api(name, cluster, known_to_scheduler=None), error, "node")
    document["overcommit"] = await _overcommit(name, sources.manager)
    if cluster is not None and cluster.client is not None and sources.cluster_is_sure:
        await _add_suppression(document, name, cluster)
    return Explanation(document, kind="node")


async def _add_suppression(document: dict[str, Any], name: str, cluster: Cluster) -> None:
    """Whether best-effort pods are held down there, which koordlet has written into the NodeMetric."""
    try:
        async with read_from(cluster) as reader:
            metric = await reader.node_metric(name)
    except ExplainError as error:
        _leave_out(document, "what koordlet has reported of the node", error)
        return
    if (found := suppression_document(metric)) is not None:
        document["suppression"] = found


async def _overcommit(name: str, manager: ProgramEndpoint) -> dict[str, Any]:
    """What the node offers beyond its own resources, and why; an error says why that is not known."""
    try:
        overcommit: dict[str, Any] = await fetch(manager, f"/explain/node/{name}")
    except ForbiddenError as error:
        return {"error": left_out("what koord-manager knows", error)}
    except ExplainError as error:
        return {"error": str(error)}
    return overcommit


async def _interference(name: str, sources: Sources) -> dict[str, Any]:
    """What koordlet has written into the NodeMetric."""
    cluster = sources.cluster
    if cluster is None:
        raise ExplainError("interference is read from the NodeMetric: name a cluster with --kubeconfig or --data")
    async with read_from(cluster) as reader:
        metric = await reader.node_metric(name)
        if metric is None:
            node, similar = await reader.node(name)
            if node is None:
                state = node_state(name, cluster.name, node, similar)
                raise NotFoundError(f"{state.sentence}. {state.next}".rstrip("."))
            raise NotFoundError(f"node {name} has no NodeMetric: koord-manager makes it, and koordlet reports to it")
    status = metric.get("status") or {}
    pods = status.get("podsMetric") or ()
    victims = [
        {"pod": f"{pod.get('namespace', '')}/{pod.get('name', '')}", "qos": pod.get("qos", ""), **finding}
        for pod in pods
        for finding in ((pod.get("extensions") or {}).get(EXTENSIONS_MEMBER) or {}).get("interference") or ()
    ]
    return {"interference": name, "reported": status.get("updateTime") or "", "pods": len(pods), "victims": victims}


async def _migration(name: str, sources: Sources) -> dict[str, Any]:
    """What koord-descheduler has written into the PodMigrationJob, and what it waits for."""
    cluster = sources.cluster
    if cluster is None:
        raise ExplainError("a migration is read from its PodMigrationJob: name a cluster with --kubeconfig or --data")
    async with read_from(cluster) as reader:
        found = await reader.migration(name)
    if found is None:
        like = await _similar(Target("migration", name), "", sources)
        raise NotFoundError(
            f"{cluster.name} has no PodMigrationJob {name}{like}; jobs are deleted minutes after their end"
        )
    document = migration_document(*found)
    _add_left_out(document, reader.left_out)
    return document


async def _workload(kind: Kind[Any], namespace: str, name: str, sources: Sources) -> dict[str, Any]:
    """How many of its pods there are, and who should make the others."""
    cluster = sources.cluster
    if cluster is None:
        raise ExplainError(f"a {kind.name} is read from the API: name a cluster with --kubeconfig or --data")
    async with read_from(cluster) as reader:
        facts = await reader.workload(kind, namespace, name)
        similar = () if facts is not None else await reader.similar_of(kind, name, namespace)
    if facts is None:
        like = f"; there is {', '.join(similar)}" if similar else ""
        raise NotFoundError(f"there is no {kind.name} {namespace}/{name} in {cluster.name}{like}")
    events = [_event(each) for each in facts.events[-_EVENTS_KEPT:]]
    document: dict[str, Any] = {
        "workload": f"{namespace}/{name}",
        "kind": kind.name,
        "api": {**workload_state(facts), **({"events": events} if events else {})},
    }
    _add_left_out(document, reader.left_out)
    return document


async def _node_of_api(name: str, cluster: Cluster, *, known_to_scheduler: bool | None) -> dict[str, Any]:
    async with read_from(cluster) as reader:
        node, similar = await reader.node(name)
    state = node_state(name, cluster.name, node, similar)
    if node is None:
        raise NotFoundError(f"{state.sentence}. {state.next}".rstrip("."))
    facts = _facts(node)
    if known_to_scheduler is False:
        facts.append("koord-scheduler does not know of it yet: ask again in a moment.")
    document: dict[str, Any] = {
        "node": name,
        "api": {"state": state.kind, "sentence": state.sentence, "next": state.next, "facts": facts},
    }
    await _add_suppression(document, name, cluster)
    return document


def _facts(node: Mapping[str, Any]) -> list[str]:
    spec, status = node.get("spec") or {}, node.get("status") or {}
    taints = [_taint(each) for each in spec.get("taints") or ()]
    allocatable = [_amount(name, text) for name, text in sorted((status.get("allocatable") or {}).items())]
    facts = [f"taint {taint}" for taint in taints]
    return [*facts, f"allocatable: {', '.join(allocatable)}"] if allocatable else facts


def _amount(resource: str, text: str) -> str:
    # Loaded only where it is needed: the scheduler behind it is half of what `koord` would load at every start.
    from koordinator.scheduler.explain.wording import amount_of

    try:
        quantity = Quantity.parse(text)
    except ValueError:
        return f"{text} {resource}"
    return amount_of(resource, quantity.milli if resource == CPU else quantity.value)


def _taint(taint: Mapping[str, Any]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key', '')}{value}:{taint.get('effect', '')}"
