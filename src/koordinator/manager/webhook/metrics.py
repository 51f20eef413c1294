"""What the webhooks count and measure, under the names of the original and of the library that serves it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from koordinator.base.clock import Clock
from koordinator.base.metrics import Metrics, exponential_buckets

MUTATE: Final = "mutate"
VALIDATE: Final = "validate"
_SUBSYSTEM: Final = "koord_manager_webhook"


class WebhookMetrics:
    """One set for all webhooks of a program."""

    def __init__(self, metrics: Metrics) -> None:
        self.latency = metrics.distribution(
            "controller_runtime_webhook_latency_seconds",
            "Histogram of the latency of processing admission requests",
            ("webhook",),
            buckets=exponential_buckets(0.0001, 2, 16),
        )
        self.requests = metrics.tally(
            "controller_runtime_webhook_requests_total",
            "Total number of admission requests by HTTP status code.",
            ("webhook", "code"),
        )
        self.in_flight = metrics.gauge(
            "controller_runtime_webhook_requests_in_flight",
            "Current number of admission requests being served.",
            ("webhook",),
        )
        self.panics = metrics.tally(
            "controller_runtime_webhook_panics_total",
            "Total number of webhook panics: handlers that failed in a way that nobody foresaw.",
        )
        self.binding_decisions = metrics.counter(
            f"{_SUBSYSTEM}_binding_admission_decisions_total",
            "Total number of binding admission decisions.",
            ("decision",),
        )
        self.quota_shared_weight = metrics.gauge(
            f"{_SUBSYSTEM}_quota_shared_weight",
            "The shared weight of the quota",
            ("elasticquota_name", "resource_name"),
        )
        self.steps = metrics.distribution(
            f"{_SUBSYSTEM}_webhook_duration_milliseconds",
            "webhook_duration_milliseconds",
            ("webhook_type", "object_type", "operation", "plugin_name", "status"),
            buckets=exponential_buckets(0.001, 2, 20),
        )


@dataclass(frozen=True, slots=True)
class StepTimer:
    """Measures the steps of one webhook, which themselves know no clock."""

    metrics: WebhookMetrics
    clock: Clock
    webhook_type: str
    """MUTATE or VALIDATE."""
    object_type: str
    """configmap, elasticquota, node, pod or reservation."""

    @contextmanager
    def step(self, operation: str, plugin: str) -> Iterator[None]:
        """Around one step; one that raises counts as rejected."""
        started, status = self.clock.monotonic(), "rejected"
        try:
            yield
            status = "allowed"
        finally:
            elapsed = (self.clock.monotonic() - started) * 1000
            self.metrics.steps.labels(self.webhook_type, self.object_type, operation, plugin, status).observe(elapsed)
