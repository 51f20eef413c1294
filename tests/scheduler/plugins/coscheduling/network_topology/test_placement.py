"""Gangs that request a place in the network, through the whole scheduler."""

from __future__ import annotations

import pytest

from koordinator.api.kinds import CLUSTER_NETWORK_TOPOLOGIES, POD_GROUPS
from koordinator.scheduler.debug_output import diagnosis
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.decision import Rejection
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.framework_hooks import DiagnosisPlugin
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.coscheduling.plugin import Coscheduling
from tests.scheduler.fakes import make_node, make_pod
from tests.scheduler.plugins.coscheduling.gang_fakes import with_annotations
from tests.scheduler.plugins.coscheduling.network_topology.networks import cluster_network_topology, place
from tests.scheduler.plugins.coscheduling.network_topology.topology_stories import (
    FOUR_BLOCKS,
    GATHERED,
    members,
    network,
    notes,
    placed,
    play,
    profile,
    spec,
)
from tests.scheduler.running_scheduler import RunningScheduler

INDEX = "gang.scheduling.koordinator.sh/network-topology-index"
SELECTOR = "scheduling.koordinator.sh/network-topology-selector"


def test_a_gang_gets_the_smallest_domain_that_holds_it() -> None:
    found = placed(members(4), network({"n4": 2, "n5": 2}))
    assert found == {"g-0": "n4", "g-1": "n4", "g-2": "n5", "g-3": "n5"}


def test_a_gang_may_spread_over_what_it_need_not_be_gathered_in() -> None:
    found = placed(members(4, spec(("SpineLayer", "MustGather"), ("BlockLayer", "PreferGather"))), network({}))
    assert set(found.values()) == {"n0", "n1", "n2", "n3"}


def test_without_rules_the_smallest_domain_is_taken_as_well() -> None:
    assert set(placed(members(2, "{}"), network({})).values()) == {"n0", "n1"}


def test_domains_take_multiples() -> None:
    found = placed(members(4, spec(("BlockLayer", "PreferGather", 2))), network({"n0": 0, "n5": 0}))
    assert set(found.values()) == {"n2", "n3", "n6", "n7"}


def test_a_gang_that_no_domain_holds_is_told_what_there_is() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for pod in members(3):
            fixture.api.store(pod)

    fixture = play(story, network({"n1": 0}))
    because = (
        "no candidate topology nodes can accommodate job, desiredOfferSlot: 3, topology topologyNode BlockLayer/b0: 1;"
        "topology topologyNode BlockLayer/b1: 2;topology topologyNode BlockLayer/b2: 2;"
        "topology topologyNode BlockLayer/b3: 2, 0/8 nodes are available: 8 Insufficient cpu."
    )
    assert notes(fixture, "g-0") == [f"0/8 nodes are available: {because}."]
    assert fixture.api.placed() == {}
    assert [note.count(because) for note in notes(fixture, "g-1")] == [1]


def test_multiples_are_named_in_the_failure() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for pod in members(3, spec(("BlockLayer", "PreferGather", 2), ("SpineLayer", "PreferGather", 3))):
            fixture.api.store(pod)

    [note] = notes(play(story, network({})), "g-0")
    assert note.endswith(
        "topology topologyNode ClusterTopologyLayer/: 0, 0/8 nodes are available: 8 Insufficient cpu.; "
        "podCountMultiple constraints: BlockLayer=2, SpineLayer=3."
    )


def test_members_get_nodes_in_the_order_of_their_indices() -> None:
    pods = members(4, spec(("SpineLayer", "MustGather")))
    ranks = {"g-0": "3", "g-1": "1", "g-2": "none", "g-3": "0"}
    pods = [with_annotations(pod, {**pod.metadata.annotations, INDEX: ranks[pod.metadata.name]}) for pod in pods]
    assert placed(pods, network({})) == {"g-3": "n0", "g-1": "n1", "g-0": "n2", "g-2": "n3"}


