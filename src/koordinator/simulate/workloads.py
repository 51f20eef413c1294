"""Workloads and the pods that their controllers create: their templates, names, labels and owners."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from koordinator.api.document import Document, copied
from koordinator.api.kinds import (
    DAEMON_SETS,
    DEPLOYMENTS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Kind,
)
from koordinator.base.spelling import did_you_mean
from koordinator.cluster.errors import ApiError
from koordinator.cluster.resource import Resource
from koordinator.cluster.verbs.create import create
from koordinator.cluster.verbs.target import Target, decode
from koordinator.simulate.change import ChangeError
from koordinator.simulate.in_process_api import InProcessApi
from koordinator.simulate.pod_documents import is_finished, owner_of
from koordinator.simulate.snapshot_kinds import JOBS, trim_pod_spec

_WITH_TEMPLATES: Final = (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, JOBS, REPLICATION_CONTROLLERS, DAEMON_SETS)
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
_TEMPLATE_HASH: Final = "pod-template-hash"
_PODS_OF_STATEFUL_SET: Final = "statefulset.kubernetes.io/pod-name"


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

    def __init__(self, api: InProcessApi) -> None:
        self._api = api

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

    def replicas(self, obj: Document) -> int:
        spec = obj.get("spec") or {}
        name = "parallelism" if obj.get("kind") == JOBS.name else "replicas"
        found = spec.get(name)
        count = 1 if found is None else int(found)
        if name == "parallelism" and spec.get("completions") is not None:
            count = min(count, int(spec["completions"]))
        return count

    def pods(self, obj: Document) -> list[Document]:
        """The pods that the workload controls, including those of a Deployment's ReplicaSets; without finished ones."""
        namespace = obj["metadata"]["namespace"]
        owners = {obj["metadata"]["uid"]}
        if obj["kind"] == DEPLOYMENTS.name:
            owners |= {
                each["metadata"]["uid"]
                for each in self._api.documents(REPLICA_SETS, namespace)
                if (owner := owner_of(each)) is not None and owner["uid"] in owners
            }
        return [
            pod
            for pod in self._api.documents(PODS, namespace)
            if (owner := owner_of(pod)) is not None and owner["uid"] in owners and not is_finished(pod)
        ]

    async def set_replicas(self, workload: WorkloadName, obj: Document, replicas: int) -> None:
        """Set the object's field alone; ``scale`` then creates or deletes pods."""
        obj["spec"][workload.replicas_field] = replicas
        await self._api.put(workload.kind, obj)

    async def make_pods(self, workload: WorkloadName, obj: Document, count: int) -> str:
        """Create ``count`` more of its pods, by the same admission as any pod. Returns why there are fewer, if a quota
        does not allow their controller to create them all; empty else. Raises ApiError for pods that cannot be created
        at all."""
        if not count:
            return ""
        owner = obj if workload.kind is not DEPLOYMENTS else await self.replica_set_of(obj)
        taken = {pod["metadata"]["name"] for pod in self.pods(obj)} if workload.kind is STATEFUL_SETS else set()
        ordinal = 0
        for made in range(count):
            pod = pod_of_template(owner)
            if workload.kind is STATEFUL_SETS:
                while (name := f"{workload.name}-{ordinal}") in taken:
                    ordinal += 1
                taken.add(name)
                await self._name_member(pod, obj, name)
            try:
                await create(self._api.environment, Target(self._api.resource(PODS), workload.namespace), pod)
            except ApiError as error:
                if error.code != 403 or _QUOTA not in error.message:
                    raise
                why = error.message.partition("is forbidden: ")[2]
                return f"{workload}: {count - made} of its pods are not created: {why}"
        return ""

    async def replica_set_of(self, deployment: Document) -> Document:
        """The ReplicaSet of the Deployment's present template, created if it does not exist."""
        metadata, spec = deployment["metadata"], deployment["spec"]
        wanted = template_of(self._api.resource(DEPLOYMENTS), deployment)
        resource = self._api.resource(REPLICA_SETS)
        for each in self._api.documents(REPLICA_SETS, metadata["namespace"]):
            owner = owner_of(each)
            if owner is not None and owner["uid"] == metadata["uid"] and template_of(resource, each) == wanted:
                return each
        digest = hashlib.sha256(msgspec.json.encode(spec["template"])).hexdigest()[:10]
        template = copied(spec["template"])
        labels = {**((template.setdefault("metadata", {})).get("labels") or {}), _TEMPLATE_HASH: digest}
        template["metadata"]["labels"] = labels
        selector = copied(spec.get("selector") or {})
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), _TEMPLATE_HASH: digest}
        replica_set = {
            "metadata": {
                "name": f"{metadata['name']}-{digest}",
                "namespace": metadata["namespace"],
                "labels": labels,
                "ownerReferences": [reference_to(DEPLOYMENTS, deployment)],
            },
            "spec": {"replicas": self.replicas(deployment), "selector": selector, "template": template},
        }
        target = Target(self._api.resource(REPLICA_SETS), metadata["namespace"])
        return decode(target.resource, await create(self._api.environment, target, replica_set))

    async def _name_member(self, pod: Document, stateful_set: Document, name: str) -> None:
        """A pod of a StatefulSet has a name and claims of its own."""
        metadata = pod["metadata"]
        metadata.pop("generateName", None)
        metadata["name"] = name
        metadata.setdefault("labels", {})[_PODS_OF_STATEFUL_SET] = name
        for template in stateful_set["spec"].get("volumeClaimTemplates") or ():
            claim = f"{template['metadata']['name']}-{name}"
            volume = {"name": template["metadata"]["name"], "persistentVolumeClaim": {"claimName": claim}}
            others = [each for each in pod["spec"].get("volumes") or () if each["name"] != volume["name"]]
            pod["spec"]["volumes"] = [*others, volume]
            namespace = stateful_set["metadata"]["namespace"]
            if self._api.document(PERSISTENT_VOLUME_CLAIMS, claim, namespace) is None:
                target = Target(self._api.resource(PERSISTENT_VOLUME_CLAIMS), namespace)
                new = {"metadata": {"name": claim, "namespace": namespace}, "spec": copied(template["spec"])}
                await create(self._api.environment, target, new)


def template_of(resource: Resource, workload: Document) -> Document:
    """The part of its template that affects scheduling, with all defaults; a snapshot has no more."""
    complete: Document = copied(workload)
    resource.strategy.decode(complete)
    template = complete["spec"].get("template") or {}
    trim_pod_spec(template.get("spec") or {})
    labels = dict((template.get("metadata") or {}).get("labels") or {})
    labels.pop(_TEMPLATE_HASH, None)
    return {"labels": labels, "spec": template.get("spec") or {}}


def pod_of_template(owner: Document) -> Document:
    """A pod as the controller of ``owner`` creates it."""
    template, metadata = owner["spec"].get("template") or {}, owner["metadata"]
    given = template.get("metadata") or {}
    spec = copied(template.get("spec") or {})
    trim_pod_spec(spec)
    kind = next(kind for kind in _WITH_TEMPLATES if kind.name == owner["kind"])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{metadata['name']}-",
            "namespace": metadata["namespace"],
            "labels": dict(given.get("labels") or {}),
            "annotations": dict(given.get("annotations") or {}),
            "ownerReferences": [reference_to(kind, owner)],
        },
        "spec": spec,
    }


def reference_to(kind: Kind[Any], obj: Document) -> Document:
    """The owner reference that the object's controller writes into what it creates."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
