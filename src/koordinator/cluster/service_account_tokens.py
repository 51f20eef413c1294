"""The tokens of ServiceAccounts: JSON Web Tokens that the cluster's own key signs, and that it verifies on requests.

A token is good until it expires, and as long as what it is bound to is there with the same UID: the account, and the
pod, Secret or Node that was named when it was requested.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from koordinator.api.document import Document
from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.access.identity import (
    ALGORITHM,
    API_AUDIENCE,
    Authenticated,
    User,
    account_groups,
    account_name,
    authenticated,
)
from koordinator.cluster.data_folder import write_private

_LOG = logging.getLogger(__name__)
_HALF: Final = 32
"""Bytes of each of the two numbers that are an ES256 signature."""
_VERIFIED: Final = 4096
"""Tokens of which the signature is remembered; checking one takes as long as a small request."""
_CLAIMS: Final = "kubernetes.io"
_PLURALS: Final = {"pod": "pods", "secret": "secrets", "node": "nodes"}
_EXTRA: Final = "authentication.kubernetes.io/"

Lookup = Callable[[str, str, str | None, str], Mapping[str, Any] | None]
"""(group, plural, namespace, name) -> the object as it is now; None when it is not there."""


class InvalidToken(KoordinatorError):
    """The token is not one of ours, or no longer good; the text says why, for the log alone."""


@dataclass(frozen=True, slots=True)
class Reference:
    """An object by name and UID. ``kind`` is in lower case: ``pod``, ``secret``, ``node``."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Claims:
    """What a token says."""

    namespace: str
    account: Reference
    audiences: tuple[str, ...]
    issued: int
    """Seconds since the epoch, as ``expires``."""
    expires: int
    token_id: str
    bound: Reference | None = None


class AccountTokens:
    """Issues and verifies with one key."""

    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key
        self._public = key.public_key()
        spki = self._public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        self._key_id = _encoded(hashlib.sha256(spki).digest())
        self._header = _encoded(msgspec.json.encode({"alg": ALGORITHM, "kid": self._key_id}))
        self._verified: dict[str, Claims] = {}

    def key_set(self) -> Document:
        """With what others check the tokens, as a JSON Web Key Set."""
        numbers = self._public.public_numbers()
        x, y = (_encoded(number.to_bytes(_HALF, "big")) for number in (numbers.x, numbers.y))
        key = {"use": "sig", "kty": "EC", "kid": self._key_id, "crv": "P-256", "alg": ALGORITHM, "x": x, "y": y}
        return {"keys": [key]}

    def issue(self, claims: Claims) -> str:
        objects: dict[str, Any] = {
            "namespace": claims.namespace,
            "serviceaccount": {"name": claims.account.name, "uid": claims.account.uid},
        }
        if claims.bound is not None:
            objects[claims.bound.kind] = {"name": claims.bound.name, "uid": claims.bound.uid}
        payload = {
            "aud": list(claims.audiences),
            "exp": claims.expires,
            "iat": claims.issued,
            "iss": API_AUDIENCE,
            "jti": claims.token_id,
            _CLAIMS: objects,
            "nbf": claims.issued,
            "sub": account_name(claims.namespace, claims.account.name),
        }
        signed = f"{self._header}.{_encoded(msgspec.json.encode(payload))}"
        first, second = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        signature = first.to_bytes(_HALF, "big") + second.to_bytes(_HALF, "big")
        return f"{signed}.{_encoded(signature)}"

    def verify(self, token: str, audiences: Sequence[str], now: datetime, lookup: Lookup) -> Authenticated:
        """Whose token it is, and for which of ``audiences``. Raises InvalidToken."""
        claims = self._verified.get(token) or self._remembered(token)
        moment = now.timestamp()
        if not claims.issued <= moment < claims.expires:
            raise InvalidToken("the token has expired, or is of the future")
        good = [audience for audience in audiences if audience in claims.audiences]
        if not good:
            raise InvalidToken(f"the token is for {', '.join(claims.audiences)}")
        _check_there(lookup, claims.namespace, claims.account, "serviceaccounts")
        if claims.bound is not None:
            namespace = None if claims.bound.kind == "node" else claims.namespace
            _check_there(lookup, namespace, claims.bound, _PLURALS[claims.bound.kind])
        return Authenticated(_user(claims), good)

    def _remembered(self, token: str) -> Claims:
        claims = self._checked(token)
        if len(self._verified) >= _VERIFIED:
            self._verified.clear()
        self._verified[token] = claims
        return claims

    def _checked(self, token: str) -> Claims:
        """The claims of a token with a good signature. Raises InvalidToken."""
        header, _, rest = token.partition(".")
        payload, _, signature = rest.partition(".")
        raw = _decoded(signature)
        if header != self._header or len(raw) != 2 * _HALF:
            raise InvalidToken("another key has signed it")
        numbers = encode_dss_signature(int.from_bytes(raw[:_HALF], "big"), int.from_bytes(raw[_HALF:], "big"))
        try:
            self._public.verify(numbers, f"{header}.{payload}".encode(), ec.ECDSA(hashes.SHA256()))
        except InvalidSignature as error:
            raise InvalidToken("the signature is wrong") from error
        # What this key has signed was made by ``issue``.
        return _claims(msgspec.json.decode(_decoded(payload)))


class AccountVerifier:
    """The tokens of one cluster, as requests come with them."""

    def __init__(self, tokens: AccountTokens, clock: Clock, lookup: Lookup) -> None:
        self._tokens = tokens
        self._clock = clock
        self._lookup = lookup

    def verify(self, token: str, audiences: Sequence[str]) -> Authenticated | None:
        """None for what is no good token of an account."""
        try:
            return self._tokens.verify(token, audiences, self._clock.now(), self._lookup)
        except InvalidToken as error:
            # Whoever sends it is told no more than that it is not accepted.
            _LOG.debug("a bearer token was refused: %s", error)
            return None


def _claims(payload: Mapping[str, Any]) -> Claims:
    objects = payload[_CLAIMS]
    account = Reference("serviceaccount", **objects["serviceaccount"])
    bound = next((Reference(kind, **objects[kind]) for kind in _PLURALS if kind in objects), None)
    audiences = tuple(payload["aud"])
    return Claims(objects["namespace"], account, audiences, payload["iat"], payload["exp"], payload["jti"], bound)


def _check_there(lookup: Lookup, namespace: str | None, wanted: Reference, plural: str) -> None:
    found = lookup("", plural, namespace, wanted.name)
    if found is None or found["metadata"]["uid"] != wanted.uid:
        raise InvalidToken(f"the {wanted.kind} {wanted.name} that it is bound to is gone")


def _user(claims: Claims) -> User:
    extra = {f"{_EXTRA}credential-id": (f"JTI={claims.token_id}",)}
    if claims.bound is not None and claims.bound.kind != "secret":
        extra[f"{_EXTRA}{claims.bound.kind}-name"] = (claims.bound.name,)
        extra[f"{_EXTRA}{claims.bound.kind}-uid"] = (claims.bound.uid,)
    name = account_name(claims.namespace, claims.account.name)
    return authenticated(name, account_groups(claims.namespace), claims.account.uid, **extra)


def kept_tokens(path: Path) -> AccountTokens:
    """With the key in that file; makes one when there is none, or a broken one. Raises OSError."""
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (FileNotFoundError, ValueError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        key = ec.generate_private_key(ec.SECP256R1())
        write_private(path, _pem(key))
    return AccountTokens(key)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    """Raises InvalidToken."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidToken("it is no JSON Web Token") from error
