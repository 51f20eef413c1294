"""Changes of objects: apply as by ``kubectl apply``, scale a workload, delete an object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from koordinator.api.codec import without_nulls
from koordinator.api.document import Document, copied, same
from koordinator.api.kinds import (
    DAEMON_SETS,
    DEPLOYMENTS,
    NODE_METRICS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RESERVATIONS,
    STATEFUL_SETS,
    Kind,
)
from koordinator.base.spelling import did_you_mean
from koordinator.cluster.patch import apply_merge_patch
from koordinator.cluster.resource import Resource
from koordinator.cluster.verbs.create import create
from koordinator.cluster.verbs.delete import delete
from koordinator.cluster.verbs.options import DeleteOptions
from koordinator.cluster.verbs.target import Target, decode
from koordinator.cluster.verbs.update import modify
from koordinator.simulate.change import Change, ChangeError, Remarks
from koordinator.simulate.daemon_sets import make_daemons
from koordinator.simulate.rollouts import follow
from koordinator.simulate.simulated_cluster import SimulatedCluster
from koordinator.simulate.snapshot_kinds import trim_pod_spec
from koordinator.simulate.workloads import WorkloadName, Workloads, workload_kind

_AT_ONCE: Final = "all its pods are replaced at once, not one after the other as in a rollout"
_ROLLED_OUT: Final = (DEPLOYMENTS, STATEFUL_SETS)
_ON_DELETE: Final = "OnDelete"
_REPORTED: Final = frozenset((NODES.plural, NODE_METRICS.plural))
"""Kinds whose status is applied, too, since nothing else in a simulation writes it."""
_NEVER: Final = frozenset(("secrets", "events"))
"""Kinds that do not affect scheduling; Secrets are not even read."""


@dataclass(frozen=True, slots=True)
class Apply(Change):
    """Apply objects as ``kubectl apply`` does: create new ones, change others. Pods are made from the templates of
    workloads; ``replicas`` overrides the replicas of workloads, and creates so many pods from a Pod."""

    objects: Sequence[Document]
    namespace: str = "default"
    replicas: int | None = None

    async def apply(self, cluster: SimulatedCluster, remarks: Remarks) -> None:
        done = []
        for given in self.objects:
            obj = copied(given)
            resource = _resource_of(cluster, obj)
            if resource.plural in _NEVER:
                remarks.notes.append(
                    f"{obj['kind']} {obj['metadata'].get('name', '')} is left out: no node depends on it"
                )
                continue
            done.append(await self._apply(cluster, resource, obj, remarks))
        await cluster.settle()
        remarks.done = "; ".join(done) or "nothing is applied"

    async def _apply(self, cluster: SimulatedCluster, resource: Resource, obj: Document, remarks: Remarks) -> str:
        metadata = obj["metadata"]
        status = obj.pop("status", None)
        namespace = (metadata.get("namespace") or self.namespace) if resource.namespaced else None
        if namespace:
            metadata["namespace"] = namespace
            await need_namespace(cluster, namespace, remarks)
        name = metadata.get("name") or metadata.get("generateName") or ""
        where = f"{namespace}/{name}" if namespace else name
        kind = workload_kind(resource)
        if kind is not None:
            return await self._workload(cluster, WorkloadName(kind, namespace or "", name), obj, remarks)
        if resource.plural == DAEMON_SETS.plural:
            return await self._daemon_set(cluster, resource, obj, remarks)
        if resource.plural == PODS.plural and not resource.group:
            trim_pod_spec(obj.get("spec") or {})
            return await self._pods(cluster, resource, obj, where)
        if resource.plural == RESERVATIONS.plural:
            trim_pod_spec(((obj.get("spec") or {}).get("template") or {}).get("spec") or {})
        changed = await _put(cluster, resource, obj)
        if status is not None and resource.plural in _REPORTED:
            await _set_status(cluster, resource, metadata["name"], status)
        if resource.plural == POD_DISRUPTION_BUDGETS.plural:
            await cluster.pods.count_changed_budgets()
        return f"{resource.kind} {where} is {'changed' if changed else 'created'}"

    async def _pods(self, cluster: SimulatedCluster, resource: Resource, obj: Document, where: str) -> str:
        if self.replicas is None:
            changed = await _put(cluster, resource, obj)
            return f"Pod {where} is {'changed' if changed else 'created'}"
        base = obj["metadata"].pop("name", "") or obj["metadata"].get("generateName", "pod")
        obj["metadata"]["generateName"] = f"{base.rstrip('-')}-"
        for _ in range(self.replicas):
            target = Target(resource, obj["metadata"]["namespace"])
            await create(cluster.api.environment, target, copied(obj))
        return f"{self.replicas} pods like {where} are created"

    async def _workload(
        self, cluster: SimulatedCluster, workload: WorkloadName, obj: Document, remarks: Remarks
    ) -> str:
        workloads = Workloads(cluster)
        if self.replicas is not None:
            obj.setdefault("spec", {})[workload.replicas_field] = self.replicas
        resource = cluster.api.resource(workload.kind)
        before = cluster.api.document(workload.kind, workload.name, workload.namespace)
        await _put(cluster, resource, obj)
        stored = workloads.get(workload)
        wanted = workloads.replicas(workload, stored)
        _note(remarks, await follow(cluster, workload, before))
        if before is None:
            return f"{workload} with {wanted} pods is created"
        if _has_same_template(workloads, workload.kind, before, stored):
            return f"{workload} is changed from {workloads.replicas(workload, before)} to {wanted} pods"
        if workload.kind not in _ROLLED_OUT or (stored["spec"].get("updateStrategy") or {}).get("type") == _ON_DELETE:
            remarks.notes.append(f"{workload}: the new template is that of new pods alone")
        return f"{workload} is changed; it has {wanted} pods"

    async def _daemon_set(self, cluster: SimulatedCluster, resource: Resource, obj: Document, remarks: Remarks) -> str:
        name, namespace = obj["metadata"]["name"], obj["metadata"]["namespace"]
        before = cluster.api.document(DAEMON_SETS, name, namespace)
        await _put(cluster, resource, obj)
        stored = cluster.api.document(DAEMON_SETS, name, namespace)
        assert stored is not None
        where = f"daemonset {namespace}/{name}"
        if before is not None:
            workloads = Workloads(cluster)
            if _has_same_template(workloads, DAEMON_SETS, before, stored):
                return f"{where} is changed"
            await workloads.delete_with_pods(before)
            remarks.notes.append(f"{where}: {_AT_ONCE}")
        made = await make_daemons(cluster, stored)
        return f"{where} with {made} pods is {'created' if before is None else 'changed'}"


@dataclass(frozen=True, slots=True)
class Scale(Change):
    """Set the replicas of a workload."""

    workload: WorkloadName
    replicas: int

    async def apply(self, cluster: SimulatedCluster, remarks: Remarks) -> None:
        workloads = Workloads(cluster)
        obj = workloads.get(self.workload)
        before = len(workloads.pods(obj))
        obj["spec"][self.workload.replicas_field] = self.replicas
        await cluster.api.put(self.workload.kind, obj)
        _note(remarks, await follow(cluster, self.workload))
        await cluster.settle()
        remarks.done = f"{self.workload} is scaled from {before} to {self.replicas} pods"


@dataclass(frozen=True, slots=True)
class Delete(Change):
    """Delete an object; a workload with its pods."""

    api_kind: str
    name: str
    namespace: str = "default"

    async def apply(self, cluster: SimulatedCluster, remarks: Remarks) -> None:
        resource = _resource_named(cluster, self.api_kind)
        namespace = self.namespace if resource.namespaced else None
        target = Target(resource, namespace, self.name)
        kind, workloads = workload_kind(resource), Workloads(cluster)
        if kind is not None:
            await workloads.delete_with_pods(workloads.get(WorkloadName(kind, self.namespace, self.name)))
        elif resource.plural == DAEMON_SETS.plural:
            found = cluster.api.document(DAEMON_SETS, self.name, self.namespace)
            if found is not None:
                await workloads.delete_with_pods(found)
        stored = cluster.api.environment.storage.get(target.key)
        if stored is None:
            found_there = cluster.api.environment.storage.list(Target(resource, namespace).prefix).items
            names = [decode(resource, each)["metadata"]["name"] for each in found_there]
            hint = did_you_mean(self.name, names)
            raise ChangeError(f"there is no {resource.kind} {self.name!r} in the snapshot{hint}")
        if resource.plural == PODS.plural and not resource.group:
            cluster.pods.causes[str(decode(resource, stored)["metadata"]["uid"])] = "deleted"
        await delete(cluster.api.environment, target, DeleteOptions())
        await cluster.settle()
        remarks.done = f"{resource.kind} {f'{namespace}/' if namespace else ''}{self.name} is deleted"


def _note(remarks: Remarks, missing: str) -> None:
    if missing:
        remarks.blocked.append(missing)


def _has_same_template(workloads: Workloads, kind: Kind[Any], before: Document, after: Document) -> bool:
    """As far as it affects scheduling."""
    one, other = (without_nulls(workloads.trimmed(kind, each)["spec"].get("template")) for each in (before, after))
    return same(one, other)


async def _put(cluster: SimulatedCluster, resource: Resource, obj: Document) -> bool:
    """Create the object, or update an existing one; returns whether it existed."""
    metadata = obj["metadata"]
    target = Target(resource, metadata.get("namespace"), metadata.get("name") or "")
    environment = cluster.api.environment
    if not metadata.get("name") or environment.storage.get(target.key) is None:
        await create(environment, Target(target.resource, target.namespace), obj)
        return False
    changes = {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}
    for name in ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"):
        changes["metadata"].pop(name, None)
    await modify(environment, target, lambda old: _applied(resource, old, changes))
    return True


def _applied(resource: Resource, old: Document, changes: Document) -> Document:
    obj = apply_merge_patch(old, changes)
    strategy = (changes.get("spec") or {}).get("strategy")
    if resource.kind == DEPLOYMENTS.name and isinstance(strategy, dict):
        # A union: kubectl apply retains of it what the manifest says, and no limits of another type.
        obj["spec"]["strategy"] = copied(strategy)
    return obj


async def _set_status(cluster: SimulatedCluster, resource: Resource, name: str, status: Document) -> None:
    def reported(old: Document) -> Document:
        return {**copied(old), "status": apply_merge_patch(old.get("status") or {}, status)}

    await modify(cluster.api.environment, Target(resource, None, name, "status"), reported)


async def need_namespace(cluster: SimulatedCluster, name: str, remarks: Remarks) -> None:
    """Make the namespace of what is only planned, unless there is one."""
    environment = cluster.api.environment
    if environment.lookup("", "namespaces", None, name) is None:
        resource = environment.registry.served.get(("", "v1", "namespaces"))
        assert resource is not None
        await create(environment, Target(resource), {"metadata": {"name": name}})
        remarks.notes.append(f"the namespace {name} is not in the snapshot; it is made")


def _resource_of(cluster: SimulatedCluster, obj: Mapping[str, Any]) -> Resource:
    version, kind = obj.get("apiVersion"), obj.get("kind")
    if not isinstance(obj.get("metadata"), dict):
        raise ChangeError(f"metadata: {obj.get('metadata')!r} is not usable: an object with a name is needed")
    for resource in cluster.api.environment.registry:
        if (resource.api_version, resource.kind) == (version, kind):
            return resource
    raise ChangeError(f"apiVersion {version!r}, kind {kind!r}: what-if knows no such kind")


def _resource_named(cluster: SimulatedCluster, name: str) -> Resource:
    wanted = name.lower()
    for resource in cluster.api.environment.registry:
        if wanted in (resource.plural, resource.singular, resource.kind.lower(), *resource.short_names):
            return resource
    known = [each for resource in cluster.api.environment.registry for each in (resource.singular, resource.plural)]
    raise ChangeError(f"{name!r} is no kind that what-if knows{did_you_mean(wanted, known)}")
