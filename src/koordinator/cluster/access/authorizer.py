"""Who may do what: by roles, or everything for everybody who is known."""

from __future__ import annotations

import argparse
from enum import StrEnum
from typing import Final, Protocol

from koordinator.cluster.access.identity import User
from koordinator.cluster.access.policy import Decision, Policy
from koordinator.cluster.access.rules import EVERYTHING, AccessRequest, PolicyRule

IMPERSONATE: Final = "impersonate"


class AuthorizationMode(StrEnum):
    """By the names that kube-apiserver has for them."""

    ALWAYS_ALLOW = "AlwaysAllow"
    RBAC = "RBAC"
    NODE_RBAC = "Node,RBAC"

    @property
    def by_roles(self) -> bool:
        """Whether anybody is refused anything."""
        return self is not AuthorizationMode.ALWAYS_ALLOW

    @classmethod
    def parsed(cls, text: str) -> AuthorizationMode:
        """The value of a flag, for argparse; the case of letters does not matter."""
        for mode in cls:
            if text.lower() == mode.lower():
                return mode
        raise argparse.ArgumentTypeError(f"{text!r}: allowed are {', '.join(map(repr, map(str, cls)))}")


class Authorizer(Protocol):
    """Decides on what is in memory, without waiting for anything."""

    @property
    def permits_all(self) -> bool:
        """Whether everything is permitted to everybody, save to act as somebody else."""
        ...

    def decide(self, user: User, request: AccessRequest) -> Decision: ...

    def rules_for(self, user: User, namespace: str) -> tuple[list[PolicyRule], list[str]]:
        """The rules that hold for the user there, and what is missing from them."""
        ...


_NOT_IMPERSONATED: Final = (
    "this server permits everything to everybody, so that acting as somebody else would only hide who it was; "
    f"impersonation works with --authorization-mode={AuthorizationMode.RBAC}"
)


class AlwaysAllow:
    """Everything is permitted to whoever has a credential.

    Impersonation is not: what is tried out as a user of few rights would be done with all of them.
    """

    permits_all = True

    def decide(self, user: User, request: AccessRequest) -> Decision:
        return Decision(False, _NOT_IMPERSONATED) if request.verb == IMPERSONATE else Decision(True)

    def rules_for(self, user: User, namespace: str) -> tuple[list[PolicyRule], list[str]]:
        return list(EVERYTHING), []


class RoleBased:
    """By the roles of the cluster; members of system:masters may do everything without one."""

    permits_all = False

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def decide(self, user: User, request: AccessRequest) -> Decision:
        return Decision(True) if user.is_master else self._policy.decide(user, request)

    def rules_for(self, user: User, namespace: str) -> tuple[list[PolicyRule], list[str]]:
        return self._policy.rules_for(user, namespace)
