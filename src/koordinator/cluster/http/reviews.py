"""Questions that are posted like objects and answered on the spot: who is this, and may they?

Whoever holds the token is the administrator. Programs with delegated authentication (a scheduler's own HTTPS port) and
kubectl ask these things of every API server.
"""

from __future__ import annotations

from collections.abc import Callable

from koordinator.api.document import Document, copied
from koordinator.api.kubernetes_types.canonical import WrongType, canonicalize
from koordinator.api.kubernetes_types.table import kind_type
from koordinator.cluster.errors import bad_request
from koordinator.cluster.http.authentication import GROUPS, USER, TokenAuthenticator
from koordinator.cluster.resource import Resource
from koordinator.cluster.strategy.nothing_stored import NothingStored
from koordinator.cluster.verbs.identity import check_form

_AUTHENTICATION, _AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"
_USER_INFO: Document = {"username": USER, "groups": list(GROUPS)}


class Reviews:
    """Answers by (group, plural)."""

    def __init__(self, authenticator: TokenAuthenticator) -> None:
        self._authenticator = authenticator
        self._answers: dict[tuple[str, str], Callable[[Document], Document]] = {
            (_AUTHENTICATION, "tokenreviews"): self._token,
            (_AUTHENTICATION, "selfsubjectreviews"): lambda spec: {"userInfo": _USER_INFO},
            (_AUTHORIZATION, "subjectaccessreviews"): _access,
            (_AUTHORIZATION, "localsubjectaccessreviews"): _access,
            (_AUTHORIZATION, "selfsubjectaccessreviews"): lambda spec: {"allowed": True},
            (_AUTHORIZATION, "selfsubjectrulesreviews"): lambda spec: _ALL_RULES,
        }

    def answer(self, resource: Resource, review: Document) -> Document:
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
        status = self._answers[resource.group, resource.plural](spec if isinstance(spec, dict) else {})
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
