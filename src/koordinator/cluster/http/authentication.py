"""Who sends a request, and what it may do: the bearer token, the client certificate and the reviews of both."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from typing import Final

from koordinator.api.document import Document, copied
from koordinator.api.kubernetes_types.canonical import WrongType, canonicalize
from koordinator.api.kubernetes_types.table import kind_type
from koordinator.cluster.errors import ApiError, bad_request, unauthorized
from koordinator.cluster.resource import Resource
from koordinator.cluster.strategy.nothing_stored import NothingStored
from koordinator.cluster.verbs.target import check_form

USER: Final = "admin"
GROUPS: Final = ("system:masters", "system:authenticated")
_PUBLIC: Final = ("/healthz", "/livez", "/readyz", "/version")
_EXTRA_SPACE: Final = "the provided Authorization header contains extra space before the bearer token, and is ignored"
_IMPERSONATE: Final = b"impersonate-"
_IMPERSONATE_LENGTH: Final = len(_IMPERSONATE)
_USER_EXTRA: Final = "extra-"
_IMPERSONATED_KINDS: Final = {"user": "users", "group": "groups", "uid": "uids"}


class TokenAuthenticator:
    """Compares in constant time, so that responses do not show how much of a guess was right."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def is_token(self, token: str) -> bool:
        # Bytes of a header that are no UTF-8 come as lone surrogates, which only this encodes.
        return hmac.compare_digest(token.encode(errors="surrogatepass"), self._token)

    def check(self, path: str, authorization: str) -> None:
        """Raises ApiError 401."""
        scheme, *rest = authorization.strip().split(" ", 2)
        if rest and scheme.lower() == "bearer" and self.is_token(rest[0]):
            return
        if path.startswith(_PUBLIC) and not authorization:
            return
        error = unauthorized()
        if scheme.lower() == "bearer" and rest[:1] == [""]:
            error.warnings = (_EXTRA_SPACE,)
        raise error


def check_no_impersonation(raw_headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Refuse ``kubectl --as``: this server knows one user, and impersonation is not permitted.

    To ignore the headers would be worse: what is tried out as a user of few rights would be done by the administrator.
    Takes headers as they came: every request pays for this look at all names. Raises ApiError 403.
    """
    for name, value in raw_headers:
        if (
            name[_IMPERSONATE_LENGTH - 1 : _IMPERSONATE_LENGTH] == b"-"
            and name[:_IMPERSONATE_LENGTH].lower() == _IMPERSONATE
        ):
            _refuse(name[_IMPERSONATE_LENGTH:].decode(errors="replace").lower(), value.decode(errors="replace"))


def _refuse(what: str, wanted: str) -> None:
    kind = (
        f"userextras/{what.removeprefix(_USER_EXTRA)}"
        if what.startswith(_USER_EXTRA)
        else _IMPERSONATED_KINDS.get(what, "")
    )
    # An empty user is none, and other names mean nothing to the real server either.
    if not kind or (what == "user" and not wanted):
        return
    why = f'this server does not support impersonation: it knows no user but "{USER}"'
    raise ApiError(403, "Forbidden", f'{kind} "{wanted}" is forbidden: {why}', {"name": wanted, "kind": kind})


# Reviews, which are posted like objects and evaluated on the spot: which user this is, and what it may do.
#
# The holder of the token is the administrator. Programs with delegated authentication (a scheduler's own HTTPS port)
# and kubectl post these reviews to every API server.


_AUTHENTICATION, _AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"
_USER_INFO: Document = {"username": USER, "groups": list(GROUPS)}


class Reviews:
    """The evaluations by (group, plural)."""

    def __init__(self, authenticator: TokenAuthenticator) -> None:
        self._authenticator = authenticator
        self._reviewers: dict[tuple[str, str], Callable[[Document], Document]] = {
            (_AUTHENTICATION, "tokenreviews"): self._token,
            (_AUTHENTICATION, "selfsubjectreviews"): lambda spec: {"userInfo": _USER_INFO},
            (_AUTHORIZATION, "subjectaccessreviews"): _access,
            (_AUTHORIZATION, "localsubjectaccessreviews"): _access,
            (_AUTHORIZATION, "selfsubjectaccessreviews"): lambda spec: {"allowed": True},
            (_AUTHORIZATION, "selfsubjectrulesreviews"): lambda spec: _ALL_RULES,
        }

    def review(self, resource: Resource, review: Document) -> Document:
        """Raises ApiError 400 for what is no such review."""
        check_form(resource, review, resource.api_version)
        checked, kind = copied(review), resource.kind
        object_type = kind_type(resource.api_version, kind)
        if object_type is not None:
            try:
                canonicalize(checked, object_type)
            except WrongType as error:
                raise bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {error}') from error
        spec = review.get("spec")
        status = self._reviewers[resource.group, resource.plural](spec if isinstance(spec, dict) else {})
        return {**review, "apiVersion": resource.api_version, "kind": resource.kind, "status": status}

    def _token(self, spec: Document) -> Document:
        if self._authenticator.is_token(str(spec.get("token") or "")):
            return {"authenticated": True, "user": _USER_INFO, "audiences": spec.get("audiences") or []}
        return {"authenticated": False, "error": "invalid bearer token"}


_ALL_RULES: Document = {
    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "incomplete": False,
}


def _access(spec: Document) -> Document:
    allowed = spec.get("user") == USER or bool(set(spec.get("groups") or ()) & {"system:masters"})
    return {"allowed": True} if allowed else {"allowed": False, "reason": f"only {USER} has access"}


def _review(group: str, kind: str, *, namespaced: bool = False) -> Resource:
    return Resource(
        group=group,
        version="v1",
        plural=f"{kind.lower()}s",
        kind=kind,
        namespaced=namespaced,
        strategy=NothingStored(),
        singular=kind.lower(),
        verbs=("create",),
    )


REVIEW_RESOURCES = (
    _review(_AUTHENTICATION, "TokenReview"),
    _review(_AUTHENTICATION, "SelfSubjectReview"),
    _review(_AUTHORIZATION, "SubjectAccessReview"),
    _review(_AUTHORIZATION, "SelfSubjectAccessReview"),
    _review(_AUTHORIZATION, "SelfSubjectRulesReview"),
    _review(_AUTHORIZATION, "LocalSubjectAccessReview", namespaced=True),
)
