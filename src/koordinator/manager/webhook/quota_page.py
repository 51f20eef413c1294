"""``/elasticQuota`` on the port of the webhooks: the quotas as admission sees them, for whoever was refused."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from koordinator.api.codec import to_document
from koordinator.kube.serving import json_response
from koordinator.manager.webhook.elastic_quota.expected_quotas import ExpectedQuotas
from koordinator.manager.webhook.server import RequestHandler
from koordinator.model.quota_tree.quota import Quota
from koordinator.model.quota_tree.tree import QuotaTree

PATH: Final = "/elasticQuota"


def quota_page(expected: ExpectedQuotas) -> RequestHandler:
    async def answer(request: web.Request) -> web.StreamResponse:
        return json_response(quota_summary(expected.tree()))

    return answer


def quota_summary(tree: QuotaTree) -> dict[str, Any]:
    """Under the names of the original."""
    return {
        "quotaInfoMap": {quota.name: _summary(quota) for quota in tree},
        "quotaHierarchyInfo": tree.hierarchy(),
    }


def _summary(quota: Quota) -> dict[str, Any]:
    return {
        "name": quota.name,
        "parentName": quota.parent,
        "isParent": quota.is_parent,
        "allowLentResource": quota.allows_lending,
        "max": to_document(quota.max),
        "min": to_document(quota.min),
    }
