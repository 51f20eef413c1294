"""What every verb works with: the store, the served kinds, time, randomness and the admission chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from random import Random

from koordinator.api.document import Document
from koordinator.base.clock import Clock
from koordinator.cluster.registry import Registry
from koordinator.cluster.resource import RequestContext
from koordinator.cluster.storage.interface import Storage
from koordinator.cluster.verbs.admission import Admission, NoQuotas, NoWebhooks, Quotas, Webhooks
from koordinator.cluster.verbs.encoding import decode
from koordinator.cluster.verbs.identity import new_uid
from koordinator.cluster.verbs.selection import SelectorFacts

_NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Without vowels and look-alikes, as the real server's generated names."""


@dataclass(frozen=True, slots=True)
class Environment:
    """One per server."""

    storage: Storage
    registry: Registry
    clock: Clock
    random: Random
    admission: Sequence[Admission] = ()
    webhooks: Webhooks = field(default_factory=NoWebhooks)
    facts: SelectorFacts = field(default_factory=SelectorFacts)
    quotas: Quotas = field(default_factory=NoQuotas)
    warns_of_missing_controllers: bool = True

    def context(self, warnings: list[str]) -> RequestContext:
        """``warnings`` collects what the answer is to warn of."""
        return RequestContext(self.clock.now(), self.lookup, self.list_objects, warnings=warnings)

    def lookup(self, group: str, plural: str, namespace: str | None, name: str) -> Document | None:
        resource = self.registry.stored(group, plural)
        if resource is None:
            return None
        stored = self.storage.get(resource.storage_key(namespace, name))
        return None if stored is None else decode(resource, stored)

    def list_objects(self, group: str, plural: str) -> Sequence[Document]:
        resource = self.registry.stored(group, plural)
        if resource is None:
            return []
        return [decode(resource, stored) for stored in self.storage.list(resource.storage_prefix()).items]

    def new_uid(self) -> str:
        return new_uid(self.random)

    def name_suffix(self) -> str:
        return "".join(self.random.choices(_NAME_ALPHABET, k=5))


def timestamp(moment: datetime) -> str:
    """metav1.Time of a moment in UTC: whole seconds."""
    return moment.isoformat()[:19] + "Z"
