"""The admission chain: the plugins that are built into the server, in the order of kube-apiserver.

Each plugin says once which requests concern it, so that a write costs no more than the plugins that look at its kind.
Webhooks come after the plugins and quotas after the webhooks; the verbs call them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar, Final

from koordinator.cluster.errors import ApiError, forbidden
from koordinator.cluster.storage.interface import Change
from koordinator.cluster.verbs.environment import Attributes, Environment, GroupResource, Operation, RequestKind, Steps
from koordinator.cluster.verbs.target import is_namespace

ORDER: Final = (
    "NamespaceLifecycle",
    "LimitRanger",
    "ServiceAccount",
    "NodeRestriction",
    "TaintNodesByCondition",
    "PodSecurity",
    "Priority",
    "DefaultTolerationSeconds",
    "DefaultStorageClass",
    "StorageObjectInUseProtection",
    "PersistentVolumeClaimResize",
    "RuntimeClass",
    "CertificateApproval",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "DefaultIngressClass",
    "PodTopologyLabels",
    "RoleEscalation",
)
"""Names of plugins. The last one is no plugin of the real server, whose store of roles makes that check itself."""
_REMEMBERED: Final = 10_000
"""Kinds of requests, which custom resources and namespaces may make any number of."""


class Plugin:
    """One of the chain; a subclass overrides what it does."""

    name: ClassVar[str]
    resources: ClassVar[Collection[GroupResource]] = ()
    """Group and plural of the kinds that it looks at; nothing stands for all."""
    operations: ClassVar[Collection[str]] = ("CREATE",)
    subresources: ClassVar[Collection[str]] = ("",)
    """Nothing stands for all."""
    idle_by: ClassVar[Collection[GroupResource]] = ()
    """The kinds of objects that ``is_idle`` looks at."""

    def concerns(self, resource: GroupResource, subresource: str, operation: Operation) -> bool:
        return (
            operation in self.operations
            and (not self.resources or resource in self.resources)
            and (not self.subresources or subresource in self.subresources)
        )

    def is_idle(self, operation: Operation, namespace: str | None, objects: Environment) -> bool:
        """Whether it has nothing to do for any request in the namespace, as long as those kinds do not change there."""
        return False

    async def mutate(self, attributes: Attributes) -> None:
        """Change the object in place. Runs once more where a webhook has changed it. Raises ApiError."""

    async def validate(self, attributes: Attributes) -> None:
        """Refuse the object as it will be stored, by raising ApiError."""


def refused(attributes: Attributes, why: str) -> ApiError:
    """A plugin refuses a request: 403, under the name that the object has or will have.

    Names are generated after the plugins have seen the object, so that its base stands for one."""
    metadata = (attributes.obj or {}).get("metadata") or {}
    name = attributes.target.name or metadata.get("name") or metadata.get("generateName") or "Unknown"
    return forbidden(attributes.target.resource, str(name), why)


class AdmissionChain(dict[RequestKind, Steps]):
    """Implements ``Admission``: the steps of each kind of request, found when the first of its kind comes."""

    def __init__(self, *plugins: Plugin) -> None:
        super().__init__()
        self._plugins = sorted(plugins, key=lambda plugin: ORDER.index(plugin.name))
        self._objects: Environment | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Of the plugins, in their order."""
        return tuple(plugin.name for plugin in self._plugins)

    def follow(self, objects: Environment) -> None:
        """From now on plugins are not called where they are idle."""
        self._objects = objects
        kinds = [objects.registry.stored[kind] for plugin in self._plugins for kind in plugin.idle_by]
        prefixes = tuple(kind.prefix for kind in kinds if kind is not None)

        def observe(changes: Sequence[Change]) -> None:
            for change in changes:
                if change.current.key.startswith(prefixes):
                    self.clear()

        objects.storage.observe(observe)

    def __missing__(self, kind: RequestKind) -> Steps:
        if len(self) >= _REMEMBERED:
            self.clear()
        operation, group, plural, subresource, namespace = kind
        found = [each for each in self._plugins if each.concerns((group, plural), subresource, operation)]
        if self._objects is not None:
            found = [each for each in found if not each.is_idle(operation, namespace, self._objects)]
        # Most plugins do one of both.
        mutate = tuple(each.mutate for each in found if type(each).mutate is not Plugin.mutate)
        validate = tuple(each.validate for each in found if type(each).validate is not Plugin.validate)
        steps = self[kind] = Steps(mutate, validate)
        return steps


_NAMESPACES: Final = ("", "namespaces")
_IMMORTAL: Final = frozenset(("default", "kube-system", "kube-public"))


class NamespaceLifecycle(Plugin):
    """Nothing is created in a namespace that is absent or going; the system's namespaces stay."""

    name = "NamespaceLifecycle"
    operations = ("CREATE", "DELETE")
    subresources = ()
    idle_by = (_NAMESPACES,)

    def is_idle(self, operation: Operation, namespace: str | None, objects: Environment) -> bool:
        if operation != "CREATE" or namespace is None:
            return operation == "CREATE"
        found = objects.lookup(*_NAMESPACES, None, namespace)
        return found is not None and not found["metadata"].get("deletionTimestamp")

    async def mutate(self, attributes: Attributes) -> None:
        target = attributes.target
        if attributes.operation != "CREATE" or not target.resource.namespaced or target.namespace is None:
            return
        namespace = attributes.context.lookup(*_NAMESPACES, None, target.namespace)
        if namespace is None:
            message = f'namespaces "{target.namespace}" not found'
            raise ApiError(404, "NotFound", message, {"name": target.namespace, "kind": "namespaces"})
        if namespace["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {target.namespace} because it is being terminated"
            error = forbidden(target.resource, target.name, why)
            message = f"namespace {target.namespace} is being terminated"
            error.details["causes"] = [
                {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
            ]
            raise error

    async def validate(self, attributes: Attributes) -> None:
        target = attributes.target
        doomed = attributes.operation == "DELETE" and is_namespace(target.resource)
        if doomed and target.name in _IMMORTAL:
            raise forbidden(target.resource, target.name, "this namespace may not be deleted")
