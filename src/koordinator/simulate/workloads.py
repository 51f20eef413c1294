"""Workloads: how changes name them, their objects and their pods in a simulated cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from koordinator.api.codec import DecodeError, convert
from koordinator.api.document import Document, copied
from koordinator.api.kinds import (
    DEPLOYMENTS,
    JOBS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Kind,
)
from koordinator.api.meta import Object, controller_of
from koordinator.api.pod import Pod, is_finished
from koordinator.base.spelling import did_you_mean
from koordinator.cluster.errors import ApiError
from koordinator.cluster.resource import Resource
from koordinator.cluster.verbs.create import create
from koordinator.cluster.verbs.delete import delete
from koordinator.cluster.verbs.options import DeleteOptions
from koordinator.cluster.verbs.target import Target, wire
from koordinator.kube.decoding import decode_item
from koordinator.kube.interface import Malformed
from koordinator.simulate.change import ChangeError
from koordinator.simulate.pod_documents import owner_of
from koordinator.simulate.simulated_cluster import SimulatedCluster
from koordinator.simulate.snapshot_kinds import with_trimmed_template

T = TypeVar("T", bound=Object)

WORKLOADS: Final[tuple[Kind[Any], ...]] = (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, JOBS, REPLICATION_CONTROLLERS)
_BY_NAME: Final[Mapping[str, Kind[Any]]] = {
    alias: kind
    for kind, aliases in (
        (DEPLOYMENTS, ("deploy",)),
        (REPLICA_SETS, ("rs",)),
        (STATEFUL_SETS, ("sts",)),
        (JOBS, ()),
        (REPLICATION_CONTROLLERS, ("rc",)),
    )
    for alias in (kind.name.lower(), kind.plural, *aliases)
}
_QUOTA: Final = " quota: "
"""From the message of an API server that refuses a pod for a ResourceQuota."""


@dataclass(frozen=True, slots=True)
class WorkloadName:
    kind: Kind[Any]
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.name.lower()} {self.namespace}/{self.name}"

    @property
    def replicas_field(self) -> str:
        """The field of its spec with the number of its pods."""
        return "parallelism" if self.kind is JOBS else "replicas"


def parse_workload(text: str, namespace: str) -> WorkloadName:
    """``deployment/web``, also ``deploy/web``; ``shop/deployment/web`` names the namespace. Raises ChangeError."""
    parts = text.split("/")
    if len(parts) == 3:
        namespace, parts = parts[0], parts[1:]
    kind = _BY_NAME.get(parts[0].lower()) if len(parts) == 2 else None
    if kind is None or not parts[1]:
        kinds = ", ".join(kind.name.lower() for kind in WORKLOADS)
        hint = did_you_mean(parts[0], _BY_NAME) if kind is None and len(parts) == 2 else ""
        raise ChangeError(f"{text!r} is no workload: KIND/NAME is needed, and KIND is one of {kinds}{hint}")
    return WorkloadName(kind, namespace, parts[1])


def workload_kind(resource: Resource) -> Kind[Any] | None:
    """None for a kind that has no number of pods of its own."""
    return next((kind for kind in WORKLOADS if (kind.group, kind.plural) == (resource.group, resource.plural)), None)


class Workloads:
    """The workloads of one simulated cluster."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._api = cluster.api
        self._pods = cluster.api.resource(PODS)

    def get(self, workload: WorkloadName) -> Document:
        """The workload. Raises ChangeError."""
        found = self._api.document(workload.kind, workload.name, workload.namespace)
        if found is None:
            names = sorted(each["metadata"]["name"] for each in self._api.documents(workload.kind, workload.namespace))
            hint = did_you_mean(workload.name, names)
            known = f"there are {', '.join(names[:5])}" if names else "there are none"
            raise ChangeError(
                f"there is no {workload.kind.name} {workload.name!r} in the namespace {workload.namespace!r} of the "
                f"snapshot; {known}{hint}"
            )
        return found

    def trimmed(self, kind: Kind[Any], obj: Document) -> Document:
        """The object with all defaults, and of its template what affects scheduling: a snapshot has no more, so that
        only such templates can be compared."""
        complete: Document = copied(obj)
        self._api.resource(kind).strategy.decode(complete)
        return with_trimmed_template(complete)

    def typed(self, kind: Kind[T], obj: Document) -> T:
        """The trimmed object as its controller reads it. Raises ChangeError."""
        try:
            return convert(self.trimmed(kind, obj), kind.type)
        except DecodeError as error:
            raise ChangeError(f"{kind.name} {obj['metadata']['name']} cannot be read: {error}") from error

    def replicas(self, workload: WorkloadName, obj: Document) -> int:
        spec = obj.get("spec") or {}
        found = spec.get(workload.replicas_field)
        count = 1 if found is None else int(found)
        completions = spec.get("completions") if workload.kind is JOBS else None
        return count if completions is None else min(count, int(completions))

    def replica_sets(self, deployment: Document) -> list[Document]:
        """Those that the Deployment controls."""
        metadata = deployment["metadata"]
        return [
            each
            for each in self._api.documents(REPLICA_SETS, metadata["namespace"])
            if (owner := owner_of(each)) is not None and owner["uid"] == metadata["uid"]
        ]

    def pods_of(self, namespace: str, *owners: str) -> dict[str, list[Pod]]:
        """By the uids of ``owners``: the pods of a namespace that they control, also finished ones."""
        found: dict[str, list[Pod]] = {uid: [] for uid in owners}
        encoded = [uid.encode() for uid in owners]
        for stored in self._api.environment.storage.list(Target(self._pods, namespace).prefix).items:
            # Decoding all pods of a large cluster takes seconds.
            if not any(uid in stored.value for uid in encoded):
                continue
            pod = decode_item(PODS, wire(self._pods, stored))
            # What cannot be decoded, controllers do not see either.
            if isinstance(pod, Malformed):
                continue
            owner = controller_of(pod.metadata)
            if owner is not None and owner.uid in found:
                found[owner.uid].append(pod)
        return found

    def pods(self, obj: Document) -> list[Pod]:
        """The pods that the workload controls, including those of a Deployment's ReplicaSets; without finished ones."""
        owners = [obj, *(self.replica_sets(obj) if obj["kind"] == DEPLOYMENTS.name else ())]
        pods = self.pods_of(obj["metadata"]["namespace"], *(each["metadata"]["uid"] for each in owners))
        return [pod for owned in pods.values() for pod in owned if not is_finished(pod)]

    async def delete_with_pods(self, obj: Document) -> None:
        """Delete at once what the workload controls."""
        writes = PodWrites(self._cluster, obj["metadata"]["name"])
        await writes.delete(self.pods(obj))
        if obj["kind"] == DEPLOYMENTS.name:
            for each in self.replica_sets(obj):
                await self._api.remove(REPLICA_SETS, each["metadata"]["name"], each["metadata"]["namespace"])
        await self._cluster.pods.react()


