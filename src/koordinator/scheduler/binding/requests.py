"""The requests that give a pod or a Reservation its node, and what an object says of them: the binder treats both
alike."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from enum import Enum
from typing import Any, ClassVar, Final, Protocol

import msgspec

from koordinator.api.kinds import PODS, Kind
from koordinator.api.pod import Pod
from koordinator.kube.bounded_client import BoundedClient
from koordinator.kube.interface import Client, PatchType
from koordinator.scheduler.engine.binding_points import StatusPatch


class Result(Enum):
    """How a binding ended."""

    BOUND = "bound"
    ELSEWHERE = "elsewhere"
    """Another scheduler or client gave the object another node."""
    GONE = "gone"
    """The object does not exist any more, or is about to: it gets no node."""
    REFUSED = "refused"
    """The object has no node and this attempt is over."""
    REJECTED = "rejected"
    """The same, by a Permit plugin or by what has become of the pod or its node while it waited."""


class Outcome(msgspec.Struct, frozen=True):
    """``detail`` is the reason of a refusal or a rejection, ``plugin`` the Permit plugin that has rejected it."""

    result: Result
    detail: str = ""
    plugin: str = ""


BOUND: Final = Outcome(Result.BOUND)


def outcome(node: str | None, wanted: str) -> Outcome | None:
    """The outcome of a binding to the node ``wanted`` if the object is on ``node``, see ``BindingRequest.node_of``;
    None if that is still open."""
    if node is None:
        return Outcome(Result.GONE)
    if not node:
        return None
    return BOUND if node == wanted else Outcome(Result.ELSEWHERE, f"it is on {node}")


class BindingRequest(Protocol):
    """``name`` and ``namespace`` are those of the object of ``kind`` that gets the node."""

    @property
    def kind(self) -> Kind[Any]: ...
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def node_name(self) -> str: ...

    def send(self, client: Client) -> Coroutine[Any, Any, object]:
        """Make the request once; it may be repeated, since it applies to one object without a node alone."""

    def node_of(self, seen: Any) -> str | None:
        """The node of the object in the state ``seen``; empty without one, None if it gets none any more."""


class PodBinding(msgspec.Struct, frozen=True):
    """A Binding of a pod. Names and uids hold no character that JSON would escape; because of the uid, the server
    refuses a pod of the same name that was created since. The server copies ``annotations`` to the pod."""

    namespace: str
    name: str
    uid: str
    node_name: str
    annotations: Mapping[str, str] = {}
    kind: ClassVar[Kind[Pod]] = PODS

    def body(self) -> bytes:
        """The encoded Binding."""
        more = f',"annotations":{msgspec.json.encode(self.annotations).decode()}' if self.annotations else ""
        return (
            f'{{"apiVersion":"v1","kind":"Binding",'
            f'"metadata":{{"name":"{self.name}","namespace":"{self.namespace}","uid":"{self.uid}"{more}}},'
            f'"target":{{"apiVersion":"v1","kind":"Node","name":"{self.node_name}"}}}}'
        ).encode()

    def send(self, client: Client | BoundedClient, *, dry_run: bool = False) -> Coroutine[Any, Any, object]:
        """See BindingRequest; with ``dry_run``, the server only says whether it would admit it."""
        body, name = self.body(), self.name
        return client.create(PODS, body, self.namespace, name=name, subresource="binding", dry_run=dry_run)

    def node_of(self, seen: Pod) -> str | None:
        """See BindingRequest."""
        if seen.metadata.uid != self.uid:
            return None
        if not seen.spec.node_name and seen.metadata.deletion_timestamp is not None:
            return None
        return seen.spec.node_name


def pod_binding(pod: Pod, node_name: str) -> PodBinding:
    """The Binding of the pod to the node."""
    metadata = pod.metadata
    return PodBinding(metadata.namespace, metadata.name, metadata.uid, node_name)


class StatusBinding(msgspec.Struct, frozen=True):
    """A patch of the status of an object that a plugin binds. It applies to the version alone that the plugin has seen,
    so that a late one changes nothing of what has become of the object."""

    patch: StatusPatch
    node_name: str
    namespace: ClassVar[str] = ""

    @property
    def kind(self) -> Kind[Any]:
        return self.patch.kind

    @property
    def name(self) -> str:
        return self.patch.obj.metadata.name

    def send(self, client: Client) -> Coroutine[Any, Any, object]:
        """See BindingRequest."""
        metadata = self.patch.obj.metadata
        version = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
        body = {"metadata": version, "status": self.patch.status}
        return client.patch(self.kind, metadata.name, body, PatchType.MERGE, subresource="status")

    def node_of(self, seen: Any) -> str | None:
        """See BindingRequest."""
        return self.patch.node_of(seen) if seen.metadata.uid == self.patch.obj.metadata.uid else None
