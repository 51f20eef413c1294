"""The index of roles and bindings says what a walk over all of them says, whatever came and went before."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.cluster.access.authorizer import AlwaysAllow, RoleBased
from koordinator.cluster.access.identity import ADMIN, MASTERS, User
from koordinator.cluster.access.policy import Policy
from koordinator.cluster.access.rules import AccessRequest, PolicyRule, missing
from tests.cluster.access.cases import (
    NAMESPACES,
    REQUESTS,
    USERS_WITH_GROUPS,
    RbacObject,
    objects,
    rules,
    slow_rules,
    slowly_allowed,
)
from tests.examples import examples

QUESTIONS = st.lists(st.tuples(USERS_WITH_GROUPS, REQUESTS), min_size=5, max_size=20)


@given(st.lists(st.tuples(st.sampled_from(("put", "put", "put", "remove", "ask")), objects()), max_size=25), QUESTIONS)
@settings(max_examples=examples(300))
def test_the_index_agrees_with_a_walk_over_everything(
    changes: list[tuple[str, RbacObject]], questions: list[tuple[User, AccessRequest]]
) -> None:
    policy = Policy()
    store: dict[tuple[str, str, str], dict[str, Any]] = {}
    for change, obj in changes:
        key = (obj.kind, obj.namespace, obj.name)
        if change == "put":
            store[key] = obj.document
            policy.put(obj.kind, obj.document)
        elif change == "remove":
            store.pop(key, None)
            policy.remove(obj.kind, obj.namespace, obj.name)
        else:
            # What was answered before must not be remembered for longer than it is true.
            _compare(policy, store, questions[:3])
    _compare(policy, store, questions)


def _compare(
    policy: Policy, store: dict[tuple[str, str, str], dict[str, Any]], questions: list[tuple[User, AccessRequest]]
) -> None:
    for user, request in questions:
        assert policy.decide(user, request).allowed == slowly_allowed(store, user, request), (user, request)
    for user, _ in questions[:2]:
        for namespace in ("", *NAMESPACES):
            held, _ = policy.rules_for(user, namespace)
            assert set(held) == {PolicyRule.of(rule) for rule in slow_rules(store, user, namespace)}


@given(rules(paths=True), rules(paths=True), st.lists(REQUESTS, max_size=20))
@settings(max_examples=examples(300))
def test_who_holds_what_covers_a_role_may_do_all_that_the_role_permits(
    held: list[dict[str, Any]], wanted: list[dict[str, Any]], requests: list[AccessRequest]
) -> None:
    mine, theirs = [*map(PolicyRule.of, held)], [*map(PolicyRule.of, wanted)]
    lacking = missing(mine, theirs)
    assert missing([*mine, *lacking], theirs) == []
    for request in requests:
        if _permits(theirs, request):
            assert _permits([*mine, *lacking], request)


def _permits(held: list[PolicyRule], request: AccessRequest) -> bool:
    policy = Policy()
    policy.put("clusterroles", {"metadata": {"name": "r"}, "rules": [rule.document() for rule in held]})
    policy.put("clusterrolebindings", _binding("r", "jane"))
    return policy.decide(User("jane"), request).allowed


def _binding(role: str, user: str) -> dict[str, Any]:
    reference = {"kind": "ClusterRole", "name": role}
    return {"metadata": {"name": f"{user}-{role}"}, "roleRef": reference, "subjects": [{"kind": "User", "name": user}]}


def test_a_decision_names_the_binding_that_permits_it() -> None:
    policy = Policy()
    policy.put("clusterroles", {"metadata": {"name": "r"}, "rules": [{"verbs": ["*"], "nonResourceURLs": ["/x"]}]})
    policy.put("clusterrolebindings", _binding("r", "jane"))
    decision = policy.decide(User("jane"), AccessRequest("get", path="/x"))
    reason = 'RBAC: allowed by ClusterRoleBinding "jane-r" of ClusterRole "r" to User "jane"'
    assert decision == (True, reason)


def test_a_refusal_names_the_roles_that_are_missing() -> None:
    policy = Policy()
    policy.put("clusterrolebindings", _binding("gone", "jane"))
    missing_one = 'clusterrole.rbac.authorization.k8s.io "gone" not found'
    assert policy.decide(User("jane"), AccessRequest("get", path="/x")) == (False, f"RBAC: {missing_one}")
    policy.put("clusterrolebindings", _binding("lost", "jane"))
    reason = f'RBAC: [{missing_one}, clusterrole.rbac.authorization.k8s.io "lost" not found]'
    assert policy.decide(User("jane"), AccessRequest("get", path="/x")) == (False, reason)


@pytest.mark.parametrize("request_", [AccessRequest("delete", "apps", "deployments"), AccessRequest("get", path="/x")])
def test_masters_may_do_everything_without_a_role(request_: AccessRequest) -> None:
    authorizer = RoleBased(Policy())
    assert authorizer.decide(User("eve", (MASTERS,)), request_).allowed
    assert not authorizer.decide(User("eve"), request_).allowed


def test_where_everything_is_permitted_nobody_acts_as_somebody_else() -> None:
    authorizer = AlwaysAllow()
    assert authorizer.decide(User("eve"), AccessRequest("delete", "", "nodes")).allowed
    refused = authorizer.decide(ADMIN, AccessRequest("impersonate", "", "users", name="eve"))
    assert not refused.allowed
    assert "--authorization-mode=RBAC" in refused.reason
