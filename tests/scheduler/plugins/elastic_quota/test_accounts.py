"""The sums and shares of quotas: the same after any sequence of events as when computed anew."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.elastic_quota import DEFAULT_QUOTA
from koordinator.api.meta import ObjectMeta
from koordinator.scheduler.plugins.elastic_quota.accounts import Accounts, CountedPod, PodKind
from tests.model.quota_tree.quota_objects import wire_quota
from tests.scheduler.plugins.elastic_quota.random_accounts import SETTINGS, Model, check_sums, events, numbers


def pod(uid: str, quota: str, cpu: int, *, assigned: bool = False, namespace: str = "default") -> CountedPod:
    return CountedPod(uid, f"{namespace}/{uid}", PodKind((quota, namespace), {"cpu": cpu}), assigned)


def two_children() -> Accounts:
    """10 CPUs; a and b keep 4 each and may use 8."""
    accounts = Accounts(SETTINGS)
    accounts.set_node("n", {"cpu": 10_000})
    accounts.set_quota(wire_quota("top", is_parent=True, max={"cpu": 10}, min={"cpu": 10}))
    for name in ("a", "b"):
        accounts.set_quota(wire_quota(name, parent="top", max={"cpu": 8}, min={"cpu": 4}))
    return accounts


def runtime(accounts: Accounts, name: str) -> int:
    return accounts.forest.runtime(accounts.forest.nodes[name])["cpu"]


def test_what_one_does_not_request_the_other_may_use() -> None:
    accounts = two_children()
    accounts.set_pod(pod("p", "a", 8000))
    assert runtime(accounts, "a") == 8000


def test_what_was_lent_is_taken_back_when_it_is_requested() -> None:
    accounts = two_children()
    accounts.set_pod(pod("p", "a", 8000))
    accounts.set_pod(pod("r", "b", 4000))
    assert (runtime(accounts, "a"), runtime(accounts, "b")) == (6000, 4000)


def test_what_the_default_quota_uses_is_not_shared() -> None:
    accounts = two_children()
    accounts.set_pod(pod("p", "a", 8000))
    accounts.set_pod(pod("x", "", 5000, assigned=True))
    assert runtime(accounts, "a") == 5000


def test_pods_find_their_quota_when_it_comes_and_leave_it_when_it_goes() -> None:
    accounts = two_children()
    accounts.set_pod(pod("p", "late", 1000, assigned=True))
    default = accounts.forest.nodes["koordinator-default-quota"]
    assert default.total.used == {"cpu": 1000}
    accounts.set_quota(wire_quota("late", max={"cpu": 8}))
    assert accounts.forest.nodes["late"].total.used == {"cpu": 1000}
    accounts.remove_quota("kube-system/late")
    assert accounts.forest.nodes["koordinator-default-quota"].total.used == {"cpu": 1000}


def test_a_namespace_is_bound_by_a_quota_of_its_name_before_an_annotation() -> None:
    accounts = Accounts(SETTINGS)
    accounts.set_quota(wire_quota("claims", max={"cpu": 8}, annotations={"namespaces": ["team"]}))
    member = pod("p", "", 1000, namespace="team")
    accounts.set_pod(member)
    assert accounts.forest.nodes["claims"].own.request == {"cpu": 1000}
    accounts.set_quota(wire_quota("team", namespace="team", max={"cpu": 8}))
    assert accounts.forest.nodes["team"].own.request == {"cpu": 1000}


def test_a_pod_that_only_gets_its_node_changes_no_share() -> None:
    accounts = two_children()
    pending = pod("p", "a", 1000)
    accounts.set_pod(pending)
    top = accounts.forest.nodes["top"]
    before = top.version
    accounts.assign(pending, True)
    top = accounts.forest.nodes["top"]
    assert top.version == before
    assert top.total.used == {"cpu": 1000}


@pytest.mark.parametrize("gates", [{}, {"guarantees_usage": True}, {"scales_min": False}, {"by_tree": True}])
@given(seed=st.integers(0, 2**32))
def test_any_sequence_of_events_ends_as_if_all_had_been_known_at_once(gates: dict[str, Any], seed: int) -> None:
    random, model = Random(seed), Model()
    settings = replace(SETTINGS, **gates)
    accounts = Accounts(settings)
    for index, (method, argument) in enumerate(events(random, 60, pods=12)):
        model.apply(accounts, method, argument)
        if index % 15 == 0:
            assert numbers(accounts) == numbers(model.rebuilt(settings, random))
    assert numbers(accounts) == numbers(model.rebuilt(settings, random))


@given(seed=st.integers(0, 2**32))
def test_used_is_the_sum_over_assigned_pods_and_shares_stay_within_what_there_is(seed: int) -> None:
    random, model, accounts = Random(seed), Model(), Accounts(SETTINGS)
    for index, (method, argument) in enumerate(events(random, 60, pods=12)):
        model.apply(accounts, method, argument)
        if index % 10 == 0:
            check_sums(accounts, model)
    check_sums(accounts, model)


@pytest.mark.slow
def test_a_hundred_thousand_events_leave_no_trace() -> None:
    random, model, accounts = Random(1), Model(), Accounts(SETTINGS)
    for index, (method, argument) in enumerate(events(random, 100_000, pods=2_000)):
        model.apply(accounts, method, argument)
        if index % 5_000 == 0:
            check_sums(accounts, model)
            assert numbers(accounts) == numbers(model.rebuilt(SETTINGS, random))
    check_sums(accounts, model)
    assert numbers(accounts) == numbers(model.rebuilt(SETTINGS, random))


@pytest.mark.parametrize(("most", "admits_all"), [(1 << 62, True), (4000, False)])
def test_the_default_quota_admits_all_where_it_has_no_limit_of_its_own(most: int, admits_all: bool) -> None:
    accounts = Accounts(replace(SETTINGS, default_max={"cpu": most}))
    member = ObjectMeta(name="p", namespace="team")
    accounts.set_pod(pod("p", "", 1000, namespace="team"))
    assert accounts.forest.nodes[DEFAULT_QUOTA].own.request == {"cpu": 1000}
    assert accounts.admits_all(member) is admits_all


def test_a_quota_that_claims_the_namespace_ends_that_all_are_admitted() -> None:
    accounts = Accounts(replace(SETTINGS, default_max={"cpu": 1 << 62}))
    member = ObjectMeta(name="p", namespace="team")
    accounts.set_pod(pod("p", "", 1000, namespace="team"))
    assert accounts.node_of(member) is not None
    accounts.set_quota(wire_quota("team", namespace="team", max={"cpu": 8}))
    assert not accounts.admits_all(member)
    assert accounts.forest.nodes["team"].own.request == {"cpu": 1000}
    assert not accounts.admits_all(member)
