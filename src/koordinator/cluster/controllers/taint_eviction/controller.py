"""The taint eviction controller: it deletes pods from nodes whose taints they do not tolerate, or no longer."""

from __future__ import annotations

from typing import Final

from koordinator.api.kinds import NODES, PODS
from koordinator.api.meta import ObjectReference
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.cluster.controllers.context import ControllerContext
from koordinator.cluster.controllers.pod_disruption import NODE_INDEX, by_node, disruption_target, end_pod
from koordinator.cluster.controllers.taint_eviction.decision import no_execute_taints, seconds_to_eviction

_WORKERS: Final = 8
_REASON: Final = "TaintManagerEviction"


class TaintEvictionController:
    """Implements ``koordinator.kube.reconciler.Controller``; its keys are those of pods."""

    name: Final = "taint-eviction-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._nodes = context.informers.informer(NODES)
        self._pods = context.informers.informer(PODS, indexes={NODE_INDEX: by_node})
        self._recorder = context.events.recorder(self.name)
        self._due: dict[str, float] = {}
        """When pods are to be deleted, in monotonic seconds. A pod keeps its time when taints or tolerations change,
        until it tolerates its node for ever or not at all, as in Kubernetes."""
        self._reconciler = context.reconcilers.make(
            self.name, self._reconcile, self._on_tainted_nodes, workers=_WORKERS
        )
        self._watch()

    def _watch(self) -> None:
        add = self._reconciler.add
        self._pods.add_handlers(
            name=self.name,
            on_add=lambda pod, _: add(pod.metadata.key) if self._is_tainted(pod) else None,
            on_update=lambda old, pod: add(pod.metadata.key) if _matters(old, pod) else None,
            on_delete=lambda pod: add(pod.metadata.key) if pod.metadata.key in self._due else None,
        )
        self._nodes.add_handlers(
            name=self.name,
            on_add=lambda node, _: self._tainted(node) if no_execute_taints(node) else None,
            on_update=lambda old, node: (
                self._tainted(node) if no_execute_taints(old) != no_execute_taints(node) else None
            ),
        )

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reconciler.run()

    def _on_tainted_nodes(self) -> list[str]:
        return [pod.metadata.key for pod in self._pods.list() if self._is_tainted(pod)]

    def _is_tainted(self, pod: Pod) -> bool:
        return bool(no_execute_taints(self._nodes.get(pod.spec.node_name)))

    def _tainted(self, node: Node) -> None:
        for pod in self._pods.by_index(NODE_INDEX, node.metadata.name):
            self._reconciler.add(pod.metadata.key)

    async def _reconcile(self, key: str) -> float | None:
        pod = self._pods.get(key)
        if pod is None or pod.metadata.deletion_timestamp is not None:
            self._cancel(key)
            return None
        taints = no_execute_taints(self._nodes.get(pod.spec.node_name))
        seconds = seconds_to_eviction(taints, pod.spec.tolerations)
        now = self._clock.monotonic()
        if seconds is None or (seconds == 0 and self._due.get(key, now) > now):
            self._cancel(key)
        if seconds is None:
            return None
        wait = self._due.setdefault(key, now + seconds) - now
        if wait > 0:
            return wait
        await self._evict(pod)
        return None

    async def _evict(self, pod: Pod) -> None:
        key = pod.metadata.key
        self._record(key, f"Marking for deletion Pod {key}")
        message = "Taint manager: deleting due to NoExecute taint"
        condition = disruption_target(pod, "DeletionByTaintManager", message, self._clock.now())
        await end_pod(self._client, pod, {"conditions": [condition]} if condition is not None else {})
        self._due.pop(key, None)

    def _cancel(self, key: str) -> None:
        if self._due.pop(key, None) is not None:
            self._record(key, f"Cancelling deletion of Pod {key}")

    def _record(self, key: str, note: str) -> None:
        namespace, name = key.split("/")
        regarding = ObjectReference(api_version="v1", kind="Pod", namespace=namespace, name=name)
        self._recorder.event(regarding, "Normal", _REASON, _REASON, note)


def _matters(old: Pod, new: Pod) -> bool:
    """Whether the change of a pod may change how long it may stay."""
    return (
        old.spec.node_name != new.spec.node_name
        or old.spec.tolerations != new.spec.tolerations
        or (old.metadata.deletion_timestamp is None) != (new.metadata.deletion_timestamp is None)
    )
