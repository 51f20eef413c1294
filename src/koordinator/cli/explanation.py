"""Combines what the scheduler knows with what the API has, so that each question gets a result."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as dataclass_replace
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from koordinator.api.codec import DecodeError, convert
from koordinator.api.explanations import (
    ApiState,
    Explanation,
    GangExplanation,
    InterferenceExplanation,
    MigrationExplanation,
    PodExplanation,
    QuotaExplanation,
    ReservationExplanation,
    WorkloadExplanation,
)
from koordinator.api.kinds import Kind
from koordinator.api.node_explanation import NodeExplanation, OvercommitExplanation
from koordinator.api.rebalance_explanation import RebalanceExplanation
from koordinator.base.spelling import meant
from koordinator.cli.audit_source import last_of_pod, records_of_pod
from koordinator.cli.explain_cluster import Cluster
from koordinator.cli.explain_failure import (
    ExplainError,
    ForbiddenError,
    NotFoundError,
    UnknownToProgramError,
    left_out,
)
from koordinator.cli.explain_interference import interference_document
from koordinator.cli.explain_migration import migration_document
from koordinator.cli.explain_node import REPORTS
from koordinator.cli.explain_object import ObjectReader, read_from
from koordinator.cli.explain_source import ProgramEndpoint, fetch
from koordinator.cli.explain_state import (
    PodFacts,
    State,
    condition_message,
    node_facts,
    node_state,
    object_state,
    pod_state,
    scheduler_of,
)
from koordinator.cli.explain_target import LISTED, REBALANCE, Target, TargetKind
from koordinator.cli.explain_workload import workload_state
from koordinator.cli.session import Session
from koordinator.cli.timeline import event_records, timeline_of

E = TypeVar("E", bound=Explanation)
_OF_PLUGINS: Final[Mapping[TargetKind, tuple[type[Explanation], str]]] = {
    "quota": (QuotaExplanation, "ElasticQuota/quotas/{name}"),
    "reservation": (ReservationExplanation, "Reservation/reservations/{name}"),
    "gang": (GangExplanation, "Coscheduling/gang/{namespace}/{name}"),
}
"""What plugins of the scheduler explain, and where they serve it."""


@dataclass(frozen=True, slots=True)
class Explained:
    """``document`` is what there is to say about an object of ``kind``; ``incomplete`` says why the scheduler's part of
    it is missing."""

    document: Explanation
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


async def explain(target: Target, sources: Sources, session: Session) -> Explained:
    """Everything about the target. Raises ExplainError when nothing at all is to be had."""
    return await _Explainer(session, sources).explain(target)


class _Explainer:
    """Answers one question."""

    def __init__(self, session: Session, sources: Sources) -> None:
        self._session = session
        self._sources = sources
        self._cluster = sources.cluster
        self._readable = sources.cluster if sources.cluster is not None and sources.cluster.client else None
        """The cluster if its API can be queried."""

    async def explain(self, target: Target) -> Explained:
        namespace = target.namespace or (self._cluster.namespace if self._cluster is not None else "default")
        match target.kind:
            case "node":
                return await self._node(target.name)
            case "interference":
                return Explained(await self._interference(target.name), kind=target.kind)
            case "rebalance":
                descheduler = self._sources.descheduler
                document = await self._fetch(descheduler, "/explain/rebalance", RebalanceExplanation, REBALANCE)
                return Explained(document, kind=target.kind)
            case "migration":
                return Explained(await self._migration(target.name), kind=target.kind)
            case "workload":
                assert target.workload is not None
                return Explained(await self._workload(target.workload, namespace, target.name), kind=target.kind)
            case "pod":
                return await self._pod_or_node(target, namespace)
        return await self._of_plugin(target, namespace)

    async def _fetch(self, endpoint: ProgramEndpoint, path: str, expected: type[E], kind: str) -> E:
        """Raises ExplainError: any server on that port may respond with JSON."""
        document = await fetch(self._session, endpoint, path)
        try:
            return convert(document, expected)
        except DecodeError as error:
            raise _no_explanation(endpoint, kind) from error

    async def _of_plugin(self, target: Target, namespace: str) -> Explained:
        expected, path = _OF_PLUGINS[target.kind]
        path = f"/apis/v1/plugins/{path.format(namespace=namespace, name=target.name)}/explanation"
        try:
            document = await self._fetch(self._sources.scheduler, path, expected, target.kind)
        except UnknownToProgramError as error:
            raise NotFoundError(f"{error}{await self._similar(target, namespace)}") from error
        except ForbiddenError as error:
            return await self._object_alone(target, namespace, error)
        return Explained(document, kind=target.kind)

    async def _object_alone(self, target: Target, namespace: str, error: ForbiddenError) -> Explained:
        """What the object itself says to who may not query the scheduler. Raises ``error`` where it cannot be read."""
        if self._readable is None:
            raise error
        async with read_from(self._session, self._readable) as reader:
            found = await reader.object(LISTED[target.kind], target.name, namespace)
        if found is None:
            raise NotFoundError(f"there is no {target.kind} {target.name} in {self._readable.name}") from error
        expected, _ = _OF_PLUGINS[target.kind]
        document = convert({target.kind: target.name}, expected)
        return _of_api(replace(document, api=object_state(target.kind, found)), error, target.kind)

    async def _similar(self, target: Target, namespace: str) -> str:
        """``; there is NAME``: what may be meant, as far as the API says it."""
        if self._readable is None or not self._sources.cluster_is_sure:
            return ""
        within = namespace if target.kind == "gang" else ""
        try:
            async with read_from(self._session, self._readable) as reader:
                return _there_is(await reader.similar(target.kind, target.name, within))
        except ExplainError:
            return ""

    async def _pod_or_node(self, target: Target, namespace: str) -> Explained:
        try:
            result = await self._pod(namespace, target.name)
        except NotFoundError as error:
            if not target.guessed:
                raise
            return await self._node_instead(target.name, error)
        return _taken_for(result, "pod") if target.guessed else result

    async def _node_instead(self, name: str, no_pod: NotFoundError) -> Explained:
        """The user did not say that the name is a pod's, and there is no such pod."""
        try:
            return _taken_for(await self._node(name), "node")
        except NotFoundError:
            hint = f"; did you mean koord explain {REBALANCE}?" if meant(name, [REBALANCE]) else ""
            raise NotFoundError(f"no node is named {name}, and {no_pod}{hint}") from no_pod

    async def _pod(self, namespace: str, name: str) -> Explained:
        scheduler, path = self._sources.scheduler, f"/debug/explain/{namespace}/{name}"
        try:
            document = await self._fetch(scheduler, path, PodExplanation, "pod")
        except UnknownToProgramError as error:
            if self._cluster is None:
                raise
            served = await self._served()
            return await self._pod_of_api(namespace, name, served, None if served is not None else error)
        except ExplainError as error:
            if self._readable is None:
                raise
            return await self._pod_of_api(namespace, name, None, error)
        if self._cluster is None or not self._sources.cluster_is_sure:
            return Explained(document)
        try:
            async with read_from(self._session, self._cluster) as reader:
                facts = await reader.pod_facts(namespace, name, None)
                document = await self._with_timeline(document, facts, reader)
        except ExplainError as error:
            return Explained(_without(document, "what the API says of the pod", error))
        state = pod_state(facts)
        if state.needs_saying or facts.pod is None:
            document = replace(document, api=_api_of_pod(facts, state))
        return Explained(_with_left_out(document, reader.left_out))

    async def _pod_of_api(
        self, namespace: str, name: str, served: Collection[str] | None, incomplete: ExplainError | None
    ) -> Explained:
        assert self._cluster is not None
        async with read_from(self._session, self._cluster) as reader:
            facts = await reader.pod_facts(namespace, name, served)
            state = pod_state(facts)
            if facts.pod is None:
                raise _not_there(state, await last_of_pod(self._session, self._sources.manager, facts.key))
            document = PodExplanation(pod=facts.key, api=_api_of_pod(facts, state))
            if (facts.pod.get("spec") or {}).get("nodeName"):
                document = await self._with_timeline(document, facts, reader)
        return _of_api(_with_left_out(document, reader.left_out), incomplete, "pod")

    async def _with_timeline(self, document: PodExplanation, facts: PodFacts, reader: ObjectReader) -> PodExplanation:
        """With what each program did with the pod, as far as that may be read."""
        if facts.pod is None:
            return document
        reading = records_of_pod(self._session, self._sources.manager, facts.key, facts.pod["metadata"])
        kept, traces = await asyncio.gather(reading, reader.traces(facts.pod))
        reader.left_out += kept.left_out
        traces = dataclass_replace(traces, records=kept.records)
        timeline = timeline_of(facts.pod, facts.events, document.attempts or (), traces)
        return replace(document, timeline=timeline, audit_not_queried=kept.missing or None)

    async def _served(self) -> Collection[str] | None:
        """The names under which the scheduler takes pods; None when it does not say."""
        try:
            document = await fetch(self._session, self._sources.scheduler, "/configz")
            return frozenset(profile["schedulerName"] for profile in document["componentconfig"]["profiles"])
        except (ExplainError, KeyError, TypeError):
            # Another version, or a Go koord-scheduler: nothing is claimed about its profiles.
            return None

    async def _node(self, name: str) -> Explained:
        scheduler, path = self._sources.scheduler, f"/debug/explain-node/{name}"
        try:
            document = await self._fetch(scheduler, path, NodeExplanation, "node")
        except UnknownToProgramError:
            if self._readable is None:
                raise
            return Explained(await self._node_of_api(name, self._readable, known_to_scheduler=False), kind="node")
        except ExplainError as error:
            if self._readable is None:
                raise
            return _of_api(await self._node_of_api(name, self._readable, known_to_scheduler=None), error, "node")
        document = replace(document, overcommit=await self._overcommit(name))
        if self._readable is not None and self._sources.cluster_is_sure:
            document = await self._with_reports(document, self._readable)
        return Explained(document, kind="node")

    async def _with_reports(self, document: NodeExplanation, cluster: Cluster) -> NodeExplanation:
        """Whether best-effort pods are held down there, which koordlet has written into the NodeMetric, and by which
        configuration, which it has written into the NodeResourceTopology."""
        for what, part in REPORTS.items():
            try:
                async with read_from(self._session, cluster) as reader:
                    document = replace(document, **await part(reader, document.node))
            except ExplainError as error:
                document = _without(document, what, error)
        return document

    async def _overcommit(self, name: str) -> OvercommitExplanation:
        """What the node offers beyond its own resources, and why; an error says why that is not known."""
        try:
            document = await fetch(self._session, self._sources.manager, f"/explain/node/{name}")
            return convert(document, OvercommitExplanation)
        except ForbiddenError as error:
            return OvercommitExplanation(error=left_out("what koord-manager knows", error))
        except (ExplainError, DecodeError) as error:
            return OvercommitExplanation(error=str(error))

    async def _node_of_api(self, name: str, cluster: Cluster, *, known_to_scheduler: bool | None) -> NodeExplanation:
        async with read_from(self._session, cluster) as reader:
            node, similar = await reader.node(name)
        state = node_state(name, cluster.name, node, similar)
        if node is None:
            raise _not_there(state)
        facts = node_facts(node)
        if known_to_scheduler is False:
            facts.append("koord-scheduler does not know of it yet: ask again in a moment.")
        api = ApiState(state=state.kind, sentence=state.sentence, next=state.next or None, facts=facts)
        return await self._with_reports(NodeExplanation(node=name, api=api), cluster)

    # What is read from the API alone.

    def _needed(self, what: str) -> Cluster:
        if self._cluster is None:
            raise ExplainError(f"{what}: name a cluster with --kubeconfig or --data")
        return self._cluster

    async def _interference(self, name: str) -> InterferenceExplanation:
        """What koordlet has written into the NodeMetric."""
        cluster = self._needed("interference is read from the NodeMetric")
        async with read_from(self._session, cluster) as reader:
            metric = await reader.node_metric(name)
            if metric is None:
                node, similar = await reader.node(name)
                if node is None:
                    raise _not_there(node_state(name, cluster.name, node, similar))
                raise NotFoundError(
                    f"node {name} has no NodeMetric: koord-manager makes it, and koordlet reports to it"
                )
        return interference_document(name, metric)

    async def _migration(self, name: str) -> MigrationExplanation:
        """What koord-descheduler has written into the PodMigrationJob, and what it waits for."""
        cluster = self._needed("a migration is read from its PodMigrationJob")
        async with read_from(self._session, cluster) as reader:
            found = await reader.migration(name)
        if found is None:
            like = await self._similar(Target("migration", name), "")
            raise NotFoundError(
                f"{cluster.name} has no PodMigrationJob {name}{like}; jobs are deleted minutes after their end"
            )
        return _with_left_out(migration_document(*found), reader.left_out)

    async def _workload(self, kind: Kind[Any], namespace: str, name: str) -> WorkloadExplanation:
        """How many of its pods there are, and who should make the others."""
        cluster = self._needed(f"a {kind.name} is read from the API")
        async with read_from(self._session, cluster) as reader:
            facts = await reader.workload(kind, namespace, name)
            similar = () if facts is not None else await reader.similar_of(kind, name, namespace)
        if facts is None:
            raise NotFoundError(f"there is no {kind.name} {namespace}/{name} in {cluster.name}{_there_is(similar)}")
        state = replace(workload_state(facts), events=event_records(facts.events))
        document = WorkloadExplanation(workload=f"{namespace}/{name}", kind=kind.name, api=state)
        return _with_left_out(document, reader.left_out)


