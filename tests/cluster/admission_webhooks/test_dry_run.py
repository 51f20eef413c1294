"""A webhook with side effects, which only an older server can have stored, does not take part in dry runs."""

from __future__ import annotations

import asyncio

import pytest

from koordinator.cluster.admission_webhooks.webhooks import AdmissionWebhooks
from koordinator.cluster.errors import ApiError
from koordinator.cluster.verbs.environment import Attributes
from koordinator.cluster.verbs.options import WriteOptions
from koordinator.cluster.verbs.target import encode
from tests.cluster.admission_webhooks.webhook_cluster import rule
from tests.cluster.embedded import Verbs, config_map

_GROUP = "admissionregistration.k8s.io"


@pytest.mark.parametrize("kind", ["mutating", "validating"])
def test_a_dry_run_is_refused_without_a_call(kind: str) -> None:
    webhook = {
        "name": "a.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [rule("configmaps")],
        "sideEffects": "Some",
        "failurePolicy": "Ignore",
        "admissionReviewVersions": ["v1"],
    }
    verbs = Verbs()
    target = verbs.target(f"{kind}webhookconfigurations", "c", group=_GROUP)
    configuration = {"metadata": {"name": "c"}, "webhooks": [webhook]}

    async def scenario() -> None:
        environment = verbs.environment
        await environment.storage.create(target.key, encode(target.resource, configuration))
        webhooks = AdmissionWebhooks(
            environment.storage, environment.registry, environment.admission, verbs.clock, environment.random
        )
        webhooks.load()
        options = WriteOptions(dry_run=True)
        about = verbs.target("configmaps", "a")
        attributes = Attributes("CREATE", about, config_map("a"), None, environment.context([]), options)
        await (webhooks.mutate(attributes) if kind == "mutating" else webhooks.validate(attributes))

    with pytest.raises(ApiError) as caught:
        asyncio.run(scenario())
    expected = (400, 'admission webhook "a.example.com" does not support dry run')
    assert (caught.value.code, caught.value.message) == expected
