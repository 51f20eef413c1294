"""What ``/elasticQuota`` shows."""

from __future__ import annotations

import asyncio
import json

from multidict import CIMultiDict

from koordinator.api.elastic_quota import ROOT_QUOTA
from koordinator.kube.pages import JSON, Request, Response
from koordinator.manager.webhook.quota_accounts import quota_page
from tests.manager.webhook.elastic_quota.quota_bench import QuotaBench
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


def test_it_shows_quotas_under_the_names_of_the_original() -> None:
    bench = QuotaBench()
    bench.observe(TOP, SUB)

    async def scenario() -> Response:
        return await quota_page(bench.quotas)(Request.to("GET", "/elasticQuota", CIMultiDict()))

    response = asyncio.run(scenario())
    assert (response.headers["Content-Type"], json.loads(response.body)) == (JSON, SHOWN)
