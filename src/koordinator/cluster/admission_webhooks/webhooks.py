"""The admission webhooks of one server, as its verbs see them."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from koordinator.api.document import Document
from koordinator.base.clock import Clock
from koordinator.cluster.admission_webhooks.caller import Caller
from koordinator.cluster.admission_webhooks.client import WebhookClient
from koordinator.cluster.admission_webhooks.configuration import MUTATING, VALIDATING, Configurations
from koordinator.cluster.admission_webhooks.matching import Candidates
from koordinator.cluster.admission_webhooks.mutating import MutatingWebhooks
from koordinator.cluster.admission_webhooks.services import ServiceResolver
from koordinator.cluster.admission_webhooks.validating import ValidatingWebhooks
from koordinator.cluster.registry import Registry
from koordinator.cluster.storage.interface import Storage
from koordinator.cluster.verbs.admission import Attributes
from koordinator.cluster.verbs.identity import new_uid


class AdmissionWebhooks:
    """``followed`` names what has to be followed; ``close`` ends the connections."""

    def __init__(self, storage: Storage, registry: Registry, clock: Clock, random: Random, user: Document) -> None:
        self._client = WebhookClient(ServiceResolver(storage, registry))
        caller = Caller(self._client, clock, lambda: new_uid(random), user)
        self._configurations = {plural: Configurations(storage, registry, plural) for plural in (MUTATING, VALIDATING)}
        self._to_mutate = Candidates(self._configurations[MUTATING], registry)
        self._to_validate = Candidates(self._configurations[VALIDATING], registry)
        self._mutating = MutatingWebhooks(caller)
        self._validating = ValidatingWebhooks(caller)

    def load(self) -> None:
        """Take in what is stored, before the first request."""
        for configurations in self._configurations.values():
            configurations.load()

    def followed(self) -> Mapping[str, Configurations]:
        """By the plural of their kind; each is followed until the store closes."""
        return self._configurations

    async def close(self) -> None:
        await self._client.close()

    def mutates(self, attributes: Attributes) -> bool:
        return bool(self._to_mutate.of(attributes))

    async def mutate(self, attributes: Attributes) -> None:
        await self._mutating.run(self._to_mutate.of(attributes), attributes)

    async def validate(self, attributes: Attributes) -> None:
        if candidates := self._to_validate.of(attributes):
            await self._validating.run(candidates, attributes)
