"""Reviews, which are posted like objects and evaluated on the spot: who somebody is, and what they may do.

Programs with delegated authentication (a scheduler's own HTTPS port) and kubectl post them to every API server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from koordinator.api.document import Document, copied
from koordinator.api.kubernetes_types.canonical import WrongType, canonicalize
from koordinator.api.kubernetes_types.table import kind_type
from koordinator.api.timestamps import format_time
from koordinator.base.clock import Clock
from koordinator.cluster.access.authorizer import Authorizer
from koordinator.cluster.access.identity import API_AUDIENCE, User
from koordinator.cluster.access.policy import listed
from koordinator.cluster.access.rules import AccessRequest
from koordinator.cluster.errors import ApiError, bad_request
from koordinator.cluster.http.access import Authenticator
from koordinator.cluster.resource import Cause, Resource
from koordinator.cluster.strategy.causes import invalid
from koordinator.cluster.strategy.nothing_stored import NothingStored
from koordinator.cluster.verbs.target import Target, check_form, check_namespace

_AUTHENTICATION, _AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"
_ONE_OF_BOTH: Final = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
_LOCAL: Final = "localsubjectaccessreviews"


class Reviews:
    """The evaluations by plural, which no two groups share."""

    def __init__(self, authenticator: Authenticator, authorizer: Authorizer, clock: Clock) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._clock = clock
        self._reviewers: dict[str, Callable[[User, Target, Document], Document]] = {
            "tokenreviews": self._token,
            "selfsubjectreviews": lambda user, target, spec: {"userInfo": user.document()},
            "subjectaccessreviews": self._access,
            _LOCAL: self._access,
            "selfsubjectaccessreviews": self._own_access,
            "selfsubjectrulesreviews": self._own_rules,
        }

    def review(self, user: User, target: Target, review: Document) -> Document:
        """``user`` sends it. Raises ApiError: 400 for what is no such review, 422 for one that says too little."""
        resource = target.resource
        check_form(resource, review, resource.api_version)
        checked, kind = copied(review), resource.kind
        object_type = kind_type(resource.api_version, kind)
        if object_type is not None:
            try:
                canonicalize(checked, object_type)
            except WrongType as error:
                raise bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {error}') from error
        if target.namespace is not None:
            check_namespace(target, review)
        spec = review.get("spec")
        status = self._reviewers[resource.plural](user, target, spec if isinstance(spec, dict) else {})
        reviewed = {**review, "apiVersion": resource.api_version, "kind": resource.kind, "status": status}
        if resource.plural == "selfsubjectreviews":
            reviewed["metadata"] = {"creationTimestamp": format_time(self._clock.now())}
        return reviewed

    def _token(self, user: User, target: Target, spec: Document) -> Document:
        token = spec.get("token")
        if not token:
            raise bad_request("token is required for TokenReview in authentication")
        found = self._authenticator.verify(str(token), spec.get("audiences") or (API_AUDIENCE,))
        if found is None:
            return {"user": {}, "error": "invalid bearer token"}
        return {"authenticated": True, "user": found.user.document(), "audiences": list(found.audiences)}

    def _access(self, user: User, target: Target, spec: Document) -> Document:
        named = (spec.get("user") or "", spec.get("groups") or ())
        wrong = _check_attributes(spec)
        if not any(named):
            wrong.append(invalid("spec.user", "", "at least one of user or group must be specified"))
        if target.resource.plural == _LOCAL:
            wrong += _check_local(target, spec)
        _refuse(wrong)
        extra = {key: tuple(values) for key, values in (spec.get("extra") or {}).items()}
        about = User(named[0], tuple(named[1]), spec.get("uid") or "", extra)
        return self._decided(about, spec)

    def _own_access(self, user: User, target: Target, spec: Document) -> Document:
        _refuse(_check_attributes(spec))
        return self._decided(user, spec)

    def _decided(self, user: User, spec: Document) -> Document:
        decision = self._authorizer.decide(user, _access_request(spec))
        return {"allowed": decision.allowed, **({"reason": decision.reason} if decision.reason else {})}

    def _own_rules(self, user: User, target: Target, spec: Document) -> Document:
        if not spec.get("namespace"):
            raise bad_request("no namespace on request")
        rules, errors = self._authorizer.rules_for(user, spec["namespace"])
        status: Document = {
            "resourceRules": [rule.document() for rule in rules if rule.resources],
            "nonResourceRules": [rule.document() for rule in rules if rule.paths],
            # Only an authorizer that cannot list its rules would say that some are missing.
            "incomplete": False,
        }
        return {**status, "evaluationError": listed(errors)} if errors else status


def _access_request(spec: Document) -> AccessRequest:
    if paths := spec.get("nonResourceAttributes"):
        return AccessRequest(paths.get("verb") or "", path=paths.get("path") or "")
    asked: Mapping[str, Any] = spec["resourceAttributes"]
    fields = ("verb", "group", "resource", "subresource", "namespace", "name")
    return AccessRequest(*(asked.get(field) or "" for field in fields))


def _check_attributes(spec: Document) -> list[Cause]:
    resource, paths = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and paths is not None:
        shown = {"Path": paths.get("path") or "", "Verb": paths.get("verb") or ""}
        field = "spec.nonResourceAttributes"
        return [invalid(field, shown, "cannot be specified in combination with resourceAttributes")]
    return [invalid("spec.resourceAttributes", None, _ONE_OF_BOTH)] if resource is None and paths is None else []


def _check_local(target: Target, spec: Document) -> list[Cause]:
    paths, resource = spec.get("nonResourceAttributes"), spec.get("resourceAttributes")
    if paths is not None:
        shown = {"Path": paths.get("path") or "", "Verb": paths.get("verb") or ""}
        return [invalid("spec.nonResourceAttributes", shown, "disallowed on this kind of request")]
    if resource is not None and (resource.get("namespace") or "") != target.namespace:
        field = "spec.resourceAttributes.namespace"
        return [invalid(field, resource.get("namespace") or "", "must match metadata.namespace")]
    return []


def _refuse(wrong: list[Cause]) -> None:
    """The real server names no kind here."""
    if not wrong:
        return
    texts = [f"{cause.field}: {cause.message}" for cause in wrong]
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    causes = [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in wrong]
    message = f'.{_AUTHORIZATION} "" is invalid: {listed}'
    raise ApiError(422, "Invalid", message, {"group": _AUTHORIZATION, "causes": causes})


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
