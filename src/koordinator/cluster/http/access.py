"""Who sends a request, by its certificate or bearer token, whom the sender acts as, and whether that is permitted."""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import unquote

from aiohttp import web

from koordinator.base.errors import ConfigurationError
from koordinator.cluster.access.authorizer import IMPERSONATE, Authorizer
from koordinator.cluster.access.identity import (
    ADMIN,
    ANONYMOUS,
    ANONYMOUS_NAME,
    API_AUDIENCE,
    AUTHENTICATED,
    UNAUTHENTICATED,
    Authenticated,
    User,
    account_groups,
    authenticated,
    split_account_name,
)
from koordinator.cluster.access.rules import AccessRequest
from koordinator.cluster.errors import ApiError, bad_request, unauthorized
from koordinator.cluster.http.request import ResourcePath
from koordinator.cluster.strategy.causes import go_quoted
from koordinator.cluster.verbs.target import Target

USER: Final = web.RequestKey("user", User)
"""Under this key a request has who sends it."""
_PUBLIC: Final = ("/healthz", "/livez", "/readyz", "/version")
_EXTRA_SPACE: Final = "the provided Authorization header contains extra space before the bearer token, and is ignored"


class TokenVerifier(Protocol):
    """Knows some of the tokens that there are."""

    def verify(self, token: str, audiences: Sequence[str]) -> Authenticated | None:
        """Whose token it is; None when it is none of these, or not for any of ``audiences``."""
        ...


class StaticTokens:
    """Tokens that were named when the server was started, kept as digests.

    Looking up a digest takes a time that says nothing about how much of a guess was right.
    """

    def __init__(self, tokens: Mapping[str, User]) -> None:
        self._users = {_digest(token): user for token, user in tokens.items()}

    def verify(self, token: str, audiences: Sequence[str]) -> Authenticated | None:
        user = self._users.get(_digest(token))
        return Authenticated(user, (API_AUDIENCE,)) if user is not None and API_AUDIENCE in audiences else None


def _digest(token: str) -> bytes:
    # Bytes of a header that are no UTF-8 come as lone surrogates, which only this encodes.
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()


class Authenticator:
    """``anonymous``: requests without a credential are those of system:anonymous, whatever they are about; else only
    those about the health and the version of the server are."""

    def __init__(self, verifiers: Sequence[TokenVerifier], *, anonymous: bool = False) -> None:
        self._verifiers = verifiers
        self._anonymous = anonymous

    @classmethod
    def of(cls, token: str) -> Authenticator:
        """Knows the administrator alone."""
        return cls((StaticTokens({token: ADMIN}),))

    def authenticate(self, request: web.BaseRequest) -> User:
        """Raises ApiError 401."""
        user = _of_certificate(request)
        if user is not None:
            return user
        authorization = request.headers.get("Authorization", "")
        scheme, *rest = authorization.strip().split(" ", 2)
        if scheme.lower() == "bearer" and rest and rest[0]:
            found = self.verify(rest[0], (API_AUDIENCE,))
            if found is not None:
                return found.user
        elif self._anonymous or (request.path.startswith(_PUBLIC) and not authorization):
            return ANONYMOUS
        error = unauthorized()
        if scheme.lower() == "bearer" and rest[:1] == [""]:
            error.warnings = (_EXTRA_SPACE,)
        raise error

    def verify(self, token: str, audiences: Sequence[str]) -> Authenticated | None:
        """Whose token it is, and for which of ``audiences``; None when nobody's."""
        for verifier in self._verifiers:
            found = verifier.verify(token, audiences)
            if found is not None:
                return found
        return None


def _of_certificate(request: web.BaseRequest) -> User | None:
    """The subject of the certificate that the client has shown; the handshake has verified it."""
    transport = request.transport
    certificate: Mapping[str, Any] | None = transport.get_extra_info("peercert") if transport is not None else None
    if not certificate:
        return None
    parts = [part for names in certificate["subject"] for part in names]
    name = next((value for key, value in parts if key == "commonName"), "")
    return authenticated(name, tuple(value for key, value in parts if key == "organizationName")) if name else None


