"""Mutating and validating webhook configurations: defaults, table, and what they must say.

The rules and their wording are those of Kubernetes v1.35. Match conditions are refused: they are CEL expressions, and
a condition that is not evaluated would let requests through, or call webhooks, against what was written.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from koordinator.api.document import Document
from koordinator.api.names import dns_1035_label, dns_subdomain
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import duplicate, invalid, not_supported, required
from koordinator.cluster.strategy.expression_rules import check_match_conditions
from koordinator.cluster.strategy.metadata import validate_label_selector
from koordinator.cluster.strategy.object_strategy import ObjectStrategy, defaults_of
from koordinator.cluster.strategy.table import AGE, NAME, computed, table

# Where a webhook is reached, as its configuration says: exactly one of a URL and a Service.


_FORM = "; desired format: https://host[/path]"


def validate_client(client: Document, field: str) -> list[Cause]:
    """What is wrong with a ``clientConfig``."""
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        return [required(field, "exactly one of url or service is required")]
    if url is not None:
        return _validate_url(url, f"{field}.url")
    return _validate_service(service or {}, f"{field}.service")


def _validate_url(url: str, field: str) -> list[Cause]:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - only read for its error
    except ValueError as error:
        return [required(field, f'url must be a valid URL: parse "{url}": {error}{_FORM}')]
    user, at, host = parts.netloc.rpartition("@")
    causes = []
    if parts.scheme != "https":
        causes.append(invalid(field, parts.scheme, f"'https' is the only allowed URL scheme{_FORM}"))
    if not host:
        causes.append(invalid(field, "", f"host must be specified{_FORM}"))
    if at:
        causes.append(invalid(field, user, "user information is not permitted in the URL"))
    if parts.fragment:
        causes.append(invalid(field, parts.fragment, "fragments are not permitted in the URL"))
    if parts.query:
        causes.append(invalid(field, parts.query, "query parameters are not permitted in the URL"))
    return causes


def _validate_service(service: Document, field: str) -> list[Cause]:
    # The real server takes these two for each other, and clients that read the field have to get the same.
    swapped = (("namespace", "name"), ("name", "namespace"))
    causes = [required(f"{field}.{named}") for empty, named in swapped if not service.get(empty)]
    port = service.get("port")
    if port is not None and not 1 <= port <= 65535:
        detail = "port is not valid: must be between 1 and 65535, inclusive"
        causes.append(invalid(f"{field}.port", port, detail))
    path = service.get("path")
    return causes + (_validate_path(path, f"{field}.path") if path not in (None, "", "/") else [])


def _validate_path(path: str, field: str) -> list[Cause]:
    if path == "//":
        return [invalid(field, path, "segment[0] may not be empty")]
    causes = [] if path.startswith("/") else [invalid(field, path, "must start with a '/'")]
    for index, segment in enumerate(path[1:].removesuffix("/").split("/")):
        errors = dns_subdomain(segment) if segment else []
        causes += [invalid(field, path, f"segment[{index}]: {detail}") for detail in errors]
        if not segment:
            causes.append(invalid(field, path, f"segment[{index}] may not be empty"))
    return causes


# The rules of a webhook: for which operations on which resources it is called.


_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES: Final = ("*", "Cluster", "Namespaced")


def validate_rules(rules: list[Document], field: str) -> list[Cause]:
    """What is wrong with the ``rules`` of one webhook."""
    return [cause for index, rule in enumerate(rules) for cause in validate_rule(rule, f"{field}[{index}]")]


def validate_rule(rule: Document, field: str) -> list[Cause]:
    operations = rule.get("operations") or []
    causes = _wildcard_alone(operations, f"{field}.operations", "operations")
    causes += [
        not_supported(f"{field}.operations[{index}]", operation, _OPERATIONS)
        for index, operation in enumerate(operations)
        if operation not in _OPERATIONS
    ]
    causes += _wildcard_alone(rule.get("apiGroups") or [], f"{field}.apiGroups", "API groups")
    versions = rule.get("apiVersions") or []
    causes += _wildcard_alone(versions, f"{field}.apiVersions", "API versions")
    causes += [required(f"{field}.apiVersions[{index}]") for index, version in enumerate(versions) if not version]
    causes += _validate_resources(rule.get("resources") or [], f"{field}.resources")
    scope = rule.get("scope")
    if scope is not None and scope not in _SCOPES:
        causes.append(not_supported(f"{field}.scope", scope, _SCOPES))
    return causes


def _wildcard_alone(items: list[str], field: str, what: str) -> list[Cause]:
    if not items:
        return [required(field)]
    if len(items) > 1 and "*" in items:
        return [invalid(field, items, f"if '*' is present, must not specify other {what}")]
    return []


def _validate_resources(resources: list[str], field: str) -> list[Cause]:
    """A resource may be ``x``, ``x/y``, ``x/*``, ``*/y``, ``*`` or ``*/*``; what another one covers is an error."""
    causes = [] if resources else [required(field)]
    all_subresources_of: set[str] = set()
    with_any_resource: set[str] = set()
    for index, text in enumerate(resources):
        resource, slash, subresource = text.partition("/")
        if not text:
            causes.append(required(f"{field}[{index}]"))
        if not slash:
            continue
        if resource in all_subresources_of:
            detail = f"if '{resource}/*' is present, must not specify {text}"
            causes.append(invalid(f"{field}[{index}]", text, detail))
        if subresource in with_any_resource:
            detail = f"if '*/{subresource}' is present, must not specify {text}"
            causes.append(invalid(f"{field}[{index}]", text, detail))
        if subresource == "*":
            all_subresources_of.add(resource)
        if resource == "*":
            with_any_resource.add(subresource)
    return causes + _covered_by_wildcards(resources, field)


def _covered_by_wildcards(resources: list[str], field: str) -> list[Cause]:
    causes = []
    if len(resources) > 1 and "*/*" in resources:
        causes.append(invalid(field, resources, "if '*/*' is present, must not specify other resources"))
    # The real server looks at the last plain name alone.
    plain = [text for text in resources if text and "/" not in text]
    if "*" in resources and plain[-1] != "*":
        detail = "if '*' is present, must not specify other resources without subresources"
        causes.append(invalid(field, resources, detail))
    return causes


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
    causes += check_match_conditions(webhook.get("matchConditions") or [], f"{field}.matchConditions")
    return causes + _check_versions(webhook.get("admissionReviewVersions") or [], f"{field}.admissionReviewVersions")


def _check_name(name: str, field: str) -> list[Cause]:
    if not name:
        return [required(field)]
    if errors := dns_subdomain(name):
        return [invalid(field, name, ",".join(errors))]
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
            causes += [invalid(f"{field}[{index}]", version, detail) for detail in dns_1035_label(version)]
    if not set(versions) & set(REVIEW_VERSIONS):
        causes.append(invalid(field, versions, f"must include at least one of {listed}"))
    return causes
