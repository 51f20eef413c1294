"""Reads a pod or a node and what is said about it from the API, for what the scheduler does not know."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote, urlencode

from koordinator.api.codec import DecodeError, decode_any
from koordinator.api.kinds import (
    DAEMON_SETS,
    DEPLOYMENTS,
    ELASTIC_QUOTAS,
    EVENTS,
    JOBS,
    NAMESPACES,
    NODE_METRICS,
    NODES,
    POD_GROUPS,
    POD_MIGRATION_JOBS,
    PODS,
    REPLICA_SETS,
    RESERVATIONS,
    STATEFUL_SETS,
    Kind,
)
from koordinator.base.spelling import meant, near
from koordinator.cli.explain_cluster import Cluster
from koordinator.cli.explain_failure import ExplainError, UsageError, explain_error
from koordinator.cli.explain_state import PodFacts, scheduler_of
from koordinator.cli.explain_workload import WorkloadFacts, owned_by
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import connect
from koordinator.kube.errors import ApiStatusError, KubeError

# What is explained: a pod, a node, a quota, a gang, a Reservation, a migration or the interference on a node, in each
# of the forms that kubectl takes; or the next cycle of koord-descheduler.


TargetKind = Literal[
    "pod", "node", "quota", "gang", "reservation", "interference", "migration", "rebalance", "workload"
]

KINDS: Final[dict[str, TargetKind]] = {
    "pod": "pod",
    "pods": "pod",
    "po": "pod",
    "node": "node",
    "nodes": "node",
    "no": "node",
    "quota": "quota",
    "quotas": "quota",
    "elasticquota": "quota",
    "elasticquotas": "quota",
    "eq": "quota",
    "eqs": "quota",
    "gang": "gang",
    "gangs": "gang",
    "podgroup": "gang",
    "podgroups": "gang",
    "pg": "gang",
    "pgs": "gang",
    "reservation": "reservation",
    "reservations": "reservation",
    "interference": "interference",
    "migration": "migration",
    "podmigrationjob": "migration",
    "podmigrationjobs": "migration",
    "pmj": "migration",
}
WORKLOADS: Final[Mapping[str, Kind[Any]]] = {
    alias: kind
    for kind, aliases in (
        (DEPLOYMENTS, ("deployment", "deploy")),
        (REPLICA_SETS, ("replicaset", "rs")),
        (STATEFUL_SETS, ("statefulset", "sts")),
        (DAEMON_SETS, ("daemonset", "ds")),
        (JOBS, ("job",)),
    )
    for alias in (*aliases, kind.plural)
}
"""Whose pods are scheduled: the word on the command line -> the kind."""
_OF_PODS: Final = frozenset({"cronjob", "cj", "service", "svc"})
"""Kinds that a user may well name, because their pods are what is pending."""
REBALANCE: Final = "rebalance"
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_FORMS: Final = (
    "koord explain pod NAME, koord explain pod/NAME -n NAMESPACE, koord explain node NAME, koord explain quota NAME, "
    "koord explain gang NAME, koord explain reservation NAME, koord explain interference NODE, "
    "koord explain migration NAME, koord explain rebalance"
)


@dataclass(frozen=True, slots=True)
class Target:
    """``namespace`` is empty where none was named. With ``guessed`` the user did not say that it is a pod."""

    kind: TargetKind
    name: str
    namespace: str = ""
    guessed: bool = False
    workload: Kind[Any] | None = None
    """Of a workload, of which kind it is."""


def parse_target(words: Sequence[str], namespace: str | None) -> Target:
    """``pod web``, ``po/web``, ``pod shop/web``, ``node n1`` or ``web``. Raises UsageError with what would do."""
    if not words:
        raise UsageError(f"what is to be explained? {_FORMS}")
    if len(words) > 2:
        raise UsageError(f"one object at a time, not {' '.join(words)!r}: {_FORMS}")
    if list(words) == [REBALANCE]:
        return Target(REBALANCE, "")
    word, slash, rest = words[0].partition("/")
    workload = WORKLOADS.get(word.lower())
    name_of_workload = rest if slash else words[1] if len(words) == 2 else ""
    if workload is not None and name_of_workload:
        within, _, short = name_of_workload.rpartition("/")
        return Target("workload", _checked(word, short), within or namespace or "", workload=workload)
    kind, name, guessed = _split(words)
    if kind in ("node", "quota", "reservation", "interference", "migration"):
        # As with kubectl, a namespace says nothing about a node or a Reservation; and names of quotas are global.
        return Target(kind, _checked(kind, name))
    within, slash, short = name.rpartition("/")
    if slash and namespace and within != namespace:
        raise UsageError(f"--namespace: {namespace!r} is not usable: the {kind} is named {name} already")
    if slash or namespace:
        _checked("namespace", within or namespace or "")
    return Target(kind, _checked(kind, short), within or namespace or "", guessed)


def _split(words: Sequence[str]) -> tuple[TargetKind, str, bool]:
    if len(words) == 2:
        kind, name = words
        if kind.lower() not in KINDS:
            raise _unknown(kind, name)
        first, slash, rest = name.partition("/")
        # `node node/n1`: what kubectl get -o name prints may follow the kind.
        same = slash and KINDS.get(first.lower()) == KINDS[kind.lower()]
        return KINDS[kind.lower()], rest if same else name, False
    first, slash, rest = words[0].partition("/")
    if not slash:
        if first.lower() in KINDS or _has_pods(first):
            example = f"koord explain {first} NAME" if first.lower() in KINDS else _FORMS
            raise UsageError(f"which {first}? {example}")
        return "pod", first, True
    if first.lower() in KINDS:
        return KINDS[first.lower()], rest, False
    if _has_pods(first):
        raise _unknown(first, rest)
    return "pod", words[0], True


def _unknown(kind: str, name: str) -> UsageError:
    if _has_pods(kind):
        return UsageError(
            f"{kind} {name} is not scheduled itself, its pods are: find one with kubectl get pods, then koord explain "
            "pod NAME"
        )
    if near := meant(kind, KINDS):
        example = f"koord explain {near} {name}" if name else f"koord explain {near} NAME"
        return UsageError(f"{kind!r} cannot be explained; did you mean {near}? {example}")
    return UsageError(
        f"{kind!r} cannot be explained, pods, nodes, quotas, gangs, reservations, migrations and interference can: "
        f"{_FORMS}"
    )


def _has_pods(kind: str) -> bool:
    return kind.lower() in WORKLOADS or kind.lower() in _OF_PODS or kind.lower().removesuffix("s") in _OF_PODS


def _checked(what: str, name: str) -> str:
    if not _NAME.fullmatch(name):
        shown = ascii(name)
        raise UsageError(
            f"{shown} is not the name of a {what}: lower-case letters, digits, '-' and '.' are allowed, at most 253"
        )
    return name


LISTED: Final[Mapping[TargetKind, Kind[Any]]] = {
    "pod": PODS,
    "node": NODES,
    "interference": NODES,
    "quota": ELASTIC_QUOTAS,
    "gang": POD_GROUPS,
    "reservation": RESERVATIONS,
    "migration": POD_MIGRATION_JOBS,
}
"""What is explained -> the objects whose names it takes."""
_LISTED: Final = 500
"""Objects of which names are compared: enough for a hint, and no load on the server."""
_ALIKE: Final = 0.75
"""Of names of objects, which are longer than words, and alike for other reasons than mistakes."""


class Migration(NamedTuple):
    """``reservation`` and ``pod`` are None where they are not there."""

    job: Mapping[str, Any]
    reservation: Mapping[str, Any] | None
    pod: Mapping[str, Any] | None


class ObjectReader:
    """Objects as plain documents, so that no field gets lost on the way to a person. Made by ``read_from``."""

    def __init__(self, client: KubeClient, cluster: Cluster) -> None:
        self._client = client
        self._cluster = cluster

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
            await self._get(RESERVATIONS, named) if named else None,
            await self._get(PODS, pod["name"], pod.get("namespace", "")) if pod.get("name") else None,
        )

    async def every(
        self, kind: Kind[Any], namespace: str = "", field_selector: str = ""
    ) -> Sequence[Mapping[str, Any]]:
        """All objects of the kind, in pages. Raises KubeError."""
        found: list[Mapping[str, Any]] = []
        page = {"limit": str(_LISTED), **({"fieldSelector": field_selector} if field_selector else {})}
        while True:
            document = await self._decoded(f"{kind.path(quote(namespace))}?{urlencode(page)}")
            found += document.get("items") or ()
            rest = (document.get("metadata") or {}).get("continue")
            if not rest:
                return found
            page["continue"] = rest

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
            owners += owned_by(await self.every(REPLICA_SETS, namespace), found)
        pods = owned_by(await self.every(PODS, namespace), *owners)
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
        try:
            events = await self._list(EVENTS, metadata["namespace"], field_selector=selector)
        except ApiStatusError:
            # Who may read pods may not always read events, which then are none.
            return ()
        return sorted(events, key=_time_of)

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
async def read_from(cluster: Cluster) -> AsyncIterator[ObjectReader]:
    """A reader while it is needed; whatever the API server refuses is raised as an ExplainError."""
    if cluster.client is None:
        raise ExplainError(f"the API of {cluster.name} cannot be queried: there is no kubeconfig in its folder")
    try:
        client = await connect(cluster.client)
        try:
            yield ObjectReader(client, cluster)
        finally:
            await client.close()
    except KubeError as error:
        raise explain_error(error, cluster.name, cluster.client.timeout_seconds) from error


def _like(name: str, names: Sequence[str]) -> Sequence[str]:
    """Names that may be meant: of the same controller, or a letter away."""
    starts = [each for each in names if each.startswith(f"{name}-")]
    return starts or near(name, names, 3, cutoff=_ALIKE)


def _time_of(event: Mapping[str, Any]) -> str:
    series = event.get("series") or {}
    return str(series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or "")
