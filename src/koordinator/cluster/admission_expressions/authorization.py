"""Questions to the authorizer in expressions: ``authorizer.group('').resource('pods').check('create').allowed()``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

import msgspec

from koordinator.cluster.access.identity import User, account_groups, account_name, authenticated
from koordinator.cluster.access.policy import Decision
from koordinator.cluster.access.rules import AccessRequest
from koordinator.model.cel.errors import EvaluationError
from koordinator.model.cel.functions import Overload, overloads
from koordinator.model.cel.types import object_type

_PREFIX: Final = "kubernetes.authorization."
AUTHORIZER: Final = object_type(f"{_PREFIX}Authorizer")
RESOURCE_CHECK: Final = object_type(f"{_PREFIX}ResourceCheck")
Decide = Callable[[User, AccessRequest], Decision]


@dataclass(frozen=True, slots=True)
class Check:
    """A question that is not finished, of one user."""

    user: User
    decide: Decide
    cel_type: ClassVar[str] = f"{_PREFIX}Authorizer"
    cel_opaque: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class _About(Check):
    asked: AccessRequest = field(default_factory=lambda: AccessRequest(""))


@dataclass(frozen=True, slots=True)
class GroupCheck(_About):
    cel_type: ClassVar[str] = f"{_PREFIX}GroupCheck"


@dataclass(frozen=True, slots=True)
class PathCheck(_About):
    cel_type: ClassVar[str] = f"{_PREFIX}PathCheck"


@dataclass(frozen=True, slots=True)
class ResourceCheck(_About):
    cel_type: ClassVar[str] = f"{_PREFIX}ResourceCheck"


@dataclass(frozen=True, slots=True)
class DecisionValue:
    decision: Decision
    cel_type: ClassVar[str] = f"{_PREFIX}Decision"
    cel_opaque: ClassVar[bool] = True


def _named(text: str, what: str) -> str:
    if not text.strip():
        raise EvaluationError(f"{what} must not be empty")
    return text


def _account(check: Check, namespace: str, name: str) -> Check:
    user = authenticated(account_name(namespace, name), account_groups(namespace))
    return replace(check, user=user)


def _asked(check: _About, **named: str) -> AccessRequest:
    """The question, with something more of it named."""
    return msgspec.structs.replace(check.asked, **named)


def _path(check: Check, path: str) -> PathCheck:
    return PathCheck(check.user, check.decide, AccessRequest("", path=_named(path, "path")))


def _group(check: Check, group: str) -> GroupCheck:
    return GroupCheck(check.user, check.decide, AccessRequest("", group=group))


def _resource(check: GroupCheck, resource: str) -> ResourceCheck:
    asked = _asked(check, resource=_named(resource, "resource"))
    return ResourceCheck(check.user, check.decide, asked)


def _with(name: str) -> Callable[[ResourceCheck, str], ResourceCheck]:
    return lambda check, value: replace(check, asked=_asked(check, **{name: value}))


def _check(check: ResourceCheck | PathCheck, verb: str) -> DecisionValue:
    return DecisionValue(check.decide(check.user, _asked(check, verb=verb)))


AUTHORIZATION: Final[list[Overload]] = overloads((
    ("authorizer_path", f"{_PREFIX}Authorizer->path(string): {_PREFIX}PathCheck", _path),
    ("authorizer_group", f"{_PREFIX}Authorizer->group(string): {_PREFIX}GroupCheck", _group),
    ("authorizer_serviceaccount", f"{_PREFIX}Authorizer->serviceAccount(string, string): {_PREFIX}Authorizer",
     _account),
    ("groupcheck_resource", f"{_PREFIX}GroupCheck->resource(string): {_PREFIX}ResourceCheck", _resource),
    *(
        (f"resourcecheck_{name}", f"{_PREFIX}ResourceCheck->{name}(string): {_PREFIX}ResourceCheck", _with(name))
        for name in ("subresource", "namespace", "name")
    ),
    *(
        # No rule of this server looks at selectors.
        (f"authorizer_{name.lower()}", f"{_PREFIX}ResourceCheck->{name}(string): {_PREFIX}ResourceCheck",
         lambda check, selector: check)
        for name in ("fieldSelector", "labelSelector")
    ),
    ("pathcheck_check", f"{_PREFIX}PathCheck->check(string): {_PREFIX}Decision", _check),
    ("resourcecheck_check", f"{_PREFIX}ResourceCheck->check(string): {_PREFIX}Decision", _check),
    ("decision_errored", f"{_PREFIX}Decision->errored(): bool", lambda of: False),
    ("decision_error", f"{_PREFIX}Decision->error(): string", lambda of: ""),
    ("decision_allowed", f"{_PREFIX}Decision->allowed(): bool", lambda of: of.decision.allowed),
    ("decision_reason", f"{_PREFIX}Decision->reason(): string", lambda of: of.decision.reason),
))  # fmt: skip
