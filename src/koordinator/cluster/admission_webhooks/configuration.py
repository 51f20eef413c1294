"""The webhooks that are configured now, ready to be asked, in the order in which they are called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from koordinator.api.document import Document
from koordinator.cluster.admission_webhooks.label_selection import LabelMatcher, compile_selector
from koordinator.cluster.admission_webhooks.rules import Rule
from koordinator.cluster.registry import Registry
from koordinator.cluster.resource import Resource
from koordinator.cluster.storage.interface import Storage
from koordinator.cluster.strategy.webhook_configuration import ADMISSION_GROUP
from koordinator.cluster.verbs.encoding import decode

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
    """Configuration, name, and a number that tells webhooks of one name apart."""
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
        )


class Configurations:
    """The stored configurations of one kind; empty until ``load``."""

    def __init__(self, storage: Storage, registry: Registry, plural: str) -> None:
        self._storage = storage
        resource = registry.stored(ADMISSION_GROUP, plural)
        assert resource is not None
        self._resource: Resource = resource
        self.webhooks: Sequence[Webhook] = ()
        """By name of the configuration, and in the order of each configuration's list."""

    def load(self) -> int:
        """Take in what is stored; returns the revision to follow from."""
        page = self._storage.list(self._resource.storage_prefix())
        configurations = (decode(self._resource, stored) for stored in page.items)
        self.webhooks = tuple(_webhooks(sorted(configurations, key=_name)))
        return page.revision

    async def run(self, after: int) -> None:
        """Follow the configurations until the store closes.

        The store wakes watchers before it answers the writer, so a configuration is in force when its creator hears
        of it.
        """
        cursor = self._storage.watch(self._resource.storage_prefix(), after)
        while await cursor.next() is not None:
            self.load()


def _name(configuration: Document) -> str:
    name: str = configuration["metadata"]["name"]
    return name


def _webhooks(configurations: Iterable[Document]) -> Iterable[Webhook]:
    for configuration in configurations:
        seen: Counter[str] = Counter()
        for webhook in configuration.get("webhooks") or ():
            name = webhook["name"]
            yield Webhook.parse(webhook, f"{_name(configuration)}/{name}/{seen[name]}")
            seen[name] += 1
