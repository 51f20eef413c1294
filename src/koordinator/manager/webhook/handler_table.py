"""All admission handlers: their paths, their feature gates, and how they are made.

A path whose gate is off is neither served nor installed: its entry is left out of the webhook configurations.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from koordinator.base.clock import Clock
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import Client
from koordinator.manager import features
from koordinator.manager.audit.admissions import AdmissionSummary
from koordinator.manager.options import Options
from koordinator.manager.recommender.limit_ranges import LimitRangeLister
from koordinator.manager.webhook.admission import AdmissionHandler, AdmissionRequest
from koordinator.manager.webhook.config_map.validating import ConfigMapValidatingHandler
from koordinator.manager.webhook.elastic_quota.assume_cache import QuotaAssumeCache, QuotaNames
from koordinator.manager.webhook.elastic_quota.changes import QuotaChanges
from koordinator.manager.webhook.elastic_quota.mutating import ElasticQuotaMutatingHandler, RecordedWeights
from koordinator.manager.webhook.elastic_quota.pod_admission import CountingPodHandler, PodAdmissionSettings
from koordinator.manager.webhook.elastic_quota.settings import QuotaSettings
from koordinator.manager.webhook.elastic_quota.validating import ElasticQuotaValidatingHandler, QuotaPodCheck
from koordinator.manager.webhook.listers import (
    ConfiguredRules,
    NodeLister,
    PodLister,
    ProfileLister,
    QuotaPodLister,
    QuotaTreeLister,
    RecommendationLister,
    SLOConfigurationLister,
    forget_weights,
)
from koordinator.manager.webhook.metrics import MUTATE, VALIDATE, StepTimer, WebhookMetrics
from koordinator.manager.webhook.node.status_mutating import NodeStatusMutatingHandler
from koordinator.manager.webhook.node.validating import NodeValidatingHandler
from koordinator.manager.webhook.pod.binding import DENIED, DRY_RUN, BindingAdmissionHandler
from koordinator.manager.webhook.pod.enhanced_rules import EnhancedRule, no_rules
from koordinator.manager.webhook.pod.mutating import PodMutatingHandler, PodMutationSettings
from koordinator.manager.webhook.pod.recommended_requests import RecommendedRequests
from koordinator.manager.webhook.pod.template_validating import PodTemplateValidatingHandler
from koordinator.manager.webhook.pod.validating import PodValidatingHandler, PodValidationSettings
from koordinator.manager.webhook.quota_accounts import QuotaBatches, StoredAccounts
from koordinator.manager.webhook.reservation.mutating import ReservationMutatingHandler

logger = logging.getLogger(__name__)

_BINDING_LOG: Final = {
    DENIED: "denied, since --binding-admission-user-name does not name the user",
    DRY_RUN: "allowed by --binding-admission-dry-run, and would be denied without it, since "
    "--binding-admission-user-name does not name the user",
}


@dataclass(frozen=True, slots=True)
class HandlerContext:
    """The dependencies of handlers."""

    client: Client
    """The client of this replica, whether it is the leader or not."""
    informers: InformerSet
    options: Options
    metrics: WebhookMetrics
    clock: Clock
    random: Random
    quotas: QuotaAssumeCache
    """One for all handlers: what one of them admits, the others see."""
    admissions: AdmissionSummary

    def draw(self) -> int:
        """A random whole number from 0 to 99."""
        return self.random.randrange(100)

    def timer(self, webhook_type: str, object_type: str) -> StepTimer:
        return StepTimer(self.metrics, self.clock, webhook_type, object_type)


@dataclass(frozen=True, slots=True)
class HandlerEntry:
    """The handler exists only if the feature ``gate`` is enabled."""

    gate: str
    make: Callable[[HandlerContext], AdmissionHandler]


def _pod_mutating(context: HandlerContext) -> AdmissionHandler:
    settings, recommended = PodMutationSettings.from_gates(context.options.features), None
    if context.options.features.enabled(features.RECOMMENDER):
        known = RecommendationLister(context.informers, context.options.namespace)
        recommended = RecommendedRequests(
            known,
            context.clock.now,
            bounds_of=LimitRangeLister(context.informers, context.options.namespace).bounds_of,
            translate_free=settings.translate_free,
        )
    return PodMutatingHandler(
        ProfileLister(context.informers),
        QuotaTreeLister(context.informers, context.options.namespace, context.quotas),
        context.draw,
        settings,
        context.timer(MUTATE, "pod"),
        recommended=recommended,
        on_applied=context.admissions.admitted,
    )


def _pod_validating(context: HandlerContext) -> AdmissionHandler:
    settings = PodValidationSettings.from_gates(context.options.features)
    rules: Callable[[], tuple[EnhancedRule, ...]] = no_rules
    if settings.enhanced_rules:
        rules = ConfiguredRules(context.informers, context.options.pod_enhanced_validator, context.clock)
    quota_check = QuotaPodCheck(context.quotas, QuotaSettings.from_gates(context.options.features))
    names = QuotaNames(context.quotas)
    handler = PodValidatingHandler(rules, (quota_check,), settings, context.timer(VALIDATE, "pod"), names)
    return _counting(context, handler) if context.options.features.enabled(features.ENABLE_QUOTA_ADMISSION) else handler


def _counting(context: HandlerContext, inner: AdmissionHandler) -> AdmissionHandler:
    options = context.options
    accounts = StoredAccounts(context.client, context.informers, options.namespace)
    return CountingPodHandler(
        inner,
        context.quotas,
        accounts,
        QuotaBatches(accounts, options.quota_update, context.clock, context.random),
        PodAdmissionSettings.from_gates(options.features),
        context.timer(VALIDATE, "pod"),
    )


def _pod_binding(context: HandlerContext) -> AdmissionHandler:
    decisions = context.metrics.binding_decisions

    def record(decision: str, request: AdmissionRequest) -> None:
        decisions.labels(decision).inc()
        if decision in _BINDING_LOG:
            pod = f"{request.namespace}/{request.name}"
            logger.warning("binding of pod %s by %s: %s", pod, request.user_name, _BINDING_LOG[decision])

    return BindingAdmissionHandler(
        context.options.binding_admission,
        PodLister(context.informers, context.options).metadata,
        record,
    )


def _pod_template_validating(context: HandlerContext) -> AdmissionHandler:
    return PodTemplateValidatingHandler(QuotaNames(context.quotas), context.timer(VALIDATE, "pod-template"))


def _reservation_mutating(context: HandlerContext) -> AdmissionHandler:
    return ReservationMutatingHandler(
        ProfileLister(context.informers), context.draw, context.timer(MUTATE, "reservation")
    )


def _node_status_mutating(context: HandlerContext) -> AdmissionHandler:
    return NodeStatusMutatingHandler(context.timer(MUTATE, "node"))


def _node_validating(context: HandlerContext) -> AdmissionHandler:
    configuration = SLOConfigurationLister(context.informers, context.options)
    return NodeValidatingHandler(configuration.data, context.timer(VALIDATE, "node"))


def _config_map_validating(context: HandlerContext) -> AdmissionHandler:
    options = context.options
    return ConfigMapValidatingHandler(
        options.config_namespace,
        options.slo_config_name,
        NodeLister(context.informers).metadata,
        names_required=options.node_strategy_name_needed,
        is_strict=options.features.enabled(features.STRICT_CONFIG_MAP_VALIDATION),
        steps=context.timer(VALIDATE, "configmap"),
    )


def _quota_mutating(context: HandlerContext) -> AdmissionHandler:
    weights = RecordedWeights(context.metrics.quota_shared_weight)
    forget_weights(context.informers, context.options.namespace, weights)
    return ElasticQuotaMutatingHandler(context.quotas, weights.record, context.timer(MUTATE, "elasticquota"))


def _quota_validating(context: HandlerContext) -> AdmissionHandler:
    pods = QuotaPodLister(context.informers, context.options)
    changes = QuotaChanges(context.quotas, pods, QuotaSettings.from_gates(context.options.features))
    return ElasticQuotaValidatingHandler(context.quotas, changes, context.timer(VALIDATE, "elasticquota"))


HANDLERS: Final[Sequence[HandlerEntry]] = (
    HandlerEntry(features.POD_MUTATING_WEBHOOK, _pod_mutating),
    HandlerEntry(features.POD_VALIDATING_WEBHOOK, _pod_validating),
    HandlerEntry(features.BINDING_ADMISSION_WEBHOOK, _pod_binding),
    HandlerEntry(features.RESERVATION_MUTATING_WEBHOOK, _reservation_mutating),
    HandlerEntry(features.ELASTIC_MUTATING_WEBHOOK, _quota_mutating),
    HandlerEntry(features.ELASTIC_VALIDATING_WEBHOOK, _quota_validating),
    HandlerEntry(features.NODE_MUTATING_WEBHOOK, _node_status_mutating),
    HandlerEntry(features.NODE_VALIDATING_WEBHOOK, _node_validating),
    HandlerEntry(features.CONFIG_MAP_VALIDATING_WEBHOOK, _config_map_validating),
    HandlerEntry(features.POD_TEMPLATE_VALIDATING_WEBHOOK, _pod_template_validating),
)


def make_handlers(context: HandlerContext, entries: Sequence[HandlerEntry] = HANDLERS) -> list[AdmissionHandler]:
    """The handlers whose gates are enabled; they request their informers here."""
    return [entry.make(context) for entry in entries if context.options.features.enabled(entry.gate)]
