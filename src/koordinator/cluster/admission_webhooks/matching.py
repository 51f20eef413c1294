"""Which webhooks a request concerns, and in which version of its resource each wants to see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from koordinator.api.document import Document
from koordinator.cluster.admission_webhooks.configuration import Followed, Rule, Webhook
from koordinator.cluster.errors import ApiError
from koordinator.cluster.resource import Registry, Resource
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.strategy.webhook_configuration import ADMISSION_GROUP
from koordinator.cluster.verbs.environment import Attributes
from koordinator.cluster.verbs.selection import LabelMatcher
from koordinator.cluster.verbs.target import decode, encode, is_namespace


@dataclass(frozen=True, slots=True)
class Invocation:
    """A webhook whose rules name the request, and the version of the resource that they name."""

    webhook: Webhook
    resource: Resource


class Candidates:
    """What the rules of one kind of webhooks bring together with a request.

    That depends on the operation and the resource alone, so it is remembered until the webhooks or the served kinds
    change: most requests concern no webhook, and must not pay for those that are there.
    """

    def __init__(self, configurations: Followed[Sequence[Webhook]], registry: Registry) -> None:
        self._configurations = configurations
        self._registry = registry
        self._known: dict[tuple[str, str, str, str, str, bool], Sequence[Invocation]] = {}
        self._of: tuple[Sequence[Sequence[Webhook]], int] = ((), -1)

    def of(self, attributes: Attributes) -> Sequence[Invocation]:
        """In the order in which webhooks are called."""
        webhooks = self._configurations.objects
        if not webhooks:
            return ()
        if self._of[0] is not webhooks or self._of[1] != self._registry.generation:
            self._known.clear()
            self._of = (webhooks, self._registry.generation)
        target = attributes.target
        requested, namespaced = target.resource, bool(attributes.namespace)
        key = (
            attributes.operation,
            requested.group,
            requested.version,
            requested.plural,
            target.subresource,
            namespaced,
        )
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = () if is_exempt(requested) else self._search(webhooks, attributes)
        return found

    def _search(self, webhooks: Sequence[Sequence[Webhook]], attributes: Attributes) -> Sequence[Invocation]:
        found = ((webhook, named(webhook, attributes, self._registry)) for each in webhooks for webhook in each)
        return tuple(Invocation(webhook, resource) for webhook, resource in found if resource is not None)


class Matched(Protocol):
    """What rules and selectors bring together with requests: a webhook, a policy, a binding."""

    @property
    def rules(self) -> Sequence[Rule]: ...

    @property
    def equivalent(self) -> bool: ...

    @property
    def namespaces(self) -> LabelMatcher | None: ...

    @property
    def objects(self) -> LabelMatcher | None: ...


def named(of: Matched, attributes: Attributes, registry: Registry, name: str = "") -> Resource | None:
    """The version of the requested resource that the earliest of the rules names; None where none does.

    ``name`` is that of the object, where rules may speak of it.
    """
    requested, subresource = attributes.target.resource, attributes.target.subresource
    prefix, namespaced = requested.prefix, bool(attributes.namespace)
    others = [r for r in registry if r is not requested and r.prefix == prefix] if of.equivalent else []
    for resources in ((requested,), others):
        for rule in of.rules:
            for resource in resources:
                fits = rule.matches(attributes.operation, resource, subresource, namespaced)
                if fits and (not rule.names or name in rule.names):
                    return resource
    return None


def selects(webhook: Matched, attributes: Attributes) -> bool:
    """Whether the objects and their namespace match the selectors.

    Raises ApiError 404 when the namespace whose labels decide is not there.
    """
    return _selects_objects(webhook, attributes) and _selects_namespace(webhook, attributes)


def _selects_namespace(webhook: Matched, attributes: Attributes) -> bool:
    target = attributes.target
    if webhook.namespaces is None or not (attributes.namespace or is_namespace(target.resource)):
        return True
    if is_namespace(target.resource) and not target.subresource and attributes.operation != "DELETE":
        return webhook.namespaces(_labels(attributes.obj))
    name = attributes.namespace
    namespace = attributes.context.lookup("", "namespaces", None, name)
    if namespace is None:
        message = f'namespaces "{name}" not found'
        raise ApiError(404, "NotFound", message, {"name": name, "kind": "namespaces"})
    return webhook.namespaces(_labels(namespace))


def is_exempt(resource: Resource) -> bool:
    """Configurations of webhooks, and policies, never pass either: a bad one could not be taken away."""
    return resource.group == ADMISSION_GROUP


async def convert(obj: Document | None, source: Resource, destination: Resource) -> Document | None:
    """An object of one version in the form of another one that shares its store. Raises ApiError.

    What subresources take, such as a Scale, is the same for all versions.
    """
    if obj is None or source is destination or obj.get("kind") != source.kind:
        return obj
    if source.conversion is not None:
        return (await source.conversion.convert([obj], destination.api_version))[0]
    converted = decode(destination, Stored("", encode(source, obj), 0))
    if version := obj["metadata"].get("resourceVersion"):
        converted["metadata"]["resourceVersion"] = version
    return converted


def _selects_objects(webhook: Matched, attributes: Attributes) -> bool:
    """The new or the old object; a webhook that selects none of both is not concerned."""
    if webhook.objects is None:
        return True
    present = [obj for obj in (attributes.obj, attributes.old) if obj is not None]
    return any(webhook.objects(_labels(obj)) for obj in present)


def _labels(obj: Document | None) -> Mapping[str, str]:
    labels: Mapping[str, str] = ((obj or {}).get("metadata") or {}).get("labels") or {}
    return labels
