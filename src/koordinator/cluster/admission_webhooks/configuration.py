"""The webhooks that are configured now, ready to be called, in the order in which they are called."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from koordinator.api.document import Document
from koordinator.cluster.resource import Registry, Resource
from koordinator.cluster.storage.interface import Storage, Stored
from koordinator.cluster.strategy.webhook_configuration import ADMISSION_GROUP
from koordinator.cluster.verbs.selection import LabelMatcher, compile_selector
from koordinator.cluster.verbs.target import decode, is_namespace

if TYPE_CHECKING:
    from koordinator.cluster.admission_expressions.match_conditions import MatchConditions

# Does a webhook want to hear of an operation on a resource?


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of ``rules``; ``*`` stands for everything in each of its lists."""

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: Sequence[tuple[str, str]]
    """(resource, subresource), the latter empty for the resource itself."""
    scope: str
    names: frozenset[str] = frozenset()
    """Of objects, in rules of policies; empty for all."""

    @classmethod
    def parse(cls, rule: Document) -> Rule:
        parts = [text.partition("/") for text in rule.get("resources") or ()]
        return cls(
            operations=frozenset(rule.get("operations") or ()),
            groups=frozenset(rule.get("apiGroups") or ()),
            versions=frozenset(rule.get("apiVersions") or ()),
            resources=tuple((resource, subresource) for resource, _, subresource in parts),
            scope=rule.get("scope") or "*",
            names=frozenset(rule.get("resourceNames") or ()),
        )

    def matches(self, operation: str, resource: Resource, subresource: str, namespaced: bool) -> bool:
        """``namespaced``: the request names a namespace; a Namespace itself counts as cluster-scoped all the same."""
        return (
            _covers(self.operations, operation)
            and _covers(self.groups, resource.group)
            and _covers(self.versions, resource.version)
            and any(
                wanted in ("*", resource.plural) and below in ("*", subresource) for wanted, below in self.resources
            )
            and self._in_scope(resource, namespaced)
        )

    def _in_scope(self, resource: Resource, namespaced: bool) -> bool:
        if self.scope == "*":
            return True
        return (self.scope == "Namespaced") == (namespaced and not is_namespace(resource))


def _covers(items: frozenset[str], item: str) -> bool:
    return item in items or "*" in items


_LOG = logging.getLogger(__name__)
_HTTPS = 443
MUTATING, VALIDATING = "mutatingwebhookconfigurations", "validatingwebhookconfigurations"


@dataclass(frozen=True, slots=True)
class ServiceReference:
    namespace: str
    name: str
    port: int


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Where a webhook is: at a Service or, without one, at a URL."""

    url: str
    service: ServiceReference | None
    path: str
    """Of a Service reference."""
    authorities: str
    """``caBundle``: base64 of PEM; empty for the authorities that this machine trusts."""

    @classmethod
    def parse(cls, client: Document) -> ClientConfig:
        service = client.get("service")
        reference = (
            None
            if service is None
            else ServiceReference(service["namespace"], service["name"], service.get("port") or _HTTPS)
        )
        path = (service or {}).get("path") or ""
        return cls(client.get("url") or "", reference, path, client.get("caBundle") or "")


@dataclass(frozen=True, slots=True, eq=False)
class Webhook:
    """One entry of a configuration's ``webhooks``."""

    uid: str
    """Configuration, name, and a number that distinguishes webhooks of one name."""
    name: str
    client: ClientConfig
    rules: Sequence[Rule]
    namespaces: LabelMatcher | None
    """None: all."""
    objects: LabelMatcher | None
    fails_closed: bool
    equivalent: bool
    """matchPolicy Equivalent: other versions of what a rule names are converted and sent."""
    without_side_effects: bool
    reinvocable: bool
    timeout_seconds: int
    review_versions: Sequence[str]
    conditions: MatchConditions | None
    """None: there are none."""

    @classmethod
    def parse(cls, webhook: Document, uid: str) -> Webhook:
        return cls(
            uid=uid,
            name=webhook["name"],
            client=ClientConfig.parse(webhook["clientConfig"]),
            rules=tuple(Rule.parse(rule) for rule in webhook.get("rules") or ()),
            namespaces=compile_selector(webhook.get("namespaceSelector")),
            objects=compile_selector(webhook.get("objectSelector")),
            fails_closed=webhook.get("failurePolicy") != "Ignore",
            equivalent=webhook.get("matchPolicy") != "Exact",
            without_side_effects=webhook.get("sideEffects") in ("None", "NoneOnDryRun"),
            reinvocable=webhook.get("reinvocationPolicy") == "IfNeeded",
            timeout_seconds=webhook.get("timeoutSeconds") or 10,
            review_versions=tuple(webhook.get("admissionReviewVersions") or ()),
            conditions=_conditions(webhook.get("matchConditions") or ()),
        )


def _conditions(documents: Sequence[Document]) -> MatchConditions | None:
    if not documents:
        return None
    # What compiles expressions is loaded where there are some.
    from koordinator.cluster.admission_expressions.match_conditions import MatchConditions

    return MatchConditions(documents)


T = TypeVar("T")


class Followed(Generic[T]):
    """The stored configurations or policies of one kind, parsed; empty until ``load``."""

    def __init__(
        self, storage: Storage, registry: Registry, plural: str, parse: Callable[[Document], T], in_force: set[str]
    ) -> None:
        """``in_force`` has the plural in it while there is one."""
        resource = registry.stored[ADMISSION_GROUP, plural]
        assert resource is not None
        self._resource: Resource = resource
        self._storage = storage
        self._parse = parse
        self._in_force = in_force
        self._known: dict[str, tuple[int, T]] = {}
        self._broken: dict[str, str] = {}
        self.objects: Sequence[T] = ()
        """By name."""

    def load(self) -> int:
        """Take in what is stored; returns the revision to follow from. What has not changed stays as it is."""
        page = self._storage.list(self._resource.prefix)
        self._broken.clear()
        known = {stored.key: (stored.revision, of) for stored in page.items if (of := self._parsed(stored)) is not None}
        self._known = known
        self.objects = tuple(known[key][1] for key in sorted(known))
        (self._in_force.add if known else self._in_force.discard)(self._resource.plural)
        return page.revision

    def _parsed(self, stored: Stored) -> T | None:
        """One object that cannot be read must not put the others out of force."""
        before = self._known.get(stored.key)
        if before is not None and before[0] == stored.revision:
            return before[1]
        try:
            return self._parse(decode(self._resource, stored))
        except Exception as error:
            _LOG.exception("%s is not in force", stored.key)
            self._broken[stored.key.rpartition("/")[2]] = f"{type(error).__name__}: {error}"
            return None

    def check(self) -> str:
        """Which objects are not in force since they cannot be read; empty when all are."""
        return "; ".join(f"{name}: {why}" for name, why in self._broken.items())

    async def watch(self) -> AsyncIterator[None]:
        """Follow them until the store closes.

        The store wakes watchers before it returns to the writer, so a change is in force when its author gets the
        response.
        """
        with closing(self._storage.watch(self._resource.prefix, self.load())) as cursor:
            yield
            while await cursor.next() is not None:
                self.load()
                yield


def webhooks_of(configuration: Document) -> Sequence[Webhook]:
    """In the order of their list."""
    seen: Counter[str] = Counter()
    found = []
    for webhook in configuration.get("webhooks") or ():
        name = webhook["name"]
        found.append(Webhook.parse(webhook, f"{configuration['metadata']['name']}/{name}/{seen[name]}"))
        seen[name] += 1
    return found
