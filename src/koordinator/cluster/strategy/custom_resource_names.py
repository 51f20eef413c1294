"""What a definition may call its kind, and how it may say that versions are converted; in the real server's words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from koordinator.api.document import Document
from koordinator.api.names import dns_1035_label, dns_subdomain
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import forbidden, invalid, not_supported, required
from koordinator.cluster.strategy.webhook_client import validate_client

_SCOPES: Final = ("Cluster", "Namespaced")
_STRATEGIES: Final = ("None", "Webhook")
_SUPPORTED: Final = ("None",)
"""What this server does: no conversion webhook is called."""
_REVIEW_VERSIONS: Final = ("v1", "v1beta1")
_REQUIRED: Final = ("plural", "singular", "kind", "listKind")
_MIXED: Final = "may have mixed case, but should otherwise match: "


def check_group_and_scope(spec: Document) -> list[Cause]:
    group = spec.get("group") or ""
    if not group:
        causes = [required("spec.group")]
    elif complaints := dns_subdomain(group):
        causes = [invalid("spec.group", group, ",".join(complaints))]
    elif "." not in group:
        causes = [invalid("spec.group", group, "should be a domain with at least one dot")]
    else:
        causes = []
    return causes + _one_of("spec.scope", spec.get("scope") or "", _SCOPES)


def check_names(names: Document) -> list[Cause]:
    causes = [required(f"spec.names.{name}") for name in _REQUIRED if not names.get(name)]
    for name in ("plural", "singular"):
        causes += _label(f"spec.names.{name}", names.get(name) or "")
    for name in ("kind", "listKind"):
        if complaints := dns_1035_label(names[name].lower()) if names.get(name) else []:
            causes.append(invalid(f"spec.names.{name}", names[name], _MIXED + ",".join(complaints)))
    for name in ("shortNames", "categories"):
        for index, value in enumerate(names.get(name) or ()):
            causes += _label(f"spec.names.{name}[{index}]", value)
    if names.get("kind") and names["kind"] == names.get("listKind"):
        causes.append(invalid("spec.names.listKind", names["listKind"], "kind and listKind may not be the same"))
    return causes


def check_conversion(conversion: Document, before: Document) -> list[Cause]:
    """``before`` is what an update replaces; what it has that this server does not do stays."""
    field = "spec.conversion"
    causes = _one_of(f"{field}.strategy", conversion.get("strategy") or "", _STRATEGIES)
    webhook = conversion.get("webhook") or {}
    client, versions = webhook.get("clientConfig"), webhook.get("conversionReviewVersions") or []
    # The real server checks its internal form, in which these two lie side by side.
    client_field, versions_field = f"{field}.webhookClientConfig", f"{field}.conversionReviewVersions"
    if conversion.get("strategy") != "Webhook":
        why = "should not be set when strategy is not set to Webhook"
        causes += [forbidden(client_field, why)] if client is not None else []
        return causes + ([forbidden(versions_field, why)] if versions else [])
    if client is None:
        causes.append(required(client_field, "required when strategy is set to Webhook"))
    else:
        causes += validate_client(client, client_field)
    causes += _check_review_versions(versions, versions_field)
    if not causes and before.get("strategy") != "Webhook":
        # A webhook that nobody calls would let every version show what another one has stored.
        causes.append(not_supported(f"{field}.strategy", "Webhook", _SUPPORTED))
    return causes


def _check_review_versions(versions: list[str], field: str) -> list[Cause]:
    if not versions:
        return [required(field)]
    causes: list[Cause] = []
    for index, version in enumerate(versions):
        if version in versions[:index]:
            causes.append(invalid(f"{field}[{index}]", version, "duplicate version"))
        else:
            causes += [invalid(f"{field}[{index}]", version, text) for text in dns_1035_label(version)]
    if not set(versions) & set(_REVIEW_VERSIONS):
        causes.append(invalid(field, versions, f"must include at least one of {', '.join(_REVIEW_VERSIONS)}"))
    return causes


def _label(field: str, value: str) -> list[Cause]:
    complaints = dns_1035_label(value) if value else []
    return [invalid(field, value, ",".join(complaints))] if complaints else []


def _one_of(field: str, value: str, accepted: Sequence[str]) -> list[Cause]:
    if not value:
        return [required(field)]
    return [] if value in accepted else [not_supported(field, value, accepted)]
