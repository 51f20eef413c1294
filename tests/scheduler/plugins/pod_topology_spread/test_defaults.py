"""Default constraints: who has them, and what their selector follows from."""

from __future__ import annotations

import pytest

from koordinator.api.kinds import REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS
from koordinator.api.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta, OwnerReference
from koordinator.api.pod import Pod, PodSpec, TopologySpreadConstraint
from koordinator.model.label_selector import SelectorError
from koordinator.scheduler.configuration.upstream_arguments import PodTopologySpreadArgs
from koordinator.scheduler.engine.framework import SKIP_SCORE
from koordinator.scheduler.plugins.pod_topology_spread.plugin import DefaultSelectors
from tests.scheduler.plugins.pod_topology_spread.constraints import has, spread
from tests.scheduler.plugins.pod_topology_spread.fixtures import ClusterFixture, spread_pod


def owned(kind: str = "", version: str = "apps/v1", *constraints: TopologySpreadConstraint) -> Pod:
    owner = OwnerReference(api_version=version, kind=kind, name="owner", controller=True)
    metadata = ObjectMeta(
        name="p",
        namespace="default",
        uid="p",
        labels={"app": "a", "tier": "b"},
        owner_references=[owner] if kind else [],
    )
    return Pod(metadata=metadata, spec=PodSpec(topology_spread_constraints=list(constraints)))


def listed(*constraints: TopologySpreadConstraint) -> ClusterFixture:
    return ClusterFixture(PodTopologySpreadArgs(default_constraints=list(constraints), defaulting_type="List"))


def selects(fixture: ClusterFixture, pod: Pod, **labels: str) -> bool:
    selectors: DefaultSelectors = fixture.plugin.selectors
    selector = selectors.selector(fixture.info(pod))
    return not selector.empty and selector.matches(labels)


def test_services_that_select_the_pod_are_merged() -> None:
    fixture = ClusterFixture()
    fixture.set_service("one", {"app": "a"})
    fixture.set_service("other", {"tier": "b"})
    fixture.set_service("unrelated", {"app": "x"})
    fixture.set_service("elsewhere", {"app": "a", "tier": "b"}, "other")
    assert selects(fixture, owned(), app="a", tier="b")
    assert not selects(fixture, owned(), app="a")
    assert not selects(fixture, owned(), tier="b")


@pytest.mark.parametrize(
    ("kind", "version", "found"),
    [
        ("ReplicaSet", "apps/v1", True),
        ("StatefulSet", "apps/v1", True),
        ("ReplicationController", "v1", True),
        ("ReplicaSet", "extensions/v1beta1", False),
        ("ReplicationController", "apps/v1", False),
        ("DaemonSet", "apps/v1", False),
    ],
)
def test_controllers(kind: str, version: str, found: bool) -> None:
    fixture = ClusterFixture()
    for each in (REPLICA_SETS, STATEFUL_SETS, REPLICATION_CONTROLLERS):
        fixture.set_controller(each, LabelSelector(match_labels={"set": each.name}))
    assert selects(fixture, owned(kind, version), set=kind) is found


def test_a_controller_narrows_what_services_select() -> None:
    fixture = ClusterFixture()
    fixture.set_service("one", {"app": "a"})
    fixture.set_controller(REPLICA_SETS, has("hash"))
    assert selects(fixture, owned("ReplicaSet"), app="a", hash="1")
    assert not selects(fixture, owned("ReplicaSet"), app="a")
    assert not selects(fixture, owned("ReplicaSet"), hash="1")


@pytest.mark.parametrize("selector", [None, LabelSelector(match_expressions=[LabelSelectorRequirement(key="a")])])
def test_a_controller_without_a_usable_selector_adds_nothing(selector: LabelSelector | None) -> None:
    fixture = ClusterFixture()
    fixture.set_service("one", {"app": "a"})
    fixture.set_controller(STATEFUL_SETS, selector)
    assert selects(fixture, owned("StatefulSet"), app="a")


def test_the_selector_follows_its_objects() -> None:
    fixture = ClusterFixture()
    pod, selectors = fixture.info(owned()), fixture.plugin.selectors
    assert selectors.selector(pod).empty
    fixture.set_service("one", {"app": "a"})
    assert selectors.selector(pod).required == {"app": "a"}
    fixture.set_service("one", {"tier": "b"})
    assert selectors.selector(pod).required == {"tier": "b"}
    fixture.set_service("one", None)
    assert selectors.selector(pod).empty


def test_defaults_are_for_pods_without_constraints_of_their_own() -> None:
    fixture = listed(spread("zone"))
    fixture.set_service("one", {"app": "a"})
    (constraint,) = fixture.plugin.constraints(fixture.info(owned())).hard
    assert constraint.topology_key == "zone"
    (constraint,) = fixture.plugin.constraints(fixture.info(owned("", "", spread("rack", selector=None)))).hard
    assert constraint.topology_key == "rack"


def test_defaults_are_for_pods_that_belong_to_something() -> None:
    fixture = listed(spread("zone"))
    fixture.set_service("one", {"baz": "kep"})
    assert fixture.plugin.pre_filter(fixture.info(owned())).skip


def test_a_pod_is_concerned_since_it_belongs_to_something() -> None:
    fixture = listed(spread("zone"))
    pod = fixture.info(spread_pod("x", {"app": "a"}))
    alone = fixture.profile.class_key(pod)
    fixture.set_service("web", {"app": "a"})
    assert fixture.profile.class_key(pod) != alone
    fixture.set_service("web", None)
    assert fixture.profile.class_key(pod) == alone


def test_an_empty_list_of_defaults_is_none() -> None:
    fixture = listed()
    fixture.set_service("one", {"app": "a"})
    assert fixture.plugin.pre_filter(fixture.info(owned())).skip
    assert fixture.plugin.pre_score(fixture.info(owned())) is SKIP_SCORE


def test_the_system_prefers_but_never_forbids() -> None:
    fixture = ClusterFixture()
    fixture.set_service("one", {"app": "a"})
    assert fixture.plugin.pre_filter(fixture.info(owned())).skip
    assert fixture.plugin.pre_score(fixture.info(owned())) is not SKIP_SCORE


def test_a_selector_that_cannot_be_used_is_an_error() -> None:
    fixture = ClusterFixture()
    broken = LabelSelector(match_expressions=[LabelSelectorRequirement(key="a", operator="Like")])
    with pytest.raises(SelectorError):
        fixture.plugin.class_key(fixture.info(owned("", "", spread("zone", selector=broken))))