class PodWrites:
    """What the controller of a workload does in one step: it creates and deletes pods."""

    def __init__(self, cluster: SimulatedCluster, workload: object) -> None:
        """``workload`` is named where pods are refused."""
        self._cluster = cluster
        self._workload = workload
        self._resource = cluster.api.resource(PODS)
        self.count = 0
        """How many pods were created or deleted."""
        self.refusal = ""
        """Why some are not created, where a quota of their namespace does not allow it."""

    async def create(self, namespace: str, bodies: Sequence[Document], *, later: int = 0) -> None:
        """By the same admission as any pod; ``later``: how many are to follow when these run. Raises ApiError for pods
        that cannot be created at all."""
        for made, body in enumerate(bodies):
            try:
                await create(self._cluster.api.environment, Target(self._resource, namespace), body)
            except ApiError as error:
                if error.code != 403 or _QUOTA not in error.message:
                    raise
                why = error.message.partition("is forbidden: ")[2]
                self.refusal = f"{self._workload}: {len(bodies) + later - made} of its pods are not created: {why}"
                return
            self.count += 1

    async def delete(self, pods: Sequence[Pod]) -> None:
        """Delete pods as their own controller does, which creates no others in their place."""
        for pod in pods:
            metadata = pod.metadata
            self._cluster.pods.causes[metadata.uid] = "scaled down"
            target = Target(self._resource, metadata.namespace, metadata.name)
            await delete(self._cluster.api.environment, target, DeleteOptions(grace_period_seconds=0))
            self.count += 1
