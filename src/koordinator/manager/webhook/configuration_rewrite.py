"""Decides how to rewrite the webhook configurations, from their current content, without I/O.

An installed configuration is a template: it is saved in an annotation the first time that it is seen, and the entries
are always made from that, so that a webhook that was omitted while its feature was off returns with the feature. Only
``clientConfig`` is rewritten; rules, selectors and failure policies are the installer's.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from koordinator.api.admission_registration import WebhookConfiguration
from koordinator.api.annotations import WEBHOOK_TEMPLATE
from koordinator.api.codec import DecodeError, decode
from koordinator.base.errors import ConfigurationError
from koordinator.manager.webhook.admission import Document

_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n?", re.DOTALL)
_MOST_AUTHORITIES: Final = 4


@dataclass(frozen=True, slots=True)
class Target:
    """How API servers reach and verify the webhooks, and which webhooks exist."""

    namespace: str
    service: str
    host: str
    """Empty: reached through the Service; else the name or address in the URLs."""
    port: int
    paths: Collection[str]
    authority: bytes
    """PEM."""
    keep_trusted: bool = False
    """Keep trusting the authorities that are trusted now: some replica may still serve a certificate of one of them."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """``patch`` is a merge patch for the version that was read, None where nothing has to change."""

    patch: Document | None
    left_out: Sequence[str]
    """The paths in the configuration without an active handler."""


def rewrite(configuration: WebhookConfiguration, target: Target) -> Rewrite:
    """Decide on one configuration. Raises ConfigurationError naming the entry of the template that cannot be used."""
    template, annotation = _template(configuration)
    bundle = _bundle(configuration, target)
    wanted: list[Document] = []
    left_out: list[str] = []
    for index, entry in enumerate(template):
        where = f"{configuration.metadata.name}: webhooks[{index}] of the template"
        path = _path(entry, where)
        _check_rules(entry, where)
        if path in target.paths:
            wanted.append({**entry, "clientConfig": _client_config(entry["clientConfig"], path, bundle, target)})
        else:
            left_out.append(path)
    patch: Document = {}
    if annotation is not None:
        patch["metadata"] = {"annotations": {WEBHOOK_TEMPLATE: annotation}}
    if list(map(with_defaults, wanted)) != list(map(with_defaults, configuration.webhooks)):
        patch["webhooks"] = wanted
    if not patch:
        return Rewrite(None, left_out)
    patch.setdefault("metadata", {})["resourceVersion"] = configuration.metadata.resource_version
    return Rewrite(patch, left_out)


def _template(configuration: WebhookConfiguration) -> tuple[list[Document], str | None]:
    """The entries as they were installed, and the annotation that has to be written, None if it exists."""
    text = configuration.metadata.annotations.get(WEBHOOK_TEMPLATE, "")
    if not text:
        return configuration.webhooks, msgspec.json.encode(configuration.webhooks).decode()
    try:
        return decode(text, list[dict[str, Any]]), None
    except DecodeError as error:
        field = f"{configuration.metadata.name}: annotation {WEBHOOK_TEMPLATE}"
        allowed = f"a JSON list of webhooks, or empty to take the current ones anew: {error}"
        raise ConfigurationError(field, text[:100], allowed) from error


def _path(entry: Document, where: str) -> str:
    client = entry.get("clientConfig")
    service = client.get("service") if isinstance(client, dict) else None
    url = client.get("url") if isinstance(client, dict) else None
    if isinstance(service, dict) and isinstance(service.get("path"), str):
        return str(service["path"])
    if isinstance(url, str) and not service:
        return urlsplit(url).path
    raise ConfigurationError(f"{where}: clientConfig", client, "a service with a path, or a URL")


def _check_rules(entry: Document, where: str) -> None:
    """Check the fields that are read here; the API server validates the rest."""
    rules = entry.get("rules")
    if rules is not None and not (isinstance(rules, list) and all(isinstance(rule, dict) for rule in rules)):
        raise ConfigurationError(f"{where}: rules", rules, "a list of rules")


def _bundle(configuration: WebhookConfiguration, target: Target) -> str:
    """The authorities to trust, ours first, as base64 for ``caBundle``."""
    trusted = [target.authority]
    if target.keep_trusted:
        for entry in configuration.webhooks:
            trusted += [found for found in _authorities(entry) if found.strip() != target.authority.strip()]
    return base64.b64encode(b"".join(list(dict.fromkeys(trusted))[:_MOST_AUTHORITIES])).decode("ascii")


def _authorities(entry: Document) -> list[bytes]:
    client = entry.get("clientConfig")
    text = client.get("caBundle") if isinstance(client, dict) else None
    try:
        return _CERTIFICATE.findall(base64.b64decode(text or "", validate=True))
    except (binascii.Error, TypeError, ValueError):
        return []


def _client_config(given: Document, path: str, bundle: str, target: Target) -> Document:
    client = {**given, "caBundle": bundle}
    if not given.get("service"):
        return client
    if target.host:
        del client["service"]
        host = f"[{target.host}]" if ":" in target.host else target.host
        client["url"] = f"https://{host}:{target.port}{path}"
    else:
        client["service"] = {**given["service"], "namespace": target.namespace, "name": target.service}
    return client


def with_defaults(entry: Document) -> Document:
    """The entry as an API server stores it, so that one written without defaults does not differ for ever."""
    full = {
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "timeoutSeconds": 10,
        "reinvocationPolicy": "Never",
        **deepcopy({name: value for name, value in entry.items() if value is not None}),
    }
    service = full.get("clientConfig", {}).get("service")
    if service:
        service.setdefault("port", 443)
    for rule in full.get("rules", ()):
        rule.setdefault("scope", "*")
    return full
