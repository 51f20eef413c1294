"""Objects that every namespace has: the ServiceAccount ``default``, and the certificate of the cluster's authority."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from koordinator.api.core import ConfigMap
from koordinator.api.document import Document, copied
from koordinator.api.kinds import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS, Kind
from koordinator.api.meta import Object
from koordinator.cluster.controllers.context import ControllerContext
from koordinator.cluster.controllers.pod_control import is_namespace_terminating
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType

T = TypeVar("T", bound=Object)

DEFAULT_ACCOUNT: Final = "default"
ROOT_AUTHORITY: Final = "kube-root-ca.crt"
_CERTIFICATE: Final = "ca.crt"
_DESCRIPTION: Final = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)


class _EachNamespace(Generic[T]):
    """Keeps one object in each namespace; its keys are the names of namespaces."""

    def __init__(
        self,
        context: ControllerContext,
        name: str,
        kind: Kind[T],
        body: Document | None,
        correction: Callable[[T], Document | None],
    ) -> None:
        """``body`` is the object; None if there is none to make. ``correction`` is a merge patch that makes the object
        right; None if it is."""
        self._client = context.client
        self._kind = kind
        self._body = body
        self._correction = correction
        self._name: str = body["metadata"]["name"] if body is not None else ""
        self._namespaces = context.informers.informer(NAMESPACES)
        self._objects = context.informers.informer(kind, field_selector=f"metadata.name={self._name}")
        self._reconciler = context.reconcilers.make(
            name, self._reconcile, lambda: [each.metadata.name for each in self._namespaces.list()]
        )
        self._namespaces.add_handlers(
            name=name,
            on_add=lambda namespace, _: self._reconciler.add(namespace.metadata.name),
            on_update=lambda _, namespace: self._reconciler.add(namespace.metadata.name),
        )
        self._objects.add_handlers(
            name=name,
            on_update=lambda _, obj: self._reconciler.add(obj.metadata.namespace),
            on_delete=lambda obj: self._reconciler.add(obj.metadata.namespace),
        )

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reconciler.run()

    async def _reconcile(self, key: str) -> float | None:
        namespace = self._namespaces.get(key)
        if self._body is None or namespace is None or namespace.metadata.deletion_timestamp is not None:
            return None
        found = self._objects.get(f"{key}/{self._name}")
        patch = self._correction(found) if found is not None else None
        try:
            if found is None:
                await self._client.create(self._kind, copied(self._body), key)
            elif patch is not None:
                await self._client.patch(self._kind, self._name, patch, PatchType.MERGE, key)
        except ApiStatusError as error:
            if not (error.is_already_exists or error.is_not_found or is_namespace_terminating(error)):
                raise
        return None


class DefaultAccountController(_EachNamespace[Object]):
    """The account of pods that name none."""

    name: Final = "serviceaccount-controller"

    def __init__(self, context: ControllerContext) -> None:
        body = {"metadata": {"name": DEFAULT_ACCOUNT}}
        super().__init__(context, self.name, SERVICE_ACCOUNTS, body, lambda _: None)


class RootAuthorityController(_EachNamespace[ConfigMap]):
    """With what a pod checks that it speaks with the API server. Makes nothing where the authority is not known."""

    name: Final = "root-ca-certificate-publisher-controller"

    def __init__(self, context: ControllerContext) -> None:
        authority = context.authority

        def correction(found: ConfigMap) -> Document | None:
            if found.data == {_CERTIFICATE: authority}:
                return None
            return {"data": {**dict.fromkeys(found.data), _CERTIFICATE: authority}}

        metadata = {"name": ROOT_AUTHORITY, "annotations": {"kubernetes.io/description": _DESCRIPTION}}
        body = {"metadata": metadata, "data": {_CERTIFICATE: authority}} if authority else None
        super().__init__(context, self.name, CONFIG_MAPS, body, correction)
