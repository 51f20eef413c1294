"""What ``/elasticQuota`` shows."""

from __future__ import annotations

import asyncio
from pathlib import Path

from koordinator.api.elastic_quota import ROOT_QUOTA
from koordinator.base.clock import SystemClock
from koordinator.base.metrics import Metrics
from koordinator.base.served_connections import ProgramConnections
from koordinator.kube.serving_certificate import ServingCertificate
from koordinator.manager.webhook.certificate_files import write_files
from koordinator.manager.webhook.metrics import WebhookMetrics
from koordinator.manager.webhook.quota_accounts import PATH, quota_page
from koordinator.manager.webhook.server import WebhookServer
from tests.manager.webhook.elastic_quota.quota_bench import QuotaBench
from tests.manager.webhook.making import NOW, certificates
from tests.manager.webhook.serving import HOST, requesting
from tests.model.quota_tree.quota_objects import quota_document

TOP = quota_document("top", is_parent=True, max={"memory": "2Gi", "cpu": 4}, min={"cpu": "1500m"})
SUB = quota_document("sub", parent="top", labels={"allow-lent-resource": "false"})
SHOWN = {
    "quotaInfoMap": {
        "sub": {
            "name": "sub",
            "parentName": "top",
            "isParent": False,
            "allowLentResource": False,
            "max": {},
            "min": {},
        },
        "top": {
            "name": "top",
            "parentName": ROOT_QUOTA,
            "isParent": True,
            "allowLentResource": True,
            "max": {"cpu": "4", "memory": "2Gi"},
            "min": {"cpu": "1500m"},
        },
    },
    "quotaHierarchyInfo": {ROOT_QUOTA: ["top"], "sub": [], "top": ["sub"]},
}


def test_it_shows_quotas_under_the_names_of_the_original(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = QuotaBench()
        bench.observe(TOP, SUB)
        write_files(tmp_path, certificates(HOST), NOW)
        metrics, clock = Metrics(), SystemClock()
        server = WebhookServer(
            (),
            ServingCertificate.in_folder(tmp_path),
            WebhookMetrics(metrics),
            clock=clock,
            port=0,
            host=HOST,
            connections=ProgramConnections(metrics, clock),
        )
        server.add_route(PATH, quota_page(bench.quotas))
        await server.start()
        try:
            async with requesting(server, certificates(HOST)) as session, session.get("/elasticQuota") as response:
                assert response.content_type == "application/json"
                assert await response.json() == SHOWN
        finally:
            await server.stop()

    asyncio.run(scenario())
