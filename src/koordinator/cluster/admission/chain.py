"""The admission chain: the plugins that are built into the server, in the order of kube-apiserver.

Each plugin says once which requests concern it, so that a write costs no more than the plugins that look at its kind.
Webhooks come after the plugins and quotas after the webhooks; the verbs call them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar, Final

from koordinator.cluster.errors import ApiError, forbidden
from koordinator.cluster.verbs.environment import Attributes, GroupResource, Operation

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
_REMEMBERED: Final = 1000
"""Kinds of requests, which custom resources may make any number of."""


class Plugin:
    """One of the chain; a subclass overrides what it does."""

    name: ClassVar[str]
    resources: ClassVar[Collection[GroupResource]] = ()
    """Group and plural of the kinds that it looks at; nothing stands for all."""
    operations: ClassVar[Collection[str]] = ("CREATE",)
    subresources: ClassVar[Collection[str]] = ("",)
    """Nothing stands for all."""

    def concerns(self, resource: GroupResource, subresource: str, operation: Operation) -> bool:
        return (
            operation in self.operations
            and (not self.resources or resource in self.resources)
            and (not self.subresources or subresource in self.subresources)
        )

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


class AdmissionChain:
    """Implements ``Admission``."""

    def __init__(self, *plugins: Plugin) -> None:
        self._plugins = sorted(plugins, key=lambda plugin: ORDER.index(plugin.name))
        self._concerned: dict[tuple[str, str, str, Operation], Sequence[Plugin]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Of the plugins, in their order."""
        return tuple(plugin.name for plugin in self._plugins)

    async def mutate(self, attributes: Attributes) -> None:
        for plugin in self._of(attributes):
            await plugin.mutate(attributes)

    async def validate(self, attributes: Attributes) -> None:
        for plugin in self._of(attributes):
            await plugin.validate(attributes)

    def _of(self, attributes: Attributes) -> Sequence[Plugin]:
        resource, subresource = attributes.target.resource, attributes.target.subresource
        key = (resource.group, resource.plural, subresource, attributes.operation)
        found = self._concerned.get(key)
        if found is None:
            if len(self._concerned) >= _REMEMBERED:
                self._concerned.clear()
            about = (key[:2], subresource, attributes.operation)
            found = self._concerned[key] = tuple(each for each in self._plugins if each.concerns(*about))
        return found
