"""What comes and goes on the API server of a soak, in cycles: each creates objects, waits until the programs have done
with them what they are for, deletes them, and waits until they are gone.

A cycle that gets no further within its time counts as lost, with the step at which it stood. A request that a program
which is just being killed has a part in (a webhook) is made again.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from koordinator.api.annotations import RESERVATION_ALLOCATED
from koordinator.api.kinds import (
    ELASTIC_QUOTAS,
    NODE_METRICS,
    NODE_SLOS,
    NODES,
    POD_GROUPS,
    POD_MIGRATION_JOBS,
    PODS,
    REPLICA_SETS,
    RESERVATIONS,
    Kind,
)
from koordinator.api.labels import POD_GROUP, QOS_CLASS, QUOTA_NAME
from koordinator.api.pod import Pod, is_finished
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY
from koordinator.kube.errors import ApiStatusError, KubeError
from tests.real.watched import Watched

Document = dict[str, Any]
NAMESPACE: Final = "soak"
WATCHED: Final = (PODS, NODES, RESERVATIONS, POD_MIGRATION_JOBS, POD_GROUPS, ELASTIC_QUOTAS, NODE_METRICS, NODE_SLOS)
_RUN_TIME: Final = "simulation.koordinator.sh/run-time"
_RETRY_SECONDS: Final = 0.5
_ENDED: Final = ("Succeeded", "Failed")
_GANG: Final = 4


class Lost(Exception):
    """A cycle has not come to its end; the text says at which step it stood."""


@dataclass
class Ledger:
    """What became of the cycles of one kind."""

    started: int = 0
    completed: int = 0
    created: Counter[str] = field(default_factory=Counter)
    """Objects, by kind."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """How those that end one way or another did."""
    lost: list[str] = field(default_factory=list)

    def document(self) -> Document:
        return {
            "started": self.started,
            "completed": self.completed,
            "created": dict(self.created),
            "outcomes": dict(self.outcomes),
            "lost": self.lost,
        }


class Churn:
    """``run`` goes on until ``stop`` is set, and then ends what it has begun. ``seconds`` is what a step may take."""

    def __init__(self, watched: Watched, *, seconds: float) -> None:
        self._watched = watched
        self._client = watched.client
        self._seconds = seconds
        self._numbers = itertools.count()
        self.ledgers: dict[str, Ledger] = {}
        self._cycles: Mapping[str, Callable[[Ledger, str], Awaitable[None]]] = {
            "pods": self._pods,
            "gang": self._gang,
            "quota": self._quota,
            "reservation": self._reservation,
            "migration": self._migration,
            "node": self._node,
        }

    async def run(self, stop: asyncio.Event, pause: float, pod_workers: int) -> None:
        """Of each kind one cycle at a time, of pods more; ``pause`` seconds between two."""
        async with asyncio.TaskGroup() as tasks:
            for kind in self._cycles:
                for _ in range(pod_workers if kind == "pods" else 1):
                    tasks.create_task(self._repeat(kind, stop, pause), name=f"churn of {kind}")

    async def _repeat(self, kind: str, stop: asyncio.Event, pause: float) -> None:
        ledger = self.ledgers.setdefault(kind, Ledger())
        while not stop.is_set():
            name = f"{kind}-{next(self._numbers)}"
            ledger.started += 1
            try:
                await self._cycles[kind](ledger, name)
                ledger.completed += 1
            except Lost as error:
                ledger.lost.append(f"{name}: {error}")
            try:
                await asyncio.wait_for(stop.wait(), pause)
            except TimeoutError:
                continue

    # The cycles.

    async def _pods(self, ledger: Ledger, name: str) -> None:
        """Pods of all classes; those that end by themselves do, the others are deleted while they run."""
        documents = [
            _pod(f"{name}-web", cpu="300m", labels={QOS_CLASS: "LS"}),
            _pod(f"{name}-own-cpus", cpu="2", priority="koord-prod", labels={QOS_CLASS: "LSR"}),
            _pod(f"{name}-job", cpu="200m", run_time="10s"),
            _pod(f"{name}-batch", batch="500", priority="koord-batch", run_time="15s", labels={QOS_CLASS: "BE"}),
            _pod(f"{name}-gpu", cpu="100m", more={"nvidia.com/gpu": "1"}),
        ]
        await self._create_all(ledger, PODS, documents)
        names = [each["metadata"]["name"] for each in documents]
        await self._until(lambda: all(map(self._is_bound, names)), f"pods bound: {self._unbound(names)}")
        ending = [each["metadata"]["name"] for each in documents if each["metadata"]["annotations"]]
        await self._until(lambda: all(map(self._has_ended, ending)), "jobs ended")
        await self._delete_pods(names)

    async def _gang(self, ledger: Ledger, name: str) -> None:
        await self._create(ledger, POD_GROUPS, {"metadata": {"name": name}, "spec": {"minMember": _GANG}})
        names = [f"{name}-{number}" for number in range(_GANG)]
        documents = [_pod(each, cpu="250m", labels={POD_GROUP: name}) for each in names]
        await self._create_all(ledger, PODS, documents)
        await self._until(lambda: all(map(self._is_bound, names)), "all members bound")
        await self._delete_pods(names)
        await self._delete(POD_GROUPS, name)
        await self._until_gone(POD_GROUPS, name)

    async def _quota(self, ledger: Ledger, name: str) -> None:
        """Three pods where two fit: the third gets its node when one of the others has gone."""
        limits = {"cpu": "1", "memory": "2Gi"}
        await self._create(ledger, ELASTIC_QUOTAS, {"metadata": {"name": name}, "spec": {"min": limits, "max": limits}})
        names = [f"{name}-{number}" for number in range(3)]
        for each in names:
            await self._create(ledger, PODS, _pod(each, cpu="500m", labels={QUOTA_NAME: name}))
        await self._until(lambda: sum(map(self._is_bound, names)) >= len(names) - 1, "two pods of the quota bound")
        bound = [each for each in names if self._is_bound(each)]
        ledger.outcomes["bound within max" if len(bound) < len(names) else "bound above max"] += 1
        await self._delete_pods(bound[:1])
        left = [each for each in names if each != bound[0]]
        await self._until(lambda: all(map(self._is_bound, left)), "third pod of the quota bound")
        await self._delete_pods(left)
        await self._delete(ELASTIC_QUOTAS, name)
        await self._until_gone(ELASTIC_QUOTAS, name)

    async def _reservation(self, ledger: Ledger, name: str) -> None:
        template = {"spec": _pod(name, cpu="700m")["spec"]}
        owners = [{"labelSelector": {"matchLabels": {"app": name}}}]
        spec = {"template": template, "owners": owners, "allocateOnce": True, "ttl": "1h"}
        await self._create(ledger, RESERVATIONS, {"metadata": {"name": name}, "spec": spec})
        await self._until(lambda: self._phase(RESERVATIONS, name) == "Available", "Reservation available")
        await self._create(ledger, PODS, _pod(name, cpu="700m"))
        await self._until(lambda: self._is_bound(name), "owner bound")
        pod = self._pod(name)
        uses = pod is not None and RESERVATION_ALLOCATED in pod.metadata.annotations
        ledger.outcomes["owner uses it" if uses else "owner uses none"] += 1
        await self._until(lambda: self._phase(RESERVATIONS, name) == "Succeeded", "Reservation used up")
        await self._delete_pods([name])
        await self._delete(RESERVATIONS, name)
        await self._until_gone(RESERVATIONS, name)

    async def _migration(self, ledger: Ledger, name: str) -> None:
        labels = {"app": name}
        template = {
            "metadata": {"labels": labels},
            "spec": _pod(name, cpu="300m")["spec"] | {"restartPolicy": "Always"},
        }
        spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
        await self._create(ledger, REPLICA_SETS, {"metadata": {"name": name}, "spec": spec})
        await self._until(lambda: len(self._ready(name)) == 2, "two replicas ready")
        moved = self._ready(name)[0]
        reference = {"namespace": NAMESPACE, "name": moved.metadata.name, "uid": moved.metadata.uid}
        job = {"paused": False, "mode": "ReservationFirst", "ttl": "10m", "podRef": reference}
        await self._create(ledger, POD_MIGRATION_JOBS, {"metadata": {"name": name}, "spec": job})
        await self._until(lambda: self._phase(POD_MIGRATION_JOBS, name) in _ENDED, "migration ended")
        ledger.outcomes[self._phase(POD_MIGRATION_JOBS, name)] += 1
        await self._until(lambda: len(self._ready(name)) == 2, "two replicas ready again")
        await self._delete(POD_MIGRATION_JOBS, name)
        await self._delete(REPLICA_SETS, name)
        await self._until(lambda: not self._of_app(name), "replicas gone")
        await self._until_gone(POD_MIGRATION_JOBS, name)

    async def _node(self, ledger: Ledger, name: str) -> None:
        """A node without a kubelet: nothing runs there, and what koord-manager makes for it goes with it."""
        taint = {"key": "soak", "value": name, "effect": "NoSchedule"}
        amounts = {"cpu": "4", "memory": "8Gi", "pods": "20"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        labels = {"kubernetes.io/hostname": name, "soak": name}
        document = {"metadata": {"name": name, "labels": labels}, "spec": {"taints": [taint]}, "status": status}
        await self._create(ledger, NODES, document)
        pod = _pod(name, cpu="1")
        pod["spec"] |= {"nodeSelector": {"soak": name}, "tolerations": [{"key": "soak", "operator": "Exists"}]}
        # No kubelet would confirm its end.
        pod["spec"]["terminationGracePeriodSeconds"] = 0
        await self._create(ledger, PODS, pod)
        await self._until(lambda: self._is_bound(name), "pod bound to the new node")
        await self._until(lambda: self._there(NODE_SLOS, name) and self._there(NODE_METRICS, name), "NodeSLO made")
        await self._delete_pods([name])
        await self._delete(NODES, name)
        for kind in (NODES, NODE_SLOS, NODE_METRICS):
            await self._until_gone(kind, name)

    # Their steps.

    async def _create_all(self, ledger: Ledger, kind: Kind[Any], documents: Sequence[Document]) -> None:
        await asyncio.gather(*(self._create(ledger, kind, each) for each in documents))

    async def _create(self, ledger: Ledger, kind: Kind[Any], document: Document) -> None:
        body = {"apiVersion": kind.api_version, "kind": kind.name, **document}
        name = document["metadata"]["name"]
        await self._again(lambda: self._client.create(kind, body, _namespace(kind)), f"create {kind.name} {name}", 409)
        ledger.created[kind.name] += 1

    async def _delete(self, kind: Kind[Any], name: str) -> None:
        await self._again(
            lambda: self._client.delete(kind, name, _namespace(kind), propagation_policy="Background"),
            f"delete {kind.name} {name}",
            404,
        )

    async def _delete_pods(self, names: Sequence[str]) -> None:
        for name in names:
            await self._delete(PODS, name)
        await self._until(lambda: all(self._pod(name) is None for name in names), "pods gone")

    async def _again(self, request: Callable[[], Awaitable[object]], what: str, done: int) -> None:
        """Until it succeeds; a status ``done`` says that an earlier attempt did, of which no response has come."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._seconds
        while True:
            try:
                await request()
            except ApiStatusError as error:
                if error.code == done:
                    return
                last: KubeError = error
            except KubeError as error:
                last = error
            else:
                return
            if loop.time() > end:
                raise Lost(f"{what}: {last}")
            await asyncio.sleep(_RETRY_SECONDS)

    async def _until(self, holds: Callable[[], object], step: str) -> None:
        if not await self._watched.until(holds, self._seconds):
            raise Lost(f"not within {self._seconds:.0f} s: {step}")

    async def _until_gone(self, kind: Kind[Any], name: str) -> None:
        await self._until(lambda: not self._there(kind, name), f"{kind.name} gone")

    def _there(self, kind: Kind[Any], name: str) -> bool:
        return self._watched.get(kind, name) is not None

    def _phase(self, kind: Kind[Any], name: str) -> str:
        found = self._watched.get(kind, name)
        return "" if found is None else str(found.status.phase)

    def _pod(self, name: str) -> Pod | None:
        return self._watched.get(PODS, name)

    def _is_bound(self, name: str) -> bool:
        pod = self._pod(name)
        return pod is not None and bool(pod.spec.node_name)

    def _unbound(self, names: Sequence[str]) -> str:
        return ", ".join(names)

    def _has_ended(self, name: str) -> bool:
        pod = self._pod(name)
        return pod is not None and is_finished(pod)

    def _of_app(self, app: str) -> list[Pod]:
        return [pod for pod in self._watched.list(PODS) if pod.metadata.labels.get("app") == app]

    def _ready(self, app: str) -> list[Pod]:
        found = [pod for pod in self._of_app(app) if pod.metadata.deletion_timestamp is None]
        return [
            pod
            for pod in found
            if any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)
        ]


def _pod(
    name: str,
    *,
    cpu: str = "",
    batch: str = "",
    priority: str = "",
    run_time: str = "",
    more: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Document:
    """A pod for the simulated nodes; with ``run_time`` it ends by itself."""
    amounts = {BATCH_CPU: batch, BATCH_MEMORY: "256Mi"} if batch else {"cpu": cpu, "memory": "256Mi"}
    amounts |= more or {}
    container = {"name": "main", "image": "pause", "resources": {"requests": amounts, "limits": amounts}}
    spec: Document = {
        "schedulerName": "koord-scheduler",
        "containers": [container],
        "restartPolicy": "Never" if run_time else "Always",
        "terminationGracePeriodSeconds": 1,
    }
    if priority:
        spec["priorityClassName"] = priority
    annotations = {_RUN_TIME: run_time} if run_time else {}
    return {
        "metadata": {"name": name, "labels": {"app": name, **(labels or {})}, "annotations": annotations},
        "spec": spec,
    }


def _is_ready(pod: Pod) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)


def _namespace(kind: Kind[Any]) -> str:
    return NAMESPACE if kind.namespaced else ""
