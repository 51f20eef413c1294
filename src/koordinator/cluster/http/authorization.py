"""What a request is about as authorization sees it, and the refusal of what is not permitted."""

from __future__ import annotations

import re
from typing import Any, Final

from aiohttp import web

from koordinator.cluster.access.authorizer import Authorizer
from koordinator.cluster.access.identity import User
from koordinator.cluster.access.rules import AccessRequest
from koordinator.cluster.errors import ApiError
from koordinator.cluster.http.request import ResourcePath
from koordinator.cluster.strategy.causes import go_quoted
from koordinator.cluster.verbs.target import Target

_VERBS: Final = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_COLLECTION: Final = {"get": "list", "delete": "deletecollection"}
_ONE_NAME: Final = re.compile(r"(?:^|,)metadata\.name==?([^,]+)")


def access_request(request: web.BaseRequest, path: ResourcePath | None, *, is_watch: bool) -> AccessRequest:
    """``path`` is None for what is no resource."""
    if path is None:
        return AccessRequest(request.method.lower(), path=request.path)
    verb, name = _VERBS.get(request.method, ""), path.name
    if is_watch:
        verb = "watch"
    elif not name:
        verb = _OF_COLLECTION.get(verb, verb)
    if not name and "fieldSelector" in request.rel_url.raw_query_string:
        # Who may read one object may list and watch it.
        found = _ONE_NAME.search(request.query.get("fieldSelector", ""))
        name = found[1] if found is not None and verb in ("list", "watch", "deletecollection") else ""
    namespace = path.namespace or ""
    if path.plural == "namespaces" and not path.group:
        # A namespace is in itself: a role in it may permit to read it.
        namespace = path.name
    return AccessRequest(verb, path.group, path.plural, path.subresource.partition("/")[0], namespace, name)


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
