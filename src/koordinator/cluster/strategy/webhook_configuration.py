"""Mutating and validating webhook configurations: defaults, table, and what they must say.

The rules and their wording are those of Kubernetes v1.35. Match conditions are refused: they are CEL expressions, and
a condition that nobody evaluates would let requests through, or call webhooks, against what was written.
"""

from __future__ import annotations

from typing import Final

from koordinator.api.document import Document
from koordinator.api.names import dns_1035_label, dns_subdomain
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import duplicate, forbidden, invalid, not_supported, required
from koordinator.cluster.strategy.defaults import defaults_of
from koordinator.cluster.strategy.label_selector import validate_label_selector
from koordinator.cluster.strategy.object_strategy import ObjectStrategy
from koordinator.cluster.strategy.table import AGE, NAME, computed, table
from koordinator.cluster.strategy.webhook_client import validate_client
from koordinator.cluster.strategy.webhook_rules import validate_rules

ADMISSION_GROUP: Final = "admissionregistration.k8s.io"
REVIEW_VERSIONS: Final = ("v1", "v1beta1")
_API_VERSION: Final = f"{ADMISSION_GROUP}/v1"
_TYPES: Final = "io.k8s.api.admissionregistration.v1."
_WITHOUT_SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")


@defaults_of(f"{_TYPES}MutatingWebhook")
def _mutating_webhook(webhook: Document) -> None:
    _webhook(webhook)
    webhook.setdefault("reinvocationPolicy", "Never")


@defaults_of(f"{_TYPES}ValidatingWebhook")
def _webhook(webhook: Document) -> None:
    webhook.setdefault("failurePolicy", "Fail")
    webhook.setdefault("matchPolicy", "Equivalent")
    webhook.setdefault("namespaceSelector", {})
    webhook.setdefault("objectSelector", {})
    webhook.setdefault("timeoutSeconds", 10)
    for rule in webhook.get("rules") or []:
        rule.setdefault("scope", "*")
    if service := webhook["clientConfig"].get("service"):
        service.setdefault("port", 443)


class WebhookConfigurationStrategy(ObjectStrategy):
    """Both kinds, which differ in ``reinvocationPolicy`` alone."""

    def __init__(self, kind: str) -> None:
        columns = table(NAME, computed("Webhooks", lambda obj: len(obj.get("webhooks") or []), "integer"), AGE)
        super().__init__(_API_VERSION, kind, namespaced=False, table=columns, generation=True)

    def check(self, obj: Document, old: Document | None) -> list[Cause]:
        webhooks, before = obj.get("webhooks") or [], None if old is None else old.get("webhooks") or []
        causes: list[Cause] = []
        names: set[str] = set()
        for index, webhook in enumerate(webhooks):
            field = f"webhooks[{index}]"
            causes += _check_webhook(webhook, field)
            name = webhook.get("name") or ""
            if name and name in names and _were_unique(before):
                causes.append(duplicate(f"{field}.name", name))
            names.add(name)
        return causes


def _were_unique(before: list[Document] | None) -> bool:
    """What was stored with two webhooks of one name may go on so."""
    names = [webhook.get("name") for webhook in before or []]
    return len(names) == len(set(names))


def _check_webhook(webhook: Document, field: str) -> list[Cause]:
    causes = _check_name(webhook.get("name") or "", f"{field}.name")
    causes += validate_rules(webhook.get("rules") or [], f"{field}.rules")
    causes += _check_choice(webhook, field, "failurePolicy", ("Fail", "Ignore"))
    causes += _check_choice(webhook, field, "matchPolicy", ("Equivalent", "Exact"))
    causes += _check_side_effects(webhook.get("sideEffects"), f"{field}.sideEffects")
    timeout = webhook.get("timeoutSeconds")
    if timeout is not None and not 1 <= timeout <= 30:
        detail = "the timeout value must be between 1 and 30 seconds"
        causes.append(invalid(f"{field}.timeoutSeconds", timeout, detail))
    for name in ("namespaceSelector", "objectSelector"):
        causes += validate_label_selector(webhook.get(name) or {}, f"{field}.{name}")
    causes += _check_choice(webhook, field, "reinvocationPolicy", ("IfNeeded", "Never"))
    causes += validate_client(webhook["clientConfig"], f"{field}.clientConfig")
    if webhook.get("matchConditions"):
        detail = "match conditions are CEL expressions, which the embedded API does not evaluate"
        causes.append(forbidden(f"{field}.matchConditions", detail))
    return causes + _check_versions(webhook.get("admissionReviewVersions") or [], f"{field}.admissionReviewVersions")


def _check_name(name: str, field: str) -> list[Cause]:
    if not name:
        return [required(field)]
    if complaints := dns_subdomain(name):
        return [invalid(field, name, ",".join(complaints))]
    if name.count(".") < 2:
        return [invalid(field, name, "should be a domain with at least three segments separated by dots")]
    return []


def _check_choice(webhook: Document, field: str, name: str, allowed: tuple[str, ...]) -> list[Cause]:
    value = webhook.get(name)
    return [] if value is None or value in allowed else [not_supported(f"{field}.{name}", value, allowed)]


def _check_side_effects(value: str | None, field: str) -> list[Cause]:
    if value is None:
        return [required(field, f"must specify one of {', '.join(_WITHOUT_SIDE_EFFECTS)}")]
    return [] if value in _WITHOUT_SIDE_EFFECTS else [not_supported(field, value, _WITHOUT_SIDE_EFFECTS)]


def _check_versions(versions: list[str], field: str) -> list[Cause]:
    listed = ", ".join(REVIEW_VERSIONS)
    if not versions:
        return [required(field, f"must specify one of {listed}")]
    causes = []
    for index, version in enumerate(versions):
        if version in versions[:index]:
            causes.append(invalid(f"{field}[{index}]", version, "duplicate version"))
        else:
            causes += [invalid(f"{field}[{index}]", version, complaint) for complaint in dns_1035_label(version)]
    if not set(versions) & set(REVIEW_VERSIONS):
        causes.append(invalid(field, versions, f"must include at least one of {listed}"))
    return causes
