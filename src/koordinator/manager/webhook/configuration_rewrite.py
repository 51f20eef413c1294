"""Decides how to rewrite the webhook configurations, from their current content, without I/O.

An installed configuration is a template: it is saved in an annotation the first time that it is seen, and the entries
are made from that, so that a webhook that was omitted while its feature was off returns with the feature. What the
webhooks need to work is the manager's and is kept: which entries there are, their ``rules`` and ``clientConfig``.
Everything else, such as timeouts, selectors, conditions and failure policies, is the administrators': they change the
entries themselves, or the template, which overwrites the entries once.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Collection, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from koordinator.api.admission_registration import WebhookConfiguration
from koordinator.api.annotations import WEBHOOK_TEMPLATE, WEBHOOK_TEMPLATE_APPLIED
from koordinator.api.codec import DecodeError, decode
from koordinator.base.errors import ConfigurationError
from koordinator.manager.webhook.admission import Document

_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n?", re.DOTALL)
_MOST_AUTHORITIES: Final = 4
_OURS: Final = ("name", "rules", "clientConfig")
"""The fields of an entry that are kept as the template and this manager have them."""


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
    reverted: Sequence[str] = ()
    """What somebody else has changed and the patch changes back."""


def rewrite(configuration: WebhookConfiguration, target: Target) -> Rewrite:
    """Decide on one configuration. Raises ConfigurationError naming the entry of the template that cannot be used."""
    template, annotations = _template(configuration)
    bundle = _bundle(configuration, target)
    # A template that was not applied yet overwrites all that the entries say.
    current = {} if annotations else {entry.get("name"): entry for entry in configuration.webhooks}
    wanted: list[Document] = []
    left_out: list[str] = []
    reverted: list[str] = []
    for index, entry in enumerate(template):
        where = f"{configuration.metadata.name}: webhooks[{index}] of the template"
        path = _path(entry, where)
        _check_rules(entry, where)
        if path not in target.paths:
            left_out.append(path)
            continue
        ours = {**entry, "clientConfig": _client_config(entry["clientConfig"], path, bundle, target)}
        found = current.pop(ours.get("name"), None)
        if found is not None:
            reverted += [f"{ours['name']}: {field}" for field in _changed(found, ours, target)]
            ours = {**found, **{name: ours[name] for name in _OURS if name in ours}}
        wanted.append(ours)
    installed = {entry.get("name") for entry in template}
    reverted += [f"{name}: an entry that is not in the template" for name in current if name not in installed]
    patch: Document = {}
    if annotations:
        patch["metadata"] = {"annotations": annotations}
    if list(map(with_defaults, wanted)) != list(map(with_defaults, configuration.webhooks)):
        patch["webhooks"] = wanted
    if not patch:
        return Rewrite(None, left_out)
    patch.setdefault("metadata", {})["resourceVersion"] = configuration.metadata.resource_version
    return Rewrite(patch, left_out, reverted)


def _changed(found: Document, ours: Document, target: Target) -> list[str]:
    """The fields of the manager that somebody else has changed."""
    is_, wanted = with_defaults(found), with_defaults(ours)
    fields = ["rules"] if is_.get("rules") != wanted.get("rules") else []
    client = is_.get("clientConfig") or {}
    fields += [
        f"clientConfig.{key}" for key in ("service", "url") if client.get(key) != wanted["clientConfig"].get(key)
    ]
    # While authorities change over, they come and go.
    if not target.keep_trusted and target.authority.strip() not in _bundle_of(found):
        fields.append("clientConfig.caBundle")
    return fields


def _template(configuration: WebhookConfiguration) -> tuple[list[Document], dict[str, str]]:
    """The entries as they were installed, and the annotations that have to be written; none if the entries were made
    from this template."""
    annotations = configuration.metadata.annotations
    text = annotations.get(WEBHOOK_TEMPLATE, "")
    if not text:
        text = msgspec.json.encode(configuration.webhooks).decode()
        return configuration.webhooks, {WEBHOOK_TEMPLATE: text, WEBHOOK_TEMPLATE_APPLIED: _digest(text)}
    applied = _digest(text)
    try:
        template = decode(text, list[dict[str, Any]])
    except DecodeError as error:
        field = f"{configuration.metadata.name}: annotation {WEBHOOK_TEMPLATE}"
        allowed = f"a JSON list of webhooks, or empty to take the current ones anew: {error}"
        raise ConfigurationError(field, text[:100], allowed) from error
    is_new = annotations.get(WEBHOOK_TEMPLATE_APPLIED) != applied
    return template, {WEBHOOK_TEMPLATE_APPLIED: applied} if is_new else {}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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
    return _CERTIFICATE.findall(_bundle_of(entry))


def _bundle_of(entry: Document) -> bytes:
    """Empty where it cannot be read."""
    client = entry.get("clientConfig")
    text = client.get("caBundle") if isinstance(client, dict) else None
    try:
        return base64.b64decode(text or "", validate=True)
    except (binascii.Error, TypeError, ValueError):
        return b""


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
