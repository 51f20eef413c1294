"""The metric of weights."""

from __future__ import annotations

from koordinator.api.quantity import Quantity
from koordinator.base.metrics import Metrics
from koordinator.manager.webhook.elastic_quota.mutating import RecordedWeights
from koordinator.manager.webhook.metrics import WebhookMetrics


def shown(metrics: Metrics) -> list[str]:
    text = metrics.exposition()[0].decode()
    return [line for line in text.splitlines() if line.startswith("koord_manager_webhook_quota_shared_weight{")]


def test_weights_are_shown_until_their_quota_is_gone() -> None:
    metrics = Metrics()
    weights = RecordedWeights(WebhookMetrics(metrics).quota_shared_weight)
    weights.record("a", {"cpu": Quantity.parse("1500m"), "memory": Quantity.parse("1Ki")})
    weights.record("a", {"cpu": Quantity.parse("1500m")})
    assert shown(metrics) == [
        'koord_manager_webhook_quota_shared_weight{elasticquota_name="a",resource_name="cpu"} 2.0'
    ]
    weights.forget("a")
    weights.forget("unknown")
    assert shown(metrics) == []