def _no_explanation(endpoint: ProgramEndpoint, kind: str) -> ExplainError:
    queried = endpoint.url or "what was queried"
    return ExplainError(f"{queried} does not explain a {kind}; is that a koord-{endpoint.program}?")


def _not_there(state: State, more: str = "") -> NotFoundError:
    return NotFoundError(f"{state.sentence}. {state.next}".rstrip(".") + more)


def _there_is(names: Sequence[str]) -> str:
    return f"; there {'is' if len(names) == 1 else 'are'} {', '.join(names)}" if names else ""


def _taken_for(result: Explained, kind: TargetKind) -> Explained:
    assert isinstance(result.document, Explanation)
    return Explained(replace(result.document, taken_for=kind), result.incomplete, result.kind)


def _of_api(document: Explanation, error: ExplainError | None, kind: TargetKind) -> Explained:
    """An explanation without what the scheduler knows. Who may not query it has all that there is for them."""
    if not isinstance(error, ForbiddenError):
        return Explained(document, error, kind)
    return Explained(_without(document, "what koord-scheduler knows", error), kind=kind)


def _without(document: E, what: str, error: ExplainError) -> E:
    """``what`` of the API or of a program is missing because of ``error``."""
    if isinstance(error, ForbiddenError):
        return _with_left_out(document, [left_out(what, error)])
    return replace(document, api_not_queried=str(error))


def _with_left_out(document: E, sentences: Sequence[str]) -> E:
    return replace(document, left_out=[*(document.left_out or ()), *sentences]) if sentences else document


def _api_of_pod(facts: PodFacts, state: State) -> ApiState:
    said = ApiState(state=state.kind, sentence=state.sentence, next=state.next or None)
    if facts.pod is None:
        return said
    spec, status = facts.pod.get("spec") or {}, facts.pod.get("status") or {}
    return replace(
        said,
        phase=status.get("phase") or None,
        scheduler=scheduler_of(facts.pod),
        node=spec.get("nodeName") or None,
        message=None if spec.get("nodeName") else condition_message(facts.pod) or None,
        events=event_records(facts.events),
    )