def test_a_gang_goes_to_pods_of_its_kind() -> None:
    api = network({"n6": 2})
    api.store(with_annotations(make_pod("other", node="n6"), {SELECTOR: "llm"}))
    pods = [with_annotations(pod, {**pod.metadata.annotations, SELECTOR: "llm"}) for pod in members(2)]
    assert set(placed(pods, api).values()) - {"n6", "n7"} == set()


def test_nodes_that_are_in_no_domain_take_no_members() -> None:
    places = {**FOUR_BLOCKS, "n1": "/b0"}
    assert set(placed(members(2), network({"n1": 9}, places)).values()) == {"n2", "n3"}


def test_a_node_without_a_block_is_a_block_of_its_own() -> None:
    places = {"n0": "s0/b0", "n1": "s0/b0", "n2": "s0/"}
    assert set(placed(members(3), network({"n2": 3}, places)).values()) == {"n2"}


def test_what_fits_into_the_network_is_waited_for() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for pod in members(3):
            fixture.api.store(pod)
        await fixture.until_idle(2)
        assert fixture.api.placed() == {}
        fixture.api.store(make_node("n8", cpu="2", labels=place("s1/b3")))
        await fixture.until_idle(5)

    assert set(play(story, network({})).api.placed().values()) <= {"n6", "n7", "n8"}
    assert len(play(story, network({})).api.placed()) == 3


def test_a_label_that_brings_nodes_together_is_waited_for() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for pod in members(3):
            fixture.api.store(pod)
        await fixture.until_idle(2)
        fixture.api.store(make_node("n2", cpu="1", memory="1000Gi", labels=place("s0/b0")))
        await fixture.until_idle(5)

    assert set(play(story, network({})).api.placed().values()) == {"n0", "n1", "n2"}


def test_without_a_network_nobody_is_placed() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for pod in members(2):
            fixture.api.store(pod)
        await fixture.until_idle(2)
        assert notes(fixture, "g-0") == ["0/8 nodes are available: no cluster network topology."]
        assert fixture.api.placed() == {}
        fixture.api.store(cluster_network_topology(), CLUSTER_NETWORK_TOPOLOGIES)
        await fixture.until_idle(10)

    assert len(play(story, network({}, known=False)).api.placed()) == 2


def test_without_the_flag_there_is_no_network() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for pod in members(2):
            fixture.api.store(pod)

    fixture = play(story, network({}), profile(followed=False))
    assert notes(fixture, "g-1") == ["0/8 nodes are available: no cluster network topology."]


def test_a_profile_that_is_not_aware_places_gangs_as_it_goes() -> None:
    assert len(placed(members(8), network({}), profile(aware=False))) == 8
    assert len(placed(members(8), network({}, known=False), profile(aware=False, followed=False))) == 8


def test_what_is_wrong_with_the_layers_is_said_once() -> None:
    wrong = cluster_network_topology()
    del wrong.spec.network_topology_spec[2]

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(wrong, CLUSTER_NETWORK_TOPOLOGIES)
        await fixture.until_idle()
        fixture.api.store(wrong, CLUSTER_NETWORK_TOPOLOGIES)

    fixture = play(story, network({}, known=False))
    text = 'topology layer "NodeTopologyLayer" not found in spec'
    assert [each for each in fixture.events.notes if each[0] == "default"] == [
        ("default", "InvalidClusterNetworkTopology", text)
    ]


def test_the_status_is_written_when_it_changes() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle(5)
        fixture.api.store(make_node("n8", labels=place("s2/b4")))
        await fixture.until_idle(5)

    fixture = play(story, network({}))
    status = fixture.api.objects(CLUSTER_NETWORK_TOPOLOGIES.plural)
    [found] = status.values()
    detail = found.status.detail_status
    assert [each.topology_info.topology_name for each in detail] == ["", "s0", "b0", "b1", "s1", "b2", "b3", "s2", "b4"]
    assert detail[0].node_num == 9


