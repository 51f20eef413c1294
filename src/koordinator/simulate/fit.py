"""Finds how many more pods of one kind fit, and what stops the next one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from koordinator.api.document import Document, copied
from koordinator.api.kinds import PODS
from koordinator.cluster.verbs.create import create
from koordinator.cluster.verbs.options import WriteOptions
from koordinator.cluster.verbs.target import Target, decode, new_uid
from koordinator.scheduler.explain import explain_pod
from koordinator.simulate.change import Change, ChangeError, Remarks
from koordinator.simulate.object_changes import need_namespace
from koordinator.simulate.simulated_cluster import SimulatedCluster
from koordinator.simulate.snapshot_kinds import trim_pod_spec
from koordinator.simulate.workloads import WORKLOADS

_FIRST: Final = 16
"""Pods in the first round; each round has twice as many as the one before."""
_PREFIX: Final = "what-if-fit"
_ABOUT_PREEMPTION: Final = " preemption:"


def is_fitted(obj: Document) -> bool:
    """Whether it is a pod, or a workload with a template for pods."""
    return obj.get("kind") in {PODS.name, *(each.name for each in WORKLOADS)}


@dataclass(frozen=True, slots=True)
class Fit(Change):
    """Create pods like ``obj``, or like those of its template, until one finds no node, or there are ``at_most``.
    Unless ``with_preemption``, none of them preempts others."""

    obj: Document
    namespace: str = "default"
    at_most: int = 1000
    with_preemption: bool = False

    async def apply(self, cluster: SimulatedCluster, remarks: Remarks) -> None:
        model, where = await self._model(cluster, remarks)
        count, size, pending = 0, _FIRST, list[Document]()
        while count < self.at_most and not pending:
            names = [f"{_PREFIX}-{count + index}" for index in range(min(size, self.at_most - count))]
            for name in names:
                await self._create(cluster, model, name)
            await cluster.settle()
            count, size = count + len(names), 2 * size
            pending = [pod for pod in self._pods(cluster, names) if not pod["spec"].get("nodeName")]
        placed = Counter(
            str(pod["spec"]["nodeName"])
            for pod in cluster.api.documents(PODS, model["metadata"]["namespace"])
            if pod["metadata"]["name"].startswith(_PREFIX) and pod["spec"].get("nodeName")
        )
        remarks.facts["fit"] = fit = {
            "like": where,
            "replicas": placed.total(),
            "atLeast": not pending,
            "nodes": dict(sorted(placed.items())),
        }
        if pending:
            name = min(pending, key=lambda pod: int(pod["metadata"]["name"].rpartition("-")[2]))["metadata"]["name"]
            found = explain_pod(cluster.scheduler.sources, model["metadata"]["namespace"], name)
            message = (found.message if found is not None else None) or ""
            if not self.with_preemption:
                # That they do not preempt was set here, not by their author.
                message = message.partition(_ABOUT_PREEMPTION)[0]
            fit |= {"stoppedBy": message, "advice": (found.advice if found is not None else None) or []}
        for pod in pending:
            cluster.pods.causes[pod["metadata"]["uid"]] = "deleted"
            await cluster.api.remove(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])
        await cluster.settle()
        for pod in pending:
            cluster.pods.departures.pop(pod["metadata"]["uid"], None)
        remarks.done = f"more pods like {where} are created"

    def _pods(self, cluster: SimulatedCluster, names: list[str]) -> list[Document]:
        namespace = self.obj["metadata"].get("namespace") or self.namespace
        found = (cluster.api.document(PODS, name, namespace) for name in names)
        return [pod for pod in found if pod is not None]

    async def _model(self, cluster: SimulatedCluster, remarks: Remarks) -> tuple[Document, str]:
        """The pod as admission makes it, and its description."""
        metadata = self.obj.get("metadata")
        if not isinstance(metadata, dict):
            raise ChangeError("metadata: a pod, or a workload with a template, is needed")
        namespace = metadata.get("namespace") or self.namespace
        name = metadata.get("name") or metadata.get("generateName") or "the pod"
        kind = self.obj.get("kind")
        if kind == PODS.name:
            given = {"labels": metadata.get("labels") or {}, "annotations": metadata.get("annotations") or {}}
            spec = copied(self.obj.get("spec") or {})
        elif kind in {each.name for each in WORKLOADS}:
            template = (self.obj.get("spec") or {}).get("template") or {}
            given = copied(template.get("metadata") or {})
            spec = copied(template.get("spec") or {})
        else:
            raise ChangeError(f"kind: {kind!r} is not usable: a Pod, or a workload with a template, is needed")
        trim_pod_spec(spec)
        for field in ("nodeName", "priority", "preemptionPolicy"):
            spec.pop(field, None)
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": _PREFIX,
                "namespace": namespace,
                "labels": given.get("labels") or {},
                "annotations": given.get("annotations") or {},
            },
            "spec": spec,
        }
        resource = cluster.api.resource(PODS)
        await need_namespace(cluster, namespace, remarks)
        stored = await create(cluster.api.environment, Target(resource, namespace), pod, WriteOptions(dry_run=True))
        model = decode(resource, stored)
        if not self.with_preemption:
            model["spec"]["preemptionPolicy"] = "Never"
        return model, f"{str(kind).lower()} {namespace}/{name}"

    async def _create(self, cluster: SimulatedCluster, model: Document, name: str) -> None:
        pod = {**model, "metadata": {**model["metadata"], "name": name}}
        pod["metadata"]["uid"] = new_uid(cluster.api.environment.random)
        await cluster.api.put(PODS, pod)
