"""Secrets and ConfigMaps: the names of their keys, and the keys that each well-known type of Secret must have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from koordinator.api.base64_text import decode_base64, encode_base64
from koordinator.api.document import Document
from koordinator.cluster.resource import Cause, RequestContext
from koordinator.cluster.strategy import tables
from koordinator.cluster.strategy.causes import forbidden, invalid, required, too_long
from koordinator.cluster.strategy.json_syntax import object_syntax_error
from koordinator.cluster.strategy.object_strategy import ObjectStrategy, default_each, defaults_of

# What ConfigMaps and Secrets have in common: their keys are file names, they are small, and they may be immutable.


MAX_SIZE: Final = 1024 * 1024
"""Bytes of all values of one object together."""
_DATA_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_LONGEST_KEY: Final = 253
_RULE: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' "
    "(e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_IMMUTABLE: Final = "field is immutable when `immutable` is set"


def check_key(field: str, key: str) -> list[Cause]:
    """What is wrong with one key of ``field``."""
    errors = [f"must be no more than {_LONGEST_KEY} characters"] if len(key.encode()) > _LONGEST_KEY else []
    if not _DATA_KEY.fullmatch(key):
        errors.append(_RULE)
    if key in (".", ".."):
        errors.append(f"must not be '{key}'")
    elif key.startswith(".."):
        errors.append("must not start with '..'")
    return [invalid(f"{field}[{key}]", key, detail) for detail in errors]


def check_immutable(obj: Document, old: Document | None, fields: Iterable[str]) -> list[Cause]:
    """Once ``immutable`` is set, neither it nor any of ``fields`` changes."""
    if old is None or not old.get("immutable"):
        return []
    changed = [] if obj.get("immutable") else ["immutable"]
    changed += [field for field in fields if (obj.get(field) or {}) != (old.get(field) or {})]
    return [forbidden(field, _IMMUTABLE) for field in changed]


def size_of_bytes(encoded: str) -> int:
    """Of canonical base64, without decoding it."""
    return len(encoded) // 4 * 3 - encoded[-2:].count("=")


# ConfigMaps: which keys they may hold, and how much.


_WHOLE_OBJECT = "[]"
"""What the real server prints for a field without a name."""


class ConfigMapStrategy(ObjectStrategy):
    def __init__(self) -> None:
        super().__init__("v1", "ConfigMap", table=tables.CONFIG_MAP)

    def check(self, obj: Document, old: Document | None) -> list[Cause]:
        data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
        causes = check_immutable(obj, old, ("data", "binaryData"))
        for key in data:
            causes += check_key("data", key)
            if key in binary:
                causes.append(invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
        causes += [cause for key in binary for cause in check_key("binaryData", key)]
        size = sum(len(value.encode()) for value in data.values()) + sum(map(size_of_bytes, binary.values()))
        return [*causes, too_long(_WHOLE_OBJECT, MAX_SIZE)] if size > MAX_SIZE else causes


# Does a TLS key belong to its certificate? The real server warns, in Go's words, when it does not.


_BEGIN: Final = re.compile(rb"-----BEGIN ([^\n]{0,200}?)-----\r?\n")
_MOST_NEVER_CLOSED: Final = 20
_KEYS: Final = (
    (RSAPublicKey, RSAPrivateKey),
    (EllipticCurvePublicKey, EllipticCurvePrivateKey),
    (Ed25519PublicKey, Ed25519PrivateKey),
)


def key_pair_error(certificate: bytes, key: bytes) -> str:
    """Empty when they match. Both are PEM."""
    certificates, skipped = _blocks(certificate, "CERTIFICATE")
    if not certificates:
        return _no_certificate(skipped)
    keys, skipped = _blocks(key, "PRIVATE KEY")
    if not keys:
        return _no_key(skipped)
    try:
        public = x509.load_pem_x509_certificate(certificates[0]).public_key()
    except (ValueError, UnsupportedAlgorithm):
        return "x509: malformed certificate"
    try:
        private = load_pem_private_key(keys[0], None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return "tls: failed to parse private key"
    kinds = next((kinds for kinds in _KEYS if isinstance(public, kinds[0])), None)
    if kinds is None:
        return "tls: unknown public key algorithm"
    if not isinstance(private, kinds[1]):
        return "tls: private key type does not match public key type"
    return "" if private.public_key() == public else "tls: private key does not match public key"


def _blocks(text: bytes, kind: str) -> tuple[list[bytes], list[str]]:
    """The blocks whose type ends in ``kind``, and the types of those before the first one."""
    found: list[bytes] = []
    skipped: list[str] = []
    for name, block in _pem(text):
        if name == kind or (kind == "PRIVATE KEY" and name.endswith(f" {kind}")):
            found.append(block + b"\n")
        elif not found:
            skipped.append(name)
    return found, skipped


def _pem(text: bytes) -> Iterator[tuple[str, bytes]]:
    """Types and blocks. A block that is never closed is looked for once for each type, however often it begins."""
    at, never_closed = 0, set()
    while begin := _BEGIN.search(text, at):
        at, closing = begin.end(), b"-----END " + begin[1] + b"-----"
        if closing in never_closed:
            continue
        end = text.find(closing, at)
        if end < 0:
            never_closed.add(closing)
            if len(never_closed) > _MOST_NEVER_CLOSED:
                return
            continue
        at = end + len(closing)
        yield begin[1].decode(errors="replace"), text[begin.start() : at]


def _no_certificate(skipped: list[str]) -> str:
    if not skipped:
        return "tls: failed to find any PEM data in certificate input"
    if len(skipped) == 1 and skipped[0].endswith("PRIVATE KEY"):
        return (
            "tls: failed to find certificate PEM data in certificate input, but did find a private key; "
            "PEM inputs may have been switched"
        )
    listed = " ".join(skipped)
    return (
        'tls: failed to find "CERTIFICATE" PEM block in certificate input after skipping PEM blocks of the following '
        f"types: [{listed}]"
    )


def _no_key(skipped: list[str]) -> str:
    if not skipped:
        return "tls: failed to find any PEM data in key input"
    if skipped == ["CERTIFICATE"]:
        return "tls: found a certificate rather than a key in the PEM for the private key"
    listed = " ".join(skipped)
    return (
        'tls: failed to find PEM block with type ending in "PRIVATE KEY" in key input after skipping PEM blocks of the '
        f"following types: [{listed}]"
    )


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

    def _canonicalize(self, obj: Document, canonical: Sequence[str]) -> None:
        super()._canonicalize(obj, canonical)
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
        detail = key_pair_error(decode_base64(data[_CERTIFICATE]), decode_base64(data[_KEY]))
        if detail and detail not in context.warnings:
            context.warnings.append(detail)


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
    detail = object_syntax_error(decode_base64(data[key]))
    return [invalid(f"data[{key}]", "<secret contents redacted>", detail)] if detail else []
