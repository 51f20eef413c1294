"""Secrets: plain text is taken in and never given out, and each well-known type insists on its own keys."""

from __future__ import annotations

from typing import Final

from koordinator.api.base64_text import decode_base64, encode_base64
from koordinator.api.document import Document
from koordinator.cluster.resource import Cause, RequestContext
from koordinator.cluster.strategy import tables
from koordinator.cluster.strategy.causes import invalid, required, too_long
from koordinator.cluster.strategy.data_keys import MAX_SIZE, check_immutable, check_key, size_of_bytes
from koordinator.cluster.strategy.defaults import default_each, defaults_of
from koordinator.cluster.strategy.json_syntax import object_complaint
from koordinator.cluster.strategy.key_pair import key_pair_complaint
from koordinator.cluster.strategy.object_strategy import ObjectStrategy

_ACCOUNT_NAME: Final = "kubernetes.io/service-account.name"
_JSON_KEYS: Final = {
    "kubernetes.io/dockercfg": ".dockercfg",
    "kubernetes.io/dockerconfigjson": ".dockerconfigjson",
}
_TLS: Final = "kubernetes.io/tls"
_CERTIFICATE, _KEY = "tls.crt", "tls.key"


@defaults_of("io.k8s.api.core.v1.Secret")
def _secret(secret: Document) -> None:
    default_each(secret, "type", "Opaque")


class SecretStrategy(ObjectStrategy):
    def __init__(self) -> None:
        labels = {"type": lambda obj: obj.get("type") or ""}
        super().__init__("v1", "Secret", table=tables.SECRET, field_labels=labels)

    def initialize(self, obj: Document, context: RequestContext) -> None:
        self._warn(obj, None, context)

    def prepare_update(self, obj: Document, old: Document, context: RequestContext) -> None:
        super().prepare_update(obj, old, context)
        self._warn(obj, old, context)

    def check(self, obj: Document, old: Document | None) -> list[Cause]:
        data = obj.get("data") or {}
        causes = []
        if old is not None and obj["type"] != old.get("type"):
            causes.append(invalid("type", obj["type"], "field is immutable"))
        causes += check_immutable(obj, old, ("data",))
        causes += [cause for key in data for cause in check_key("data", key)]
        if sum(map(size_of_bytes, data.values())) > MAX_SIZE:
            causes.append(too_long("data", MAX_SIZE))
        return causes + _check_type(obj, data)

    def _canonicalize(self, obj: Document) -> None:
        super()._canonicalize(obj)
        plain = obj.pop("stringData", None)
        if plain:
            # A patched object shares what did not change with the stored one.
            encoded = {key: encode_base64(text.encode()) for key, text in plain.items()}
            obj["data"] = {**(obj.get("data") or {}), **encoded}

    def _warn(self, obj: Document, old: Document | None, context: RequestContext) -> None:
        """Only of what is stored; a refusal says enough."""
        if obj["type"] != _TLS or self.validate(obj, old):
            return
        data = obj["data"]
        complaint = key_pair_complaint(decode_base64(data[_CERTIFICATE]), decode_base64(data[_KEY]))
        if complaint and complaint not in context.warnings:
            context.warnings.append(complaint)


def _check_type(secret: Document, data: Document) -> list[Cause]:
    kind = secret["type"]
    if kind == "kubernetes.io/service-account-token":
        named = (secret["metadata"].get("annotations") or {}).get(_ACCOUNT_NAME)
        return [] if named else [required(f"metadata.annotations[{_ACCOUNT_NAME}]")]
    if kind in _JSON_KEYS:
        return _check_json(data, _JSON_KEYS[kind])
    if kind == "kubernetes.io/basic-auth":
        either = ("username", "password")
        return [] if any(key in data for key in either) else [required(f"data[{key}]") for key in either]
    if kind == "kubernetes.io/ssh-auth":
        return [] if data.get("ssh-privatekey") else [required("data[ssh-privatekey]")]
    if kind == _TLS:
        return [required(f"data[{key}]") for key in (_CERTIFICATE, _KEY) if key not in data]
    return []


def _check_json(data: Document, key: str) -> list[Cause]:
    if key not in data:
        return [required(f"data[{key}]")]
    complaint = object_complaint(decode_base64(data[key]))
    return [invalid(f"data[{key}]", "<secret contents redacted>", complaint)] if complaint else []
