"""A Client for programs that run over the embedded API in this process: verbs are called directly, nothing is sent."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import closing, contextmanager
from typing import Any, TypeVar

from koordinator.api import codec
from koordinator.api.document import Document
from koordinator.api.kinds import Kind
from koordinator.api.meta import Object, Status
from koordinator.cluster.errors import ApiError, unknown_path
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.verbs.create import create
from koordinator.cluster.verbs.delete import delete, delete_collection
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.options import DeleteOptions, ListOptions, WriteOptions
from koordinator.cluster.verbs.read import get, list_objects
from koordinator.cluster.verbs.selection import Selection
from koordinator.cluster.verbs.subresources import CREATED_SUBRESOURCES
from koordinator.cluster.verbs.target import Target, wire
from koordinator.cluster.verbs.update import patch, update
from koordinator.cluster.verbs.watch import seen_through
from koordinator.kube.decoding import decode_item, decode_object, error_from_status
from koordinator.kube.interface import ListPage, Malformed, PatchType, WatchEvent, WriteThroughCache
from koordinator.kube.request import encode_body, encode_object

T = TypeVar("T", bound=Object)


class InProcessClient:
    """Implements ``koordinator.kube.interface.Client``. Lists have one page whatever ``limit`` is: no other client
    waits meanwhile."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def once(self) -> InProcessClient:
        return self

    def write_through(self, cache: WriteThroughCache) -> None:
        """A write is in the watches before its response is: there is nothing to give to the cache before."""

    def backlog(self) -> float:
        return 0.0

    async def get(self, kind: Kind[T], name: str, namespace: str = "") -> T:
        with _refusals():
            target = self._target(kind, namespace, name)
            return _typed(kind, target, get(self._environment, target, ListOptions()))

    async def list(
        self,
        kind: Kind[T],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
    ) -> ListPage[T]:
        with _refusals():
            target = self._target(kind, namespace)
            options = ListOptions(label_selector=label_selector, field_selector=field_selector)
            found = list_objects(self._environment, target, options)
        items = [decode_item(kind, wire(target.resource, stored)) for stored in found.items]
        good = [item for item in items if not isinstance(item, Malformed)]
        malformed = [item for item in items if isinstance(item, Malformed)]
        return ListPage(good, malformed, str(found.revision), "", None)

    async def watch(
        self,
        kind: Kind[T],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
        timeout_seconds: int = 0,
    ) -> AsyncGenerator[WatchEvent[T], None]:
        environment = self._environment
        with _refusals():
            target = self._target(kind, namespace)
            selection = Selection.parse(target, environment.selector_cache, label_selector, field_selector)
        after = int(resource_version) if resource_version else environment.storage.revision()
        with closing(environment.storage.watch(selection.prefix(target), after)) as cursor:
            while (changes := await cursor.next()) is not None:
                for change in changes:
                    event = seen_through(selection, change)
                    if event is not None:
                        item = decode_item(kind, wire(target.resource, event.stored))
                        yield WatchEvent(event.type, item, str(event.stored.revision))

    async def create(
        self,
        kind: Kind[T],
        body: Any,
        namespace: str = "",
        *,
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
    ) -> T:
        options = WriteOptions(dry_run=dry_run)
        with _refusals():
            target = self._target(kind, namespace, name, subresource)
            if not subresource:
                document = codec.decode_any(encode_object(kind, body))
                return _typed(kind, target, await create(self._environment, target, document, options))
            resource = target.resource
            action = CREATED_SUBRESOURCES.get((resource.group, resource.plural, subresource))
            if action is None:
                raise unknown_path()
            await action(self._environment, target, codec.decode_any(encode_body(body)), options)
            return kind.type(api_version="v1", kind="Status")

    async def update(self, kind: Kind[T], body: Any, name: str, namespace: str = "", *, subresource: str = "") -> T:
        with _refusals():
            target = self._target(kind, namespace, name, subresource)
            document: Document = codec.decode_any(encode_object(kind, body))
            return _typed(kind, target, await update(self._environment, target, document))

    async def patch(
        self,
        kind: Kind[T],
        name: str,
        body: Any,
        patch_type: PatchType,
        namespace: str = "",
        *,
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
    ) -> T:
        with _refusals():
            target = self._target(kind, namespace, name, subresource)
            stored = await patch(self._environment, target, patch_type.value, encode_body(body))
            return _typed(kind, target, stored)

    async def delete(
        self,
        kind: Kind[T],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period_seconds: int | None = None,
        propagation_policy: str = "",
    ) -> None:
        options = DeleteOptions(grace_period_seconds, uid, resource_version)
        with _refusals():
            await delete(self._environment, self._target(kind, namespace, name), options)

    async def delete_collection(
        self, kind: Kind[T], namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> None:
        selection = ListOptions(label_selector=label_selector, field_selector=field_selector)
        with _refusals():
            await delete_collection(self._environment, self._target(kind, namespace), selection, DeleteOptions())

    async def raw(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Only resources are served."""
        with _refusals():
            raise unknown_path()

    async def close(self) -> None:
        """There is no connection to close."""

    def _target(self, kind: Kind[Any], namespace: str = "", name: str = "", subresource: str = "") -> Target:
        resource = self._environment.registry.served.get((kind.group, kind.version, kind.plural))
        if resource is None:
            raise unknown_path()
        return Target(resource, namespace or None, name, subresource)


def _typed(kind: Kind[T], target: Target, stored: Stored) -> T:
    return decode_object(kind, wire(target.resource, stored), f"{kind.qualified} {target.name}")


@contextmanager
def _refusals() -> Iterator[None]:
    """Turns the verbs' refusals into the errors of a client."""
    try:
        yield
    except ApiError as error:
        raise error_from_status(codec.convert(error.status(), Status), error.code) from error
