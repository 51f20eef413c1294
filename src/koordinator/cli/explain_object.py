"""Reads an object and what is said about it from the API, for what the programs do not know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from koordinator.api.codec import DecodeError, decode_any
from koordinator.api.kinds import (
    CLUSTER_COLOCATION_PROFILES,
    DEPLOYMENTS,
    EVENTS,
    NAMESPACES,
    NODE_METRICS,
    NODE_RESOURCE_TOPOLOGIES,
    NODES,
    POD_MIGRATION_JOBS,
    PODS,
    REPLICA_SETS,
    RESERVATIONS,
    Kind,
)
from koordinator.api.labels import GANG_MIGRATION
from koordinator.base.spelling import near
from koordinator.cli.explain_cluster import Cluster
from koordinator.cli.explain_failure import ExplainError, explain_error, left_out
from koordinator.cli.explain_state import PodFacts, scheduler_of
from koordinator.cli.explain_target import LISTED, TargetKind
from koordinator.cli.explain_workload import WorkloadFacts, owned_by
from koordinator.cli.session import Session
from koordinator.cli.timeline import Traces
from koordinator.kube.client import KubeClient
from koordinator.kube.errors import ApiStatusError, KubeError

T = TypeVar("T")
_LISTED: Final = 500
"""Objects of which names are compared: enough for a hint, and no load on the server."""
_ALIKE: Final = 0.75
"""Of names of objects, which are longer than words, and alike for other reasons than mistakes."""


class Migration(NamedTuple):
    """``reservation`` and ``pod`` are None where they are not there."""

    job: Mapping[str, Any]
    reservation: Mapping[str, Any] | None
    pod: Mapping[str, Any] | None
    gang: Sequence[Mapping[str, Any]] = ()
    """The other jobs that move the gang of the pod."""


class ObjectReader:
    """Objects as plain documents, so that no field gets lost on the way to a person. Made by ``read_from``."""

    def __init__(self, client: KubeClient, cluster: Cluster) -> None:
        self._client = client
        self._cluster = cluster
        self.left_out: list[str] = []
        """A sentence for each part that could not be read."""

    async def pod_facts(self, namespace: str, name: str, served: Collection[str] | None) -> PodFacts:
        """What distinguishes pods. ``served`` are the names under which koord-scheduler takes pods, None when it could
        not be queried. Raises KubeError when the pod itself cannot be read."""
        pod = await self._get(PODS, name, namespace)
        if pod is None:
            return await self._absent(namespace, name)
        others = None
        if served is not None and (scheduler := scheduler_of(pod)) not in served:
            others = await self._has_placed(scheduler)
        return PodFacts(
            namespace,
            name,
            self._cluster.name,
            pod,
            events=await self._events(pod),
            served=served,
            has_placed_others=others,
        )

    async def node(self, name: str) -> tuple[Mapping[str, Any] | None, Sequence[str]]:
        """The node, and the names that are like it when there is none. Raises KubeError."""
        found = await self._get(NODES, name)
        return found, () if found is not None else _like(name, await self._names(NODES))

    async def node_metric(self, name: str) -> Mapping[str, Any] | None:
        """The last report of a node; None if there is none of that name."""
        return await self._get(NODE_METRICS, name)

    async def node_topology(self, name: str) -> Mapping[str, Any] | None:
        """What koordlet says of itself and the CPUs of a node; None if it has not."""
        return await self._get(NODE_RESOURCE_TOPOLOGIES, name)

    async def migration(self, name: str) -> Migration | None:
        """A PodMigrationJob with its Reservation and its pod; None if there is no job of that name."""
        job = await self._get(POD_MIGRATION_JOBS, name)
        if job is None:
            return None
        spec = job.get("spec") or {}
        named = ((spec.get("reservationOptions") or {}).get("reservationRef") or {}).get("name") or ""
        pod = spec.get("podRef") or {}
        return Migration(
            job,
            await self._part("its Reservation", self._get(RESERVATIONS, named), None) if named else None,
            await self._part("its pod", self._get(PODS, pod["name"], pod.get("namespace", "")), None)
            if pod.get("name")
            else None,
            await self._part("the jobs of its gang", self._jobs_of_gang(job), ()),
        )

    async def _jobs_of_gang(self, job: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        shared = (job["metadata"].get("labels") or {}).get(GANG_MIGRATION)
        found = await self.every(POD_MIGRATION_JOBS, label_selector=f"{GANG_MIGRATION}={shared}") if shared else ()
        return [each for each in found if each["metadata"]["name"] != job["metadata"]["name"]]

    async def traces(self, pod: Mapping[str, Any]) -> Traces:
        """What the programs have left of the pod in other objects. Raises KubeError."""
        spec, namespace = pod.get("spec") or {}, pod["metadata"].get("namespace", "")
        profiles, labels, jobs, metric = await asyncio.gather(
            self._part("what the webhooks changed", self._installed(CLUSTER_COLOCATION_PROFILES), ()),
            self._labels_of_namespace(namespace),
            self._part("what koord-descheduler did with it", self._installed(POD_MIGRATION_JOBS), ()),
            self._part("what koordlet measured", self._metric_of(spec.get("nodeName") or ""), None),
        )
        return Traces(profiles, labels, jobs, metric)

    async def _installed(self, kind: Kind[Any]) -> Sequence[Mapping[str, Any]]:
        """All objects of one of our kinds; none where it is not installed."""
        try:
            return await self.every(kind)
        except ApiStatusError as error:
            if error.is_not_found:
                return ()
            raise

    async def _metric_of(self, node: str) -> Mapping[str, Any] | None:
        return await self._get(NODE_METRICS, node) if node else None

    async def _labels_of_namespace(self, name: str) -> Mapping[str, str] | None:
        """None where they may not be read: many users may not look at namespaces."""
        try:
            found = await self._get(NAMESPACES, name)
        except ApiStatusError:
            return None
        return (found or {}).get("metadata", {}).get("labels") or {}

    async def every(
        self, kind: Kind[Any], namespace: str = "", field_selector: str = "", label_selector: str = ""
    ) -> Sequence[Mapping[str, Any]]:
        """All objects of the kind, in pages. Raises KubeError."""
        found: list[Mapping[str, Any]] = []
        selectors = {"fieldSelector": field_selector, "labelSelector": label_selector}
        page = {"limit": str(_LISTED), **{name: text for name, text in selectors.items() if text}}
        while True:
            document = await self._decoded(f"{kind.path(quote(namespace))}?{urlencode(page)}")
            found += document.get("items") or ()
            rest = (document.get("metadata") or {}).get("continue")
            if not rest:
                return found
            page["continue"] = rest

    async def object(self, kind: Kind[Any], name: str, namespace: str = "") -> Mapping[str, Any] | None:
        """One object; None if there is none of that name. Raises KubeError."""
        return await self._get(kind, name, namespace)

    async def similar(self, kind: TargetKind, name: str, namespace: str) -> Sequence[str]:
        """Names of objects of that kind that may be meant. Raises KubeError."""
        return await self.similar_of(LISTED[kind], name, namespace) if kind in LISTED else ()

    async def similar_of(self, kind: Kind[Any], name: str, namespace: str) -> Sequence[str]:
        """Names of objects of that kind of the API that may be meant. Raises KubeError."""
        return _like(name, await self._names(kind, namespace))

    async def _absent(self, namespace: str, name: str) -> PodFacts:
        elsewhere: Sequence[str] = ()
        unknown = ""
        try:
            found = await self._list(PODS, field_selector=f"metadata.name={name}")
            elsewhere = sorted(each["metadata"]["namespace"] for each in found)
        except ApiStatusError as error:
            unknown = error.message or error.reason
        similar = _like(name, await self._names(PODS, namespace)) if not elsewhere else ()
        return PodFacts(
            namespace,
            name,
            self._cluster.name,
            None,
            namespace_is_there=await self._has_namespace(namespace),
            elsewhere=elsewhere,
            elsewhere_unknown=unknown,
            similar=similar,
        )

    async def _has_namespace(self, name: str) -> bool:
        try:
            return await self._get(NAMESPACES, name) is not None
        except ApiStatusError:
            # Many users may not look at namespaces; then nothing is claimed about it.
            return True

    async def _has_placed(self, scheduler: str) -> bool | None:
        """Whether a pod of that scheduler is on a node; None when pods may not be listed."""
        selector = f"spec.schedulerName={scheduler},spec.nodeName!="
        try:
            return bool(await self._list(PODS, field_selector=selector, limit=1))
        except ApiStatusError:
            return None

    async def workload(self, kind: Kind[Any], namespace: str, name: str) -> WorkloadFacts | None:
        """A workload with its ReplicaSets, its pods and what was said about it; None if there is none of that name."""
        found = await self._get(kind, name, namespace)
        if found is None:
            return None
        owners = [found]
        if kind is DEPLOYMENTS:
            replica_sets = await self._part("what its ReplicaSets say", self.every(REPLICA_SETS, namespace), ())
            owners += owned_by(replica_sets, found)
        pods = owned_by(await self._part("what its pods say", self.every(PODS, namespace), ()), *owners)
        kinds = [kind.name, *(REPLICA_SETS.name for _ in owners[1:])]
        events = [
            event for owner, called in zip(owners, kinds, strict=True) for event in await self._events(owner, called)
        ]
        return WorkloadFacts(kind.name, found, owners[1:], pods, sorted(events, key=_time_of))

    async def _events(self, found: Mapping[str, Any], kind: str = "Pod") -> Sequence[Mapping[str, Any]]:
        metadata = found["metadata"]
        selector = f"involvedObject.kind={kind},involvedObject.name={metadata['name']}"
        if uid := metadata.get("uid"):
            selector += f",involvedObject.uid={uid}"
        reading = self._list(EVENTS, metadata["namespace"], field_selector=selector)
        return sorted(await self._part("what events say", reading, ()), key=_time_of)

    async def _part(self, what: str, reading: Awaitable[T], without: T) -> T:
        """What is read, or ``without`` and a sentence where the server refuses: it does not fail for a part of it."""
        try:
            return await reading
        except ApiStatusError as error:
            if error.is_unauthorized:
                raise
            if (sentence := left_out(what, error)) not in self.left_out:
                self.left_out.append(sentence)
            return without

    async def _names(self, kind: Kind[Any], namespace: str = "") -> Sequence[str]:
        try:
            return [each["metadata"]["name"] for each in await self._list(kind, namespace)]
        except ApiStatusError:
            # A hint that is not to be had.
            return ()

    async def _get(self, kind: Kind[Any], name: str, namespace: str = "") -> Mapping[str, Any] | None:
        try:
            found: Mapping[str, Any] = await self._decoded(kind.path(quote(namespace), quote(name)))
        except ApiStatusError as error:
            if error.is_not_found:
                return None
            raise
        return found

    async def _list(
        self, kind: Kind[Any], namespace: str = "", *, field_selector: str = "", limit: int = _LISTED
    ) -> Sequence[Mapping[str, Any]]:
        query = {"limit": str(limit), **({"fieldSelector": field_selector} if field_selector else {})}
        found = await self._decoded(f"{kind.path(quote(namespace))}?{urlencode(query)}")
        items: Sequence[Mapping[str, Any]] = found.get("items") or ()
        return items

    async def _decoded(self, path: str) -> Any:
        body = await self._client.raw("GET", path)
        try:
            document = decode_any(body)
        except DecodeError as error:
            raise ExplainError(
                f"{self._cluster.name} cannot be queried: its response is not JSON; is that a Kubernetes API server?"
            ) from error
        if not isinstance(document, dict):
            raise ExplainError(f"{self._cluster.name} cannot be queried: its response is not a Kubernetes object")
        return document


@asynccontextmanager
async def read_from(session: Session, cluster: Cluster) -> AsyncIterator[ObjectReader]:
    """A reader while it is needed; whatever the API server refuses is raised as an ExplainError."""
    if cluster.client is None:
        raise ExplainError(
            f"no koord up runs on the folder {cluster.data} (koord up --data {cluster.data} starts one); --data names "
            "another folder, --kubeconfig a cluster"
        )
    try:
        yield ObjectReader(await session.client(cluster.client), cluster)
    except KubeError as error:
        raise explain_error(error, cluster.name, cluster.client.timeout_seconds) from error


def _like(name: str, names: Sequence[str]) -> Sequence[str]:
    """Names that may be meant: of the same controller, or a letter away."""
    starts = [each for each in names if each.startswith(f"{name}-")]
    return starts or near(name, names, 3, cutoff=_ALIKE)


def _time_of(event: Mapping[str, Any]) -> str:
    series = event.get("series") or {}
    return str(series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or "")
