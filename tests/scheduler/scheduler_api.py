"""The API server in memory, as tests of the scheduler speak of it: typed objects, what was bound, and bindings that
fail."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web

from koordinator.api.codec import convert, to_document
from koordinator.api.kinds import NODES, PODS, Kind
from koordinator.api.kubernetes_types.table import kind_type
from koordinator.api.meta import Object
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.cluster.strategy.object_strategy import apply_defaults
from koordinator.kube.errors import ApiStatusError, TransportError
from tests.in_memory_api import ApiRequest, InMemoryApi, InMemoryResponse, Writer

BindingFault = Callable[[str, bool], Exception | None]
"""Asked for each binding of a pod (by name) before it is done (False) and after (True)."""


class SchedulerApi(InMemoryApi):
    """``leaving_takes_time``: a deleted pod stays, marked, until it is dropped, as one does that has a kubelet."""

    def __init__(self, *, others: Sequence[Kind[Any]] = ()) -> None:
        super().__init__(others=others)
        self.bindings: list[tuple[str, str]] = []
        """(pod, node) of every binding that was done."""
        self.conditions: list[tuple[str, str, str]] = []
        """(pod, reason, message)."""
        self.leaving_takes_time = False
        self.binding_fault: BindingFault = lambda name, done: None
        self.fault = self._fault
        self._kinds: dict[str, Kind[Any]] = {PODS.plural: PODS, NODES.plural: NODES}

    def store(self, obj: Object, kind: Kind[Any] | None = None) -> None:
        """Create or replace a node, a pod, or an object of ``kind``, with the defaults of the server."""
        kind = kind or (NODES if isinstance(obj, Node) else PODS)
        self._kinds[kind.plural] = kind
        document = to_document(obj)
        of = kind_type(kind.api_version, kind.name)
        if of is not None:
            apply_defaults(document, of)
        self.put(kind, document)

    def drop(self, plural: str, key: str) -> None:
        """An object by its key, which is ``namespace/name`` or ``name``."""
        namespace, _, name = key.rpartition("/")
        self.remove(self._kinds[plural], name, namespace)

    def objects(self, plural: str) -> dict[str, Any]:
        """By their keys; of what was stored once."""
        kind = self._kinds.get(plural)
        found = [convert(document, kind.type) for document in self.all(kind)] if kind is not None else []
        return {each.metadata.key: each for each in found}

    def pod(self, name: str) -> Pod:
        return convert(self.document(PODS, name, "default"), Pod)

    def placed(self) -> dict[str, str]:
        """Pod -> node of all pods that have one."""
        pods = self.all(PODS)
        return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}

    def _fault(self, api_request: ApiRequest, done: bool) -> Exception | None:
        is_binding = api_request.subresource == "binding" and not api_request.dry_run
        return self.binding_fault(api_request.name, done) if is_binding else None

    async def respond(self, api_request: ApiRequest, request: web.BaseRequest, writer: Writer) -> InMemoryResponse:
        response = await super().respond(api_request, request, writer)
        if response.status < 300 and not api_request.dry_run:
            self._note(api_request)
        return response

    def _note(self, api_request: ApiRequest) -> None:
        """What it was, and the end of a pod that need not be waited for."""
        if api_request.subresource == "binding":
            self.bindings.append((api_request.name, json.loads(api_request.body)["target"]["name"]))
        elif (api_request.verb, api_request.plural, api_request.subresource) == ("patch", "pods", "status"):
            for condition in json.loads(api_request.body)["status"].get("conditions", ()):
                self.conditions.append((api_request.name, condition["reason"], condition["message"]))
        elif (api_request.verb, api_request.plural) == ("delete", "pods"):
            stays = self.found(PODS, api_request.name, "default") is not None
            if stays and not self.leaving_takes_time:
                self.remove(PODS, api_request.name, "default")


def lost() -> TransportError:
    return TransportError("connection reset")


def unavailable() -> ApiStatusError:
    return ApiStatusError(503, "ServiceUnavailable", "etcd is away")
