"""Nobody grants what they do not hold: the check of roles and bindings before they are stored.

Who may ``escalate`` roles, or ``bind`` the role that a binding names, is not asked further.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from koordinator.api.document import Document, same
from koordinator.cluster.access.authorizer import Authorizer
from koordinator.cluster.access.identity import User
from koordinator.cluster.access.policy import RBAC_GROUP, Policy
from koordinator.cluster.access.rules import EVERYTHING, AccessRequest, PolicyRule, missing
from koordinator.cluster.admission.chain import Plugin
from koordinator.cluster.errors import forbidden, not_found
from koordinator.cluster.strategy.causes import go_quoted
from koordinator.cluster.verbs.environment import Attributes

_ROLES: Final = ("roles", "clusterroles")
_BINDINGS: Final = ("rolebindings", "clusterrolebindings")
_AGGREGATES: Final = "must have cluster-admin privileges to use the aggregationRule"


class EscalationCheck(Plugin):
    """``policy`` has the roles that bindings name."""

    name = "RoleEscalation"
    resources = tuple((RBAC_GROUP, plural) for plural in (*_ROLES, *_BINDINGS))
    operations = ("CREATE", "UPDATE")

    def __init__(self, authorizer: Authorizer, policy: Policy) -> None:
        self._authorizer = authorizer
        self._policy = policy

    async def validate(self, attributes: Attributes) -> None:
        """Raises ApiError 403, and 404 for a binding to a role that is not there."""
        resource, user = attributes.target.resource, attributes.request.user
        assert attributes.obj is not None
        if user.is_master:
            return
        if resource.plural in _ROLES:
            self._check_role(attributes, user, attributes.obj)
        else:
            self._check_binding(attributes, user, attributes.obj)

    def _check_role(self, attributes: Attributes, user: User, role: Document) -> None:
        target, old = attributes.target, attributes.old or {}
        if attributes.old is not None and all(same(role.get(f), old.get(f)) for f in ("rules", "aggregationRule")):
            return
        name = target.name if attributes.operation == "UPDATE" else ""
        request = AccessRequest("escalate", RBAC_GROUP, target.resource.plural, "", target.namespace or "", name)
        if self._authorizer.decide(user, request).allowed:
            return
        self._check_rules(attributes, user, map(PolicyRule.of, role.get("rules") or ()))
        if any(each.get("aggregationRule") for each in (role, old)):
            held, _ = self._authorizer.rules_for(user, "")
            if missing(held, EVERYTHING):
                raise forbidden(target.resource, target.name, _AGGREGATES)

    def _check_binding(self, attributes: Attributes, user: User, binding: Document) -> None:
        target, old = attributes.target, attributes.old
        if old is not None and all(same(binding.get(field), old.get(field)) for field in ("roleRef", "subjects")):
            return
        role, namespace = binding["roleRef"], target.namespace or ""
        plural = "clusterroles" if role["kind"] == "ClusterRole" else "roles"
        request = AccessRequest("bind", RBAC_GROUP, plural, "", namespace, role["name"])
        if self._authorizer.decide(user, request).allowed:
            return
        rules = self._policy.rules_of(namespace, role)
        if rules is None:
            # As on the real server, under the name of the role.
            raise not_found(target.resource, role["name"])
        self._check_rules(attributes, user, rules)

    def _check_rules(self, attributes: Attributes, user: User, rules: Iterable[PolicyRule]) -> None:
        target = attributes.target
        held, errors = self._authorizer.rules_for(user, target.namespace or "")
        lacking = sorted({str(rule) for rule in missing(held, rules)})
        if not lacking:
            return
        groups = " ".join(map(go_quoted, user.groups))
        why = (
            f"user {go_quoted(user.name)} (groups=[{groups}]) is attempting to grant RBAC permissions not currently "
            "held:\n" + "\n".join(lacking)
        )
        if errors:
            why += f"; resolution errors: [{' '.join(errors)}]"
        raise forbidden(target.resource, target.name, why)
