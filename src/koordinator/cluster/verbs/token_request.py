"""POST serviceaccounts/NAME/token: a new token of the account, which is shown once and stored nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.canonical import WrongType, canonicalize
from koordinator.api.kubernetes_types.table import named
from koordinator.api.timestamps import format_time
from koordinator.cluster.access.identity import API_AUDIENCE
from koordinator.cluster.errors import bad_request, conflict, invalid, not_found, unknown_path
from koordinator.cluster.resource import Cause, Resource
from koordinator.cluster.service_account_tokens import Claims, Reference
from koordinator.cluster.strategy import causes
from koordinator.cluster.strategy.nothing_stored import NothingStored
from koordinator.cluster.verbs.environment import Attributes, Environment, plugins_mutate
from koordinator.cluster.verbs.options import WriteOptions
from koordinator.cluster.verbs.target import Target, check_form

TOKEN_REQUEST: Final = Resource(
    group="authentication.k8s.io",
    version="v1",
    plural="tokenrequests",
    kind="TokenRequest",
    namespaced=True,
    strategy=NothingStored(),
    verbs=("create",),
)
"""The form of the body; there is no collection of that name."""
_TYPE: Final = named("io.k8s.api.authentication.v1.TokenRequest")
_USUAL_SECONDS: Final = 3600
_LEAST_SECONDS: Final = 600
_MOST_SECONDS: Final = 1 << 32
_BOUND: Final = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}


async def request_token(environment: Environment, target: Target, body: Document, options: WriteOptions) -> Document:
    """Returns the TokenRequest with its token. Raises ApiError: 404 without the account or what is to be bound to."""
    if environment.account_tokens is None:
        raise unknown_path()
    account = environment.lookup("", "serviceaccounts", target.namespace, target.name)
    if account is None:
        raise not_found(target.resource, target.name)
    check_form(TOKEN_REQUEST, body, TOKEN_REQUEST.api_version)
    try:
        canonicalize(body, _TYPE)
    except WrongType as error:
        raise bad_request(f'TokenRequest in version "v1" cannot be handled as a TokenRequest: {error}') from error
    context = environment.context(options.warnings, options.user)
    kind = (TOKEN_REQUEST.group, TOKEN_REQUEST.version, TOKEN_REQUEST.kind)
    attributes = Attributes("CREATE", target, body, None, context, options, body_kind=kind)
    await plugins_mutate(environment.admission, attributes)
    now, spec = environment.clock.now(), body.get("spec") or {}
    lifetime = spec.get("expirationSeconds")
    lifetime = _USUAL_SECONDS if lifetime is None else lifetime
    if wrong := _check(target, body.get("metadata") or {}, lifetime):
        raise invalid(TOKEN_REQUEST, target.name if wrong[0].field.startswith("metadata") else "", wrong)
    issued = int(now.timestamp())
    claims = Claims(
        namespace=target.namespace or "",
        account=Reference("serviceaccount", target.name, account["metadata"]["uid"]),
        audiences=tuple(spec.get("audiences") or (API_AUDIENCE,)),
        issued=issued,
        expires=issued + lifetime,
        token_id=environment.new_uid(),
        bound=_bound(environment, target, spec.get("boundObjectRef")),
    )
    token = environment.account_tokens.issue(claims)
    return _response(claims, token, spec.get("boundObjectRef"), now)


def _response(claims: Claims, token: str, reference: Document | None, now: datetime) -> Document:
    return {
        "apiVersion": TOKEN_REQUEST.api_version,
        "kind": TOKEN_REQUEST.kind,
        "metadata": {
            "name": claims.account.name,
            "namespace": claims.namespace,
            "uid": claims.account.uid,
            "creationTimestamp": format_time(now),
        },
        "spec": {
            "audiences": list(claims.audiences),
            "expirationSeconds": claims.expires - claims.issued,
            "boundObjectRef": reference,
        },
        "status": {
            "token": token,
            "expirationTimestamp": format_time(now.fromtimestamp(claims.expires, now.tzinfo)),
        },
    }


def _check(target: Target, metadata: Mapping[str, Any], lifetime: int) -> list[Cause]:
    wrong: list[Cause] = []
    for field, expected, what in (("name", target.name, "name"), ("namespace", target.namespace, "namespace")):
        if metadata.get(field) and metadata[field] != expected:
            detail = f"must match the service account {what} if specified"
            wrong.append(causes.invalid(f"metadata.{field}", metadata[field], detail))
    if wrong:
        return wrong
    if lifetime < _LEAST_SECONDS:
        detail = "may not specify a duration less than 10 minutes"
        wrong.append(causes.invalid("spec.expirationSeconds", lifetime, detail))
    if lifetime > _MOST_SECONDS:
        detail = "may not specify a duration larger than 2^32 seconds"
        wrong.append(causes.invalid("spec.expirationSeconds", lifetime, detail))
    return wrong


def _bound(environment: Environment, target: Target, reference: Mapping[str, Any] | None) -> Reference | None:
    """What the token lives as long as. Raises ApiError."""
    if not reference:
        return None
    kind, name = str(reference.get("kind") or ""), str(reference.get("name") or "")
    plural = _BOUND.get(kind)
    if plural is None or reference.get("apiVersion") != "v1":
        raise bad_request(f"cannot bind token for serviceaccount {target.name!r} to {kind or 'an object of no kind'!r}")
    resource = environment.registry.stored["", plural]
    assert resource is not None
    found = environment.lookup("", plural, target.namespace if resource.namespaced else None, name)
    if found is None:
        raise not_found(resource, name)
    uid = found["metadata"]["uid"]
    if reference.get("uid") not in (None, "", uid):
        why = f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record ({uid}). "
        raise conflict(resource, name, why + "The object might have been deleted and then recreated")
    if kind == "Pod" and (found["spec"].get("serviceAccountName") or "") != target.name:
        why = f'cannot bind token for serviceaccount "{target.name}" to pod running with different serviceaccount name.'
        raise bad_request(why)
    return Reference(kind.lower(), name, uid)