# The file of kube-apiserver's flag of the same name: a line of TOKEN,USER,UID[,"GROUP,GROUP…"] for each token.


_FLAG: Final = "--token-auth-file"
_COLUMNS: Final = "TOKEN,USER,UID[,GROUPS]"


def read_token_file(path: Path) -> dict[str, User]:
    """Token -> user. Raises ConfigurationError, which names the line."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(_FLAG, str(path), f"the file cannot be read: {error}") from error
    users: dict[str, User] = {}
    for number, row in enumerate(csv.reader(lines, skipinitialspace=True), 1):
        if not row:
            continue
        columns = [column.strip() for column in row]
        if len(columns) < 3 or not columns[0] or not columns[1]:
            raise ConfigurationError(
                _FLAG, str(path), f"line {number} is not {_COLUMNS}: a token and a user are needed"
            )
        if columns[0] in users:
            raise ConfigurationError(_FLAG, str(path), f"line {number} has the token of an earlier line")
        groups = [group.strip() for group in columns[3].split(",")] if len(columns) > 3 else []
        users[columns[0]] = authenticated(columns[1], tuple(filter(None, groups)), columns[2])
    return users


# What a request is about as authorization sees it.


_VERBS: Final = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_COLLECTION: Final = {"get": "list", "delete": "deletecollection"}
_ONE_NAME: Final = re.compile(r"(?:^|,)metadata\.name==?([^,]+)")
_ONE_NODE: Final = re.compile(r"(?:^|,)spec\.nodeName==?([^,]+)")


def access_request(request: web.BaseRequest, path: ResourcePath | None, *, is_watch: bool) -> AccessRequest:
    """``path`` is None for what is no resource."""
    if path is None:
        return AccessRequest(request.method.lower(), path=request.path)
    verb, name = _VERBS.get(request.method, ""), path.name
    if is_watch:
        verb = "watch"
    elif not name:
        verb = _OF_COLLECTION.get(verb, verb)
    node = ""
    if (
        not name
        and "fieldSelector" in request.rel_url.raw_query_string
        and verb in ("list", "watch", "deletecollection")
    ):
        # Who may read one object may list and watch it.
        name, node = (_selected(pattern, request.query.get("fieldSelector", "")) for pattern in (_ONE_NAME, _ONE_NODE))
    namespace = path.namespace or ""
    if path.plural == "namespaces" and not path.group:
        # A namespace is in itself: a role in it may permit to read it.
        namespace = path.name
    subresource = path.subresource.partition("/")[0]
    return AccessRequest(verb, path.group, path.plural, subresource, namespace, name, node=node)


def _selected(pattern: re.Pattern[str], selector: str) -> str:
    found = pattern.search(selector)
    return found[1] if found is not None else ""


def creation(target: Target) -> AccessRequest:
    """For an object that a request which may also change one would create."""
    resource = target.resource
    return AccessRequest("create", resource.group, resource.plural, "", target.namespace or "", target.name or "")


def check_allowed(authorizer: Authorizer, user: User, request: AccessRequest) -> None:
    """Raises ApiError 403."""
    decision = authorizer.decide(user, request)
    if not decision.allowed:
        raise _forbidden(user, request, decision.reason)


def _forbidden(user: User, request: AccessRequest, reason: str) -> ApiError:
    why = f"User {go_quoted(user.name)} cannot {request.verb}"
    if request.path:
        message, details = f"forbidden: {why} path {go_quoted(request.path)}", dict[str, Any]()
    else:
        where = f"in the namespace {go_quoted(request.namespace)}" if request.namespace else "at the cluster scope"
        why += f" resource {go_quoted(request.qualified)} in API group {go_quoted(request.group)} {where}"
        qualified = f"{request.resource}.{request.group}" if request.group else request.resource
        message = f"{qualified}{f' {go_quoted(request.name)}' if request.name else ''} is forbidden: {why}"
        fields = {"name": request.name, "group": request.group, "kind": request.resource}
        details = {field: value for field, value in fields.items() if value}
    return ApiError(403, "Forbidden", f"{message}: {reason}" if reason else message, details)


# ``kubectl --as``: who may act as somebody else, and who that is then.


_PREFIX: Final = b"impersonate-"
_LENGTH: Final = len(_PREFIX)
_EXTRA: Final = "extra-"
_GROUP: Final = "authentication.k8s.io"


class _Wanted(NamedTuple):
    """What one header asks for."""

    kind: str
    """``user``, ``group``, ``uid``, or the key of an extra attribute after ``extra-``."""
    value: str


def acting_user(user: User, raw_headers: Iterable[tuple[bytes, bytes]], authorizer: Authorizer) -> User:
    """``user`` itself, or whom it acts as.

    Takes headers as they came: every request pays for this look at all names. Raises ApiError: 403, and 400 when groups
    or others are named without a user.
    """
    wanted = [
        _Wanted(name[_LENGTH:].decode(errors="replace").lower(), value.decode(errors="replace"))
        for name, value in raw_headers
        if name[_LENGTH - 1 : _LENGTH] == b"-" and name[:_LENGTH].lower() == _PREFIX
    ]
    return _impersonated(user, wanted, authorizer) if wanted else user


def _impersonated(user: User, wanted: list[_Wanted], authorizer: Authorizer) -> User:
    # An empty user or UID is none; of several, the first counts.
    name = next((each.value for each in wanted if each.kind == "user"), "")
    uid = next((each.value for each in wanted if each.kind == "uid"), "")
    groups = [each.value for each in wanted if each.kind == "group"]
    extra: dict[str, tuple[str, ...]] = {}
    for each in wanted:
        if each.kind.startswith(_EXTRA):
            key = unquote(each.kind.removeprefix(_EXTRA))
            extra[key] = (*extra.get(key, ()), each.value)
    if not name:
        if groups or extra or uid:
            raise bad_request(f"requested [{_listed(groups, extra, uid)}] without impersonating a user")
        return user
    for request in _requests(name, groups, extra, uid):
        check_allowed(authorizer, user, request)
    return User(name, _with_common_group(name, groups or _own_groups(name)), uid, extra)


def _requests(name: str, groups: list[str], extra: dict[str, tuple[str, ...]], uid: str) -> Iterator[AccessRequest]:
    account = split_account_name(name)
    if account is not None:
        yield AccessRequest(IMPERSONATE, "", "serviceaccounts", namespace=account[0], name=account[1])
    else:
        yield AccessRequest(IMPERSONATE, "", "users", name=name)
    for group in groups:
        yield AccessRequest(IMPERSONATE, "", "groups", name=group)
    for key, values in extra.items():
        for value in values:
            yield AccessRequest(IMPERSONATE, _GROUP, "userextras", key, name=value)
    if uid:
        yield AccessRequest(IMPERSONATE, _GROUP, "uids", name=uid)


def _own_groups(name: str) -> list[str]:
    account = split_account_name(name)
    return list(account_groups(account[0])) if account is not None else []


def _with_common_group(name: str, groups: list[str]) -> tuple[str, ...]:
    if name == ANONYMOUS_NAME:
        return (*groups, *(() if UNAUTHENTICATED in groups else (UNAUTHENTICATED,)))
    return (*groups, *(() if {AUTHENTICATED, UNAUTHENTICATED} & set(groups) else (AUTHENTICATED,)))


def _listed(groups: list[str], extra: dict[str, tuple[str, ...]], uid: str) -> str:
    """As Go prints references to what is asked for."""
    texts = [f"{{Group  {group}    }}" for group in groups]
    texts += [f"{{UserExtra  {value}  {_GROUP}/v1  {key}}}" for key, values in extra.items() for value in values]
    if uid:
        texts.append(f"{{UID  {uid}  {_GROUP}/v1  }}")
    return " ".join(texts)
