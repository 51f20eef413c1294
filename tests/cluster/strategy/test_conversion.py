"""Definitions whose versions a webhook converts: nobody would call it, so that they are refused."""

from __future__ import annotations

import asyncio

import pytest

from koordinator.api.document import Document, copied
from koordinator.cluster.errors import ApiError
from koordinator.cluster.verbs.target import encode
from koordinator.cluster.verbs.update import update
from tests.cluster.embedded import Verbs

GROUP, PLURAL = "apiextensions.k8s.io", "customresourcedefinitions"
WEBHOOK: Document = {
    "strategy": "Webhook",
    "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:9443/convert"}},
}


def _definition(conversion: Document) -> Document:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    names = {"plural": "things", "kind": "Thing"}
    spec = {"group": "example.com", "scope": "Cluster", "names": names, "versions": [version], "conversion": conversion}
    return {"metadata": {"name": "things.example.com"}, "spec": spec}


def test_a_conversion_webhook_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(ApiError) as refused:
        asyncio.run(Verbs().create(PLURAL, _definition(WEBHOOK), group=GROUP))
    assert (refused.value.code, refused.value.reason) == (422, "Invalid")
    assert refused.value.details["causes"] == [
        {
            "reason": "FieldValueNotSupported",
            "message": 'Unsupported value: "Webhook": supported values: "None"',
            "field": "spec.conversion.strategy",
        }
    ]


def test_a_definition_cannot_be_changed_to_one() -> None:
    async def main() -> None:
        verbs = Verbs()
        created = await verbs.create(PLURAL, _definition({"strategy": "None"}), group=GROUP)
        created["spec"]["conversion"] = WEBHOOK
        await update(verbs.environment, verbs.target(PLURAL, "things.example.com", group=GROUP), created)

    with pytest.raises(ApiError, match=r"spec\.conversion\.strategy: Unsupported value"):
        asyncio.run(main())


def test_one_that_was_stored_before_can_still_be_changed_otherwise() -> None:
    async def main() -> Document | None:
        verbs = Verbs()
        target = verbs.target(PLURAL, "things.example.com", group=GROUP)
        created = await verbs.create(PLURAL, _definition({"strategy": "None"}), group=GROUP)
        created["spec"]["conversion"] = WEBHOOK
        stored = verbs.environment.storage.get(target.key)
        assert stored is not None
        await verbs.environment.storage.update(target.key, encode(target.resource, copied(created)), stored.revision)
        found = verbs.get(PLURAL, "things.example.com", group=GROUP)
        assert found is not None
        found["metadata"]["labels"] = {"changed": "yes"}
        await update(verbs.environment, target, found)
        return verbs.get(PLURAL, "things.example.com", group=GROUP)

    changed = asyncio.run(main())
    assert changed is not None
    assert changed["metadata"]["labels"] == {"changed": "yes"}