def test_a_status_that_is_as_it_should_be_is_not_written() -> None:
    versions: list[str] = []

    async def story(fixture: RunningScheduler) -> None:
        for seconds in (5, 200):
            await fixture.until_idle(seconds)
            [found] = fixture.api.objects(CLUSTER_NETWORK_TOPOLOGIES.plural).values()
            versions.append(found.metadata.resource_version)

    play(story, network({}))
    assert versions[0] == versions[1]


def test_what_nobody_follows_is_not_watched() -> None:
    for options, kinds in (({}, [POD_GROUPS, CLUSTER_NETWORK_TOPOLOGIES]), ({"followed": False}, [POD_GROUPS])):
        view = ClusterView(NodeColumns())
        plugin = profile(**options)(view).plugins["Coscheduling"]
        assert list(plugin.watched_kinds) == kinds
        assert plugin.watch_scope(CLUSTER_NETWORK_TOPOLOGIES) == ("", "metadata.name=default")


def test_a_member_that_comes_while_the_others_are_tried_is_tried_after_them() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for pod in members(2):
            fixture.api.store(pod)
        await fixture.until_idle()
        for pod in members(2, gang="late"):
            fixture.api.store(pod)
        await fixture.until_idle(5)

    assert len(play(story, network({})).api.placed()) == 4


def test_members_that_are_planned_elsewhere_are_not_counted_twice() -> None:
    # Two gangs of two in the only block with two nodes that are free: the second one has to wait.
    api = network({name: 0 for name in FOUR_BLOCKS if name not in ("n0", "n1")})

    async def story(fixture: RunningScheduler) -> None:
        for pod in [*members(2), *members(2, gang="h")]:
            fixture.api.store(pod)
        await fixture.until_idle(5)

    found = play(story, api).api.placed()
    assert set(found.values()) == {"n0", "n1"}
    assert len({name[0] for name in found}) == 1


@pytest.mark.parametrize("mode", ["Strict", "NonStrict"])
def test_all_or_none_whatever_the_mode(mode: str) -> None:
    assert placed(members(3, GATHERED, mode=mode), network({})) == {}


def test_a_pod_with_gates_is_not_planned_for() -> None:
    pods = [*members(2), *[pod for pod in members(3, gated=True) if pod.metadata.name == "g-2"]]
    assert set(placed(pods, network({}))) == {"g-0", "g-1"}


def test_rejections_name_the_filters_that_had_a_part() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for pod in members(3):
            fixture.api.store(pod)
        await fixture.until_idle()
        [attempt, *_] = fixture.scheduler.decisions.attempts("default/g-0")
        assert isinstance(attempt.rejection, Rejection)
        assert attempt.rejection.plugins == {"Coscheduling", "Fit"}

    play(story, network({}))


def test_a_diagnosis_has_the_slots_of_each_node() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for each in members(4):
            fixture.api.store(each)
        await fixture.until_idle()
        plugin = fixture.scheduler.engines["koord-scheduler"].profile.plugins["Coscheduling"]
        assert isinstance(plugin, Coscheduling)
        engine = fixture.scheduler.engines["koord-scheduler"]
        pod = plugin.gangs.pending["uid-g-0"]
        assert isinstance(engine.decide(pod, fixture.clock.now()), Rejection)
        asked = engine.profile.first(DiagnosisPlugin)
        assert asked is not None
        job = asked.questioned_job(pod)
        evaluation = Evaluation(engine.profile, fixture.scheduler.state.view, pod)
        evaluation.refresh()
        found = diagnosis(pod, evaluation, fixture.scheduler.state.view.columns, fixture.clock.now(), job)
        assert found["topologyKeyToExplain"] == "BlockLayer"
        assert found["preFilterMessage"].startswith("no candidate topology nodes")
        assert found["scheduleDiagnosis"]["nodeOfferSlot"] == {**dict.fromkeys(FOUR_BLOCKS, 1), "n0": 2}
        assert found["scheduleDiagnosis"]["nodeFailedDetails"] == [
            {
                "failedPlugin": "Fit",
                "reason": "Insufficient cpu",
                "preemptMightHelp": True,
                "failedNodes": sorted(FOUR_BLOCKS),
            }
        ]

    play(story, network({"n0": 2}))
