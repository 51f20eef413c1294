"""What people are told of a gang's place in the network."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.codec import to_document
from koordinator.api.kinds import CLUSTER_NETWORK_TOPOLOGIES
from koordinator.api.pod import Pod
from koordinator.scheduler.engine.framework_hooks import ServiceProvider
from tests.scheduler.plugins.coscheduling.gang_fakes import member
from tests.scheduler.plugins.coscheduling.network_topology.networks import SPEC, cluster_network_topology
from tests.scheduler.plugins.coscheduling.network_topology.topology_stories import (
    FOUR_BLOCKS,
    members,
    network,
    play,
    profile,
    spec,
)
from tests.scheduler.running_scheduler import RunningScheduler
from tests.scheduler.scheduler_api import SchedulerApi


def explained(pods: list[Pod], api: SchedulerApi, later: Any = None, **options: bool) -> dict[str, Any] | None:
    """What there is about the network in the explanation of gang g; ``later`` is what becomes of its layers."""

    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle()
        if later is not None:
            fixture.api.store(cluster_network_topology(later), CLUSTER_NETWORK_TOPOLOGIES)
        for pod in pods:
            fixture.api.store(pod)
        await fixture.until_idle(5)

    fixture = play(story, api, profile(**options))
    provider = fixture.scheduler.engines["koord-scheduler"].profile.first(ServiceProvider)
    assert provider is not None
    explain = provider.services()["/gang/:namespace/:name/explanation"]
    found: dict[str, Any] | None = to_document(explain({"namespace": "default", "name": "g"})).get("network")
    return found


def test_the_domain_that_was_chosen_is_named_with_its_nodes() -> None:
    found = explained(members(3), network({"n4": 2}))
    assert found is not None
    assert (found["domain"], found["domainSlots"]) == ("BlockLayer/b2", [])
    assert found["sentences"] == ["The smallest domain that can take all 3 members is BlockLayer/b2: 2 on n4, 1 on n5."]


def test_the_whole_network_has_no_name() -> None:
    found = explained(members(5, "{}"), network({}))
    assert found is not None
    assert found["sentences"][0].startswith(
        "The smallest domain that can take all 5 members is the whole network: 1 on"
    )


def test_the_capacity_of_each_domain_is_shown_where_none_has_enough() -> None:
    found = explained(members(3), network({"n3": 0}))
    assert found is not None
    assert found["sentences"] == ["No domain of BlockLayer can take all 3 members."]
    assert [tuple(each.values()) for each in found["domainSlots"]] == [
        ("BlockLayer/b0", 2),
        ("BlockLayer/b2", 2),
        ("BlockLayer/b3", 2),
        ("BlockLayer/b1", 1),
    ]


def test_multiples_and_nodes_in_no_domain_are_named() -> None:
    places = {**FOUR_BLOCKS, "n7": "/b3"}
    found = explained(members(9, spec(("BlockLayer", "PreferGather", 3))), network({}, places))
    assert found is not None
    assert found["sentences"] == [
        "The number of members in each domain of BlockLayer must be a multiple of 3.",
        "The whole network cannot take all 9 members.",
        'Nodes that are in no domain take no members: node "n7" missing network topology layer "SpineLayer".',
    ]


def test_a_layer_that_nobody_knows_is_said() -> None:
    found = explained(members(2, spec(("RackLayer", "MustGather"))), network({}))
    assert found is not None
    assert found["sentences"] == [
        "All members must be gathered in one domain of RackLayer, which is not a layer of the network: "
        "ClusterTopologyLayer, SpineLayer, BlockLayer, NodeTopologyLayer."
    ]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"aware": False}, "It is not heeded: awareNetworkTopology is false in the CoschedulingArgs of the profile."),
        (
            {"followed": False},
            "The network is not known: koord-scheduler runs without --enable-network-topology-manager.",
        ),
        ({}, "There is no ClusterNetworkTopology named default."),
    ],
)
def test_what_is_missing_is_said(options: dict[str, bool], text: str) -> None:
    found = explained(members(2), network({}, known=False), **options)
    assert found is not None
    assert found["sentences"][0] == text


def test_what_is_wrong_with_the_layers_is_said() -> None:
    text = 'The ClusterNetworkTopology default cannot be used: topology layer "NodeTopologyLayer" not found in spec'
    for known, more in ((True, "; the layers that it had before count."), (False, ".")):
        found = explained(members(2), network({}, known=known), SPEC[:1])
        assert found is not None
        assert found["sentences"][0] == text + more
        assert bool(found["domain"]) is known


def test_a_gang_that_has_not_been_tried_is_said() -> None:
    found = explained(members(2)[:1], network({}))
    assert found is not None
    assert found["sentences"] == ["No attempt has been made to find it yet."]


def test_a_gang_that_requests_nothing_has_nothing() -> None:
    assert explained([member("g", number, 2) for number in range(2)], network({})) is None
