"""A server whose stored webhooks cannot be reached: it starts, and goes on to ask them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from koordinator.cluster.server import ServerOptions
from tests.cluster.admission_webhooks.webhook_cluster import rule
from tests.cluster.embedded import config_map, embedded_api

_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


def test_stored_webhooks_are_queried_after_a_restart_but_do_not_keep_the_server_from_it(tmp_path: Path) -> None:
    webhook = {
        "name": "all.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [rule("*/*", "*", groups="*", versions="*")],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }

    async def scenario() -> int:
        async with embedded_api(ServerOptions(data=tmp_path)) as client:
            await client.post(_CONFIGURATIONS, {"metadata": {"name": "all"}, "webhooks": [webhook]})
        async with embedded_api(ServerOptions(data=tmp_path)) as client:
            response = await client.request("POST", "/api/v1/namespaces/default/configmaps", config_map("a"))
            assert (await client.request("DELETE", f"{_CONFIGURATIONS}/all")).status == 200
            await client.post("/api/v1/namespaces/default/configmaps", config_map("a"))
            return response.status

    assert asyncio.run(scenario()) == 500
