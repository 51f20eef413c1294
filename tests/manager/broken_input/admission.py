"""All webhooks, every gate on, over a cluster in memory."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from koordinator.base.metrics import Metrics
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.informer_set import InformerSet
from koordinator.manager import features
from koordinator.manager.audit.admissions import AdmissionSummary
from koordinator.manager.features import make_features
from koordinator.manager.options import Options
from koordinator.manager.webhook.dispatch import Webhook
from koordinator.manager.webhook.elastic_quota.assume_cache import QuotaAssumeCache
from koordinator.manager.webhook.handler_table import HANDLERS, HandlerContext, make_handlers
from koordinator.manager.webhook.listers import watch_quotas
from koordinator.manager.webhook.metrics import WebhookMetrics
from tests.in_memory_api import Document
from tests.manager.broken_input.bench import ManagerBench
from tests.manager.webhook.reviews import answered, review

GATES = (
    *(entry.gate for entry in HANDLERS),
    features.ENABLE_QUOTA_ADMISSION,
    features.ENABLE_QUOTA_ADMISSION_ON_UPDATE,
    features.ENABLE_POD_ENHANCED_VALIDATOR,
    features.MULTI_QUOTA_TREE,
    features.VALIDATE_POD_DEVICE_RESOURCE,
    features.ELASTIC_QUOTA_GUARANTEE_USAGE,
)
GROUPS = {
    "elasticquotas": ("scheduling.sigs.k8s.io", "v1alpha1"),
    "reservations": ("scheduling.koordinator.sh", "v1alpha1"),
}


class Admission:
    """All webhooks, with every gate on, over what a cluster holds."""

    def __init__(self, bench: ManagerBench, options: Options | None = None) -> None:
        gates = make_features()
        gates.set(dict.fromkeys(GATES, True))
        client, clock, random = bench.cluster.client(bench.clock), bench.clock, Random(1)
        self.informers = InformerSet(client, clock=clock, random=random)
        self.metrics = Metrics()
        metrics, quotas = WebhookMetrics(self.metrics), QuotaAssumeCache(clock.monotonic)
        watch_quotas(self.informers, "", quotas)
        context = HandlerContext(
            client,
            self.informers,
            replace(options or Options(), features=gates),
            metrics,
            clock,
            random,
            quotas,
            AdmissionSummary(EventBroadcaster(client, clock=clock, random=random).recorder("test"), clock),
        )
        self.webhooks = {each.path: Webhook(each, metrics, clock) for each in make_handlers(context)}

    async def send(self, resource: str, document: Document, operation: str, **more: Any) -> list[dict[str, Any]]:
        """Every webhook that is meant for the resource."""
        group, version = GROUPS.get(resource, ("", "v1"))
        body = review(
            resource={"group": group, "version": version, "resource": resource},
            operation=operation,
            object=document,
            name=document["metadata"]["name"],
            namespace=document["metadata"].get("namespace", ""),
            **more,
        )
        paths = [path for path in self.webhooks if resource[:-1] in path.replace("-status", "")]
        return [answered(await self.webhooks[path].respond(body)) for path in paths]

    @property
    def panics(self) -> float | None:
        return self.metrics.registry.get_sample_value("controller_runtime_webhook_panics_total")
