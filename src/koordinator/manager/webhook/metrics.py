"""The metrics of the webhooks, under the names of the original and of controller-runtime."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final

from koordinator.base.clock import Clock
from koordinator.base.instruments import Histogram
from koordinator.base.metrics import Metrics, exponential_buckets

MUTATE: Final = "mutate"
VALIDATE: Final = "validate"
_SUBSYSTEM: Final = "koord_manager_webhook"


class WebhookMetrics:
    """One set for all webhooks of a program."""

    def __init__(self, metrics: Metrics) -> None:
        self.latency = metrics.histogram(
            "controller_runtime_webhook_latency_seconds",
            "Histogram of the latency of processing admission requests",
            ("webhook",),
            buckets=exponential_buckets(0.0001, 2, 16),
        )
        self.requests = metrics.counter(
            "controller_runtime_webhook_requests_total",
            "Total number of admission requests by HTTP status code.",
            ("webhook", "code"),
        )
        self.in_flight = metrics.gauge(
            "controller_runtime_webhook_requests_in_flight",
            "Current number of admission requests being served.",
            ("webhook",),
        )
        self.panics = metrics.counter(
            "controller_runtime_webhook_panics_total",
            "Total number of webhook panics: handlers that failed unexpectedly.",
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
        self.steps = metrics.histogram(
            f"{_SUBSYSTEM}_webhook_duration_milliseconds",
            "webhook_duration_milliseconds",
            ("webhook_type", "object_type", "operation", "plugin_name", "status"),
            buckets=exponential_buckets(0.001, 2, 20),
        )


class StepTimer:
    """Measures the steps of one webhook, which themselves know no clock."""

    def __init__(self, metrics: WebhookMetrics, clock: Clock, webhook_type: str, object_type: str) -> None:
        """``webhook_type`` is MUTATE or VALIDATE, ``object_type`` configmap, elasticquota, node, pod or reservation."""
        self._steps = metrics.steps
        self._clock = clock
        self._type = webhook_type, object_type

    def step(self, operation: str, plugin: str) -> AbstractContextManager[None]:
        """The context of one step; a step that raises counts as rejected."""
        return _Step(self._steps, self._clock, (*self._type, operation, plugin))


class _Step(AbstractContextManager[None]):
    """A class, since a generator-based context manager takes several times longer, and a pod has four steps."""

    __slots__ = ("_clock", "_labels", "_started", "_steps")

    def __init__(self, steps: Histogram, clock: Clock, labels: tuple[str, ...]) -> None:
        self._steps = steps
        self._clock = clock
        self._labels = labels
        self._started = 0.0

    def __enter__(self) -> None:
        self._started = self._clock.monotonic()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        elapsed = (self._clock.monotonic() - self._started) * 1000
        self._steps.labels(*self._labels, "allowed" if kind is None else "rejected").observe(elapsed)
