"""An API server in memory with just what the scheduler asks of one, and with faults on demand."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any, cast

import msgspec

from koordinator.api.codec import convert, decode_any, to_document
from koordinator.api.kinds import PODS, Kind
from koordinator.api.meta import Object
from koordinator.api.node import Node
from koordinator.api.pod import Pod, PodCondition
from koordinator.cluster.patch import apply_merge_patch
from koordinator.kube.errors import ApiStatusError, TransportError
from koordinator.kube.interface import Client, ListPage, WatchEvent

Fault = Callable[[str, bool], Exception | None]
"""Asked for each binding of a pod (by name) before it is done (False) and after (True)."""


class FakeApi:
    """Pods, nodes and cluster-scoped objects of other kinds; ``as_client`` is what the scheduler gets."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = defaultdict(dict)
        self.bindings: list[tuple[str, str]] = []
        """(pod, node) of every binding that was done."""
        self.conditions: list[tuple[str, str, str]] = []
        """(pod, reason, message)."""
        self.leaving_takes_time = False
        """A deleted pod stays, marked, until ``remove``."""
        self.fault: Fault = lambda name, done: None
        self._version = 0
        self._log: list[tuple[str, WatchEvent[Any]]] = []
        self._changed = asyncio.Event()

    @property
    def as_client(self) -> Client:
        return cast("Client", self)

    def put(self, obj: Object, kind: Kind[Any] | None = None) -> None:
        """Create or replace a node, a pod, or an object of ``kind``."""
        plural = kind.plural if kind is not None else "nodes" if isinstance(obj, Node) else "pods"
        known = obj.metadata.key in self.objects[plural]
        self._store(plural, obj, "MODIFIED" if known else "ADDED")

    def remove(self, plural: str, key: str) -> None:
        self._store(plural, self.objects[plural].pop(key), "DELETED")

    def pod(self, name: str) -> Pod:
        return cast("Pod", self.objects["pods"][f"default/{name}"])

    def placed(self) -> dict[str, str]:
        """Pod -> node of all pods that have one."""
        pods = self.objects["pods"].values()
        return {pod.metadata.name: pod.spec.node_name for pod in pods if pod.spec.node_name}

    def _store(self, plural: str, obj: Any, verb: Any) -> None:
        self._version += 1
        metadata = msgspec.structs.replace(obj.metadata, resource_version=str(self._version))
        obj = msgspec.structs.replace(obj, metadata=metadata)
        if verb != "DELETED":
            self.objects[plural][metadata.key] = obj
        self._log.append((plural, WatchEvent(verb, obj, str(self._version))))
        self._changed.set()
        self._changed = asyncio.Event()

    async def list(self, kind: Kind[Any], namespace: str = "", **options: Any) -> ListPage[Any]:
        return ListPage(list(self.objects[kind.plural].values()), [], str(self._version), "", None)

    async def watch(
        self, kind: Kind[Any], namespace: str = "", *, resource_version: str = "", **options: Any
    ) -> AsyncIterator[WatchEvent[Any]]:
        position = int(resource_version)
        while True:
            changed = self._changed
            while position < len(self._log):
                plural, event = self._log[position]
                position += 1
                if plural == kind.plural:
                    yield event
            await changed.wait()

    async def get(self, kind: Kind[Any], name: str, namespace: str = "") -> Any:
        await asyncio.sleep(0)
        found = self.objects[kind.plural].get(f"{namespace}/{name}" if namespace else name)
        if found is None:
            raise ApiStatusError(404, "NotFound", f"{kind.plural} {name!r} not found")
        return found

    async def create(
        self, kind: Kind[Any], body: bytes, namespace: str = "", *, name: str = "", subresource: str = ""
    ) -> Object:
        assert (kind, subresource) == (PODS, "binding")
        await asyncio.sleep(0)
        self._raise(name, done=False)
        self._bind(name, decode_any(body))
        self._raise(name, done=True)
        return Object()

    async def patch(self, kind: Kind[Any], name: str, body: Any, *arguments: Any, **options: Any) -> Any:
        await asyncio.sleep(0)
        if kind is not PODS:
            known = to_document(self.objects[kind.plural][name])
            self.put(convert(apply_merge_patch(known, {**body, "metadata": {}}), kind.type), kind)
            return None
        pod = self.objects["pods"].get(f"default/{name}")
        if pod is None:
            raise ApiStatusError(404, "NotFound", f"pods {name!r} not found")
        if body["metadata"]["uid"] != pod.metadata.uid:
            raise ApiStatusError(409, "Conflict", "the UID in the precondition does not match")
        if "annotations" in body["metadata"]:
            annotations = {**pod.metadata.annotations, **body["metadata"]["annotations"]}
            kept = {key: value for key, value in annotations.items() if value is not None}
            self.put(msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=kept)))
            return pod
        status = pod.status
        if "nominatedNodeName" in body["status"]:
            status = msgspec.structs.replace(status, nominated_node_name=body["status"]["nominatedNodeName"] or "")
        for condition in body["status"].get("conditions", ()):
            self.conditions.append((name, condition["reason"], condition["message"]))
            new = PodCondition(
                type=condition["type"],
                status=condition["status"],
                reason=condition["reason"],
                message=condition["message"],
            )
            others = [each for each in status.conditions if each.type != new.type]
            status = msgspec.structs.replace(status, conditions=[*others, new])
        self.put(msgspec.structs.replace(pod, status=status))
        return pod

    async def delete(self, kind: Kind[Any], name: str, namespace: str = "", *, uid: str = "", **options: Any) -> None:
        await asyncio.sleep(0)
        pod = self.objects["pods"].get(f"default/{name}")
        if pod is None or pod.metadata.uid != uid:
            raise ApiStatusError(404, "NotFound", f"pods {name!r} not found")
        if self.leaving_takes_time:
            metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
            self.put(msgspec.structs.replace(pod, metadata=metadata))
        else:
            self.remove("pods", f"default/{name}")

    def _raise(self, name: str, *, done: bool) -> None:
        error = self.fault(name, done)
        if error is not None:
            raise error

    def _bind(self, name: str, binding: Any) -> None:
        pod = self.objects["pods"].get(f"default/{name}")
        if pod is None:
            raise ApiStatusError(404, "NotFound", f"pods {name!r} not found")
        if pod.metadata.uid != binding["metadata"]["uid"]:
            raise ApiStatusError(409, "Conflict", "the UID in the precondition does not match")
        if pod.spec.node_name:
            raise ApiStatusError(409, "Conflict", f"pod {name} is already assigned to node {pod.spec.node_name}")
        node = binding["target"]["name"]
        self.bindings.append((name, node))
        spec = msgspec.structs.replace(pod.spec, node_name=node)
        annotations = {**pod.metadata.annotations, **binding["metadata"].get("annotations", {})}
        metadata = msgspec.structs.replace(pod.metadata, annotations=annotations)
        self.put(msgspec.structs.replace(pod, spec=spec, metadata=metadata))


def lost() -> TransportError:
    return TransportError("connection reset")


def unavailable() -> ApiStatusError:
    return ApiStatusError(503, "ServiceUnavailable", "etcd is away")
