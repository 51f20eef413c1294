"""Plugins of other packages that hold something in Reservations: restoration, filters and scores, on the way of pods to
their nodes."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from koordinator.api.annotations import RESERVATION_AFFINITY, RESERVATION_ALLOCATED
from koordinator.api.codec import to_document
from koordinator.api.kinds import RESERVATIONS
from koordinator.api.labels import RESERVATION_IGNORED
from koordinator.api.pod import Pod, PodTemplateSpec
from koordinator.api.reservation import RESTRICTED, PreAllocationPolicy, Reservation, ReservationStatus
from koordinator.scheduler.configuration.koordinator_arguments import ReservationArgs
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.engine.evaluation_check import EvaluationCheck
from koordinator.scheduler.engine.framework_hooks import ReservationNominator
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import VictimUnit
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView, ReservationInfo
from koordinator.scheduler.plugins.default_pre_bind import DefaultPreBind
from koordinator.scheduler.plugins.reservation.plugin import ReservationPlugin
from koordinator.scheduler.plugins.reservation.pod_points import Use
from koordinator.scheduler.plugins.reservation.reserve_pod import allocated_record, reserve_pod
from tests.examples import examples
from tests.scheduler.fakes import describe, make_node, make_pod, make_profile
from tests.scheduler.ground.clusters import NOW, Cluster, listed
from tests.scheduler.ground.cpu_sets import CpuSets
from tests.scheduler.ground.tokens import ANNOTATION, Tokens
from tests.scheduler.plugins.reservation.test_free_capacity import OWNER, available, noted
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi

AFFINITY = {RESERVATION_AFFINITY: json.dumps({"reservationSelector": {}})}


def holding(name: str, *, cpu: str = "1", once: bool = False, node: str = "a", **tokens: int) -> Reservation:
    """One on a node, with tokens by colour."""
    found = available(name, cpu, node, once=once)
    return replace(found, metadata=replace(found.metadata, annotations={ANNOTATION: json.dumps(tokens)}))


def owner(name: str, tokens: int, cpu: str = "500m", annotations: dict[str, str] | None = None, **labels: str) -> Pod:
    return noted(make_pod(name, cpu=cpu, labels={**OWNER, "tokens": str(tokens), **labels}), annotations or {})


def other(name: str, tokens: int) -> Pod:
    """A pod that owns no Reservation."""
    return make_pod(name, cpu="100m", labels={"tokens": str(tokens)})


def cluster_with(*reservations: Reservation, nodes: str = "a", order: Sequence[Any] = ()) -> Cluster:
    cluster = Cluster([make_node(name) for name in nodes], *(order or (ReservationPlugin, Tokens)))
    for reservation in reservations:
        cluster.state.set_object(RESERVATIONS, reservation.metadata.name, reservation)
        cluster.bound(reserve_pod(reservation), reservation.status.node_name)
    return cluster


def placed(cluster: Cluster, pod: Pod) -> tuple[str, Counter[str]]:
    """The name of the Reservation from which the pod takes, and its tokens."""
    decision = cluster.engine.decide(describe(pod), NOW)
    assert isinstance(decision, Placement), decision
    refusal = cluster.engine.assume(decision)
    assert refusal is None, refusal
    use: Use | None = cluster.view.allocations.of("Reservation", pod.metadata.uid)
    return use.name if use is not None else "", tokens_of(cluster).held(pod.metadata.uid)


def refused(cluster: Cluster, pod: Pod) -> str:
    decision = cluster.engine.decide(describe(pod), NOW)
    assert isinstance(decision, Rejection), decision
    return decision.message


def tokens_of(cluster: Cluster) -> Tokens:
    plugin = cluster.profile.plugins["Tokens"]
    assert isinstance(plugin, Tokens)
    return plugin


@pytest.mark.parametrize("order", [(ReservationPlugin, Tokens), (Tokens, ReservationPlugin)])
def test_an_owner_gets_the_very_tokens_of_its_reservation(order: Sequence[Any]) -> None:
    """In whatever order plugins reserve."""
    cluster = cluster_with(holding("r", red=4, blue=1), order=order)
    assert "1 node(s) didn't have free tokens" in refused(cluster, other("p", 2))
    assert placed(cluster, owner("o", 3)) == ("r", Counter(blue=1, red=2))
    assert placed(cluster, owner("o2", 2)) == ("r", Counter(red=2))


@pytest.mark.parametrize("order", [(ReservationPlugin, Tokens), (Tokens, ReservationPlugin)])
def test_what_owners_have_taken_counts_once_for_all_others(order: Sequence[Any]) -> None:
    cluster = cluster_with(holding("r", red=3), order=order)
    assert placed(cluster, owner("o", 2)) == ("r", Counter(red=2))
    # Of four red and two blue tokens three are the Reservation's, two of which the owner has.
    assert placed(cluster, other("p", 3)) == ("", Counter(blue=2, red=1))
    assert "didn't have free tokens" in refused(cluster, other("q", 1))


def test_a_reservation_without_enough_is_refused_and_the_next_one_taken() -> None:
    cluster = cluster_with(holding("r1", cpu="1", red=1), holding("r2", cpu="2", red=3))
    # By amounts alone r1, which would be fuller, goes first.
    assert placed(cluster, owner("o", 0)) == ("r1", Counter())
    assert placed(cluster, owner("o2", 2)) == ("r2", Counter(red=2))


def test_who_must_use_a_reservation_is_told_why_none_does() -> None:
    cluster = cluster_with(holding("r", red=1))
    assert "1 Reservation(s) Insufficient tokens" in refused(cluster, owner("o", 2, annotations=AFFINITY))


def test_who_need_not_use_a_reservation_takes_tokens_that_no_reservation_keeps() -> None:
    cluster = cluster_with(holding("r", red=1))
    assert placed(cluster, owner("o", 4)) == ("", Counter(blue=2, red=2))
    assert "didn't have free tokens" in refused(cluster, owner("o2", 2))
    assert placed(cluster, owner("o3", 1)) == ("r", Counter(red=1))


def test_a_pod_that_ignores_reservations_takes_what_they_keep() -> None:
    cluster = cluster_with(holding("r", red=4, blue=1))
    ignoring = make_pod("p", cpu="100m", labels={"tokens": "5", RESERVATION_IGNORED: "true"})
    assert placed(cluster, ignoring) == ("", Counter(blue=2, red=3))


def test_the_score_of_a_plugin_prefers_a_reservation() -> None:
    even = cluster_with(holding("r1", red=2), holding("r2", red=2))
    assert placed(even, owner("o", 1))[0] == "r1"
    cluster = cluster_with(holding("r1", red=1), holding("r2", red=3))
    assert placed(cluster, owner("o", 1)) == ("r2", Counter(red=1))


def test_an_explanation_names_what_a_plugin_says() -> None:
    cluster = cluster_with(holding("r", red=1))
    plugin = cluster.profile.plugins["Reservation"]
    assert isinstance(plugin, ReservationPlugin)
    cluster.state.show_pod(describe(owner("o", 3)), "")
    document = to_document(plugin.services()["/reservations/:name/explanation"]({"name": "r"}))
    assert "Reservation(s) Insufficient tokens" in json.dumps(document, default=str)


def test_pods_that_own_nothing_share_what_is_known_and_are_followed_row_by_row() -> None:
    names = [f"n{number}" for number in range(50)]
    cluster = Cluster([make_node(name) for name in names], ReservationPlugin, Tokens)
    for reservation in (holding("r", node="n7", red=2), holding("s", node="n9", red=2)):
        cluster.state.set_object(RESERVATIONS, reservation.metadata.name, reservation)
        cluster.bound(reserve_pod(reservation), reservation.status.node_name)
    tokens = tokens_of(cluster)
    placed(cluster, other("p", 1))
    assert tokens.filtered_rows == 50
    assert tokens.calls == Counter(), "no Reservation is used yet"
    placed(cluster, other("q", 1))
    assert tokens.filtered_rows == 51, "the row of the first pod"
    tokens.filtered_rows = 0
    assert placed(cluster, owner("o", 1, annotations=AFFINITY))[0] == "r"
    tokens.filtered_rows = 0
    evaluations = len(cluster.engine._classes)
    placed(cluster, other("q2", 1))
    assert tokens.filtered_rows <= 2, "the rows of the two pods that came since"
    assert len(cluster.engine._classes) == evaluations, "no class more"
    assert tokens.calls["unmatched"] >= 1


def test_the_plugin_of_another_profile_hides_no_reservation() -> None:
    cluster = cluster_with()
    ReservationPlugin(ReservationArgs(), cluster.view)
    found = holding("r", red=3)
    cluster.state.set_object(RESERVATIONS, "r", found)
    cluster.bound(reserve_pod(found), "a")
    assert placed(cluster, owner("o", 2)) == ("r", Counter(red=2))
    # The two tokens of the owner are among the three that are reserved.
    assert placed(cluster, other("p", 3)) == ("", Counter(blue=2, red=1))


def test_profiles_without_such_a_plugin_ask_nothing_about_reservations() -> None:
    cluster = cluster_with(holding("r"), order=(ReservationPlugin,))
    plugin = cluster.profile.plugins["Reservation"]
    assert isinstance(plugin, ReservationPlugin)
    simulations = 0
    simulate_as_before = cluster.view.simulate

    def counted() -> Any:
        nonlocal simulations
        simulations += 1
        return simulate_as_before()

    pod = describe(make_pod("o", labels=OWNER, cpu="500m"))
    decision = cluster.engine.decide(pod, NOW)
    assert isinstance(decision, Placement)
    assert plugin.context_key(pod) == plugin._cache.match(pod), "no key more"
    cluster.view.simulate = counted
    cluster.engine.assume(decision)
    assert simulations == 0
    assert cluster.view.restored == {}


def test_allocators_that_know_nothing_of_reservations_get_what_is_reserved_for_the_pod() -> None:
    cluster = cluster_with(order=(ReservationPlugin, CpuSets))
    found = available("r", "2", once=True)
    found = replace(found, metadata=replace(found.metadata, annotations={"example.com/cpus": "0,1,2"}))
    cluster.state.set_object(RESERVATIONS, "r", found)
    cluster.bound(reserve_pod(found), "a")
    decision = cluster.engine.decide(describe(owner("o", 0, cpus="2")), NOW)
    assert isinstance(decision, Placement)
    assert cluster.engine.assume(decision) is None
    assert cluster.view.allocations.of("CpuSets", "uid-o") == (0, 1)


def test_a_question_what_if_gives_what_the_attempt_will() -> None:
    cluster = cluster_with(holding("r", red=3))
    pod = describe(owner("o", 2))
    with cluster.engine.handle.simulate() as simulation:
        assert simulation.fits(pod, 0)
        assert simulation.place(pod, 0) is None
        assert cluster.view.allocations.of("Tokens", "uid-o") == (("red", 2),)
        assert not simulation.fits(describe(owner("o2", 2, annotations=AFFINITY)), 0)
    assert cluster.view.allocations.of("Tokens", "uid-o") is None
    assert placed(cluster, owner("o", 2)) == ("r", Counter(red=2))


def test_an_owner_that_leaves_would_let_another_one_in() -> None:
    cluster = cluster_with(holding("r", red=3))
    first, second = describe(owner("o", 2)), describe(owner("o2", 2, annotations=AFFINITY))
    placed(cluster, first.pod)
    with cluster.engine.handle.simulate() as simulation:
        assert not simulation.fits(second, 0)
        simulation.remove(first)
        assert simulation.fits(second, 0)
        simulation.put_back_while(lambda: True, [VictimUnit((first,))])
        assert not simulation.fits(second, 0)
    assert tokens_of(cluster).free(0) == Counter(red=1, blue=2)


class Failing(Tokens):
    name = "Tokens"

    def filter_reservation(self, pod: PodInfo, reservation: ReservationInfo, row: int) -> Any:
        raise RuntimeError("the tokens are lost")


def test_a_plugin_that_fails_leaves_nothing_as_it_was_seen() -> None:
    cluster = cluster_with(holding("r", red=3), order=(ReservationPlugin, Failing))
    before = cluster.view.columns.requested.copy()
    with pytest.raises(Exception, match="the tokens are lost"):
        cluster.engine.decide(describe(owner("o", 2)), NOW)
    assert cluster.view.restored == {}
    assert (cluster.view.columns.requested == before).all()
    assert "uid-r" in cluster.view.pods_on[0]
    plugin = cluster.profile.plugins["Reservation"]
    assert isinstance(plugin, ReservationPlugin)
    assert not plugin.points.is_seen(0)


STEPS = st.lists(
    st.tuples(st.sampled_from(["own", "other", "gone", "reserve", "free"]), st.integers(0, 3), st.integers(0, 3)),
    max_size=25,
)


@settings(max_examples=examples(60), deadline=None)
@given(STEPS)
def test_no_token_is_given_twice_and_what_passes_filters_is_reserved(steps: Sequence[tuple[str, int, int]]) -> None:
    """``placed`` fails where Filter and Reserve disagree. What is cached is what a fresh evaluation finds."""
    cluster = cluster_with(nodes="ab")
    differences: list[str] = []
    check = EvaluationCheck(cluster.profile, cluster.view, differences.append)
    cluster.engine.refresh = check.refresh
    pods: dict[str, Pod] = {}
    for step, number, count in steps:
        match step:
            case "own" | "other" if f"p{number}" not in pods:
                pod = owner(f"p{number}", count, "100m") if step == "own" else other(f"p{number}", count)
                if isinstance(cluster.engine.decide(describe(pod), NOW), Placement):
                    pods[pod.metadata.name] = pod
                    name, held = placed(cluster, pod)
                    assert held.total() == count
                    if name:
                        assert held <= tokens_of(cluster).held(f"uid-{name}")
            case "gone" if f"p{number}" in pods:
                cluster.state.remove_pod(pods.pop(f"p{number}").metadata.uid)
            case "reserve" if f"uid-r{number % 2}" not in cluster.view.pods_on[0]:
                free = tokens_of(cluster).free(0)
                made = holding(f"r{number % 2}", red=max(0, min(count, free["red"])))
                cluster.state.set_object(RESERVATIONS, made.metadata.name, made)
                cluster.bound(reserve_pod(made), "a")
            case "free":
                old = cluster.view.objects_of(RESERVATIONS).get(f"r{number % 2}")
                cluster.state.remove_pod(f"uid-r{number % 2}")
                if old is not None:
                    cluster.state.set_object(RESERVATIONS, f"r{number % 2}", None)
        free = tokens_of(cluster).free(0)
        assert min(free.values()) >= 0, (steps, free)
        assert differences == []


# The whole scheduler, with Reservations that come without a node.


def profile(view: ClusterView) -> Profile:
    base = make_profile(view)
    kinds: tuple[Any, ...] = (ReservationPlugin, Tokens, DefaultPreBind)
    order = base.order
    for kind in kinds:
        order = listed(order, kind)
    order = dataclasses.replace(order, pre_score=(*order.pre_score, "Reservation"), score=(("Reservation", 100),))
    plugins = {kind.name: kind(ReservationArgs() if kind is ReservationPlugin else None, view) for kind in kinds}
    return Profile("koord-scheduler", {**base.plugins, **plugins}, order)


def pending(name: str = "r", tokens: int = 3, cpu: str = "2", **spec: Any) -> Reservation:
    found = available(name, cpu=cpu, once=False, policy=RESTRICTED)
    metadata = replace(found.metadata, name="", uid="", labels={"tokens": str(tokens)})
    template = PodTemplateSpec(metadata=metadata, spec=make_pod("template", cpu=cpu, memory="2Gi").spec)
    return replace(found, spec=replace(found.spec, template=template, **spec), status=ReservationStatus())


def running(pod: Pod, **tokens: int) -> Pod:
    """On node ``a``, with these tokens."""
    pod = noted(pod, {**pod.metadata.annotations, ANNOTATION: json.dumps(tokens)}) if tokens else pod
    return replace(pod, spec=replace(pod.spec, node_name="a"))


def one_node(*pods: Pod) -> SchedulerApi:
    api = SchedulerApi()
    api.store(make_node("a"))
    for pod in pods:
        api.store(pod)
    return api


def written(fixture: RunningScheduler, kind: str, name: str) -> dict[str, int]:
    objects = fixture.api.objects(kind)
    (found,) = [each for each in objects.values() if each.metadata.name == name]
    tokens: dict[str, int] = json.loads(found.metadata.annotations.get(ANNOTATION, "{}"))
    return tokens


def users(fixture: RunningScheduler) -> set[str]:
    pods = fixture.api.objects("pods").values()
    return {pod.metadata.name for pod in pods if (record := allocated_record(pod)) is not None and record.name == "r"}


def test_a_reservation_gets_tokens_and_its_owners_get_those() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(pending(tokens=5), RESERVATIONS)
        await fixture.until_idle()
        assert written(fixture, "reservations", "r") == {"blue": 2, "red": 3}
        fixture.api.store(other("p", 2))
        fixture.api.store(owner("o", 4))
        await fixture.until_idle()
        assert fixture.api.placed() == {"o": "a"}
        assert written(fixture, "pods", "o") == {"blue": 2, "red": 2}
        assert users(fixture) == {"o"}
        fixture.api.store(other("q", 1))
        await fixture.until_idle()
        assert written(fixture, "pods", "q") == {"red": 1}
        fixture.api.drop("reservations", "r")
        await fixture.until_idle(30)
        fixture.api.drop("pods", "default/o")
        await fixture.until_idle(30)
        assert fixture.api.placed()["p"] == "a"

    simulate(story, one_node, profile)


def test_a_reservation_keeps_the_tokens_of_the_pod_that_it_takes_over() -> None:
    """What plugins say decides which: one holds too many, and of the others the one with the most is the best."""
    pods = (
        running(owner("o1", 1, "1"), red=1),
        running(owner("o2", 2, "1"), blue=2),
        running(owner("o3", 3, "1"), red=3),
    )

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(pending(tokens=2, pre_allocation=True), RESERVATIONS)
        await fixture.until_idle()
        assert users(fixture) == {"o2"}
        assert written(fixture, "reservations", "r") == {"blue": 2}
        state = fixture.scheduler.state
        plugin = fixture.scheduler.engines["koord-scheduler"].profile.plugins["Tokens"]
        assert isinstance(plugin, Tokens)
        assert plugin.free(state.view.columns.row_of["a"]).total() == 0, "once they count once"
        assert plugin.calls["pre-allocatable"] > 0
        fixture.api.drop("reservations", "r")

    simulate(story, lambda: one_node(*pods), profile)


def test_several_pods_are_taken_over_with_their_tokens_and_more_is_added() -> None:
    pods = (running(owner("o1", 1, "2"), red=1), running(owner("o2", 2, "2"), blue=2))

    async def story(fixture: RunningScheduler) -> None:
        policy = PreAllocationPolicy(enable_multiple=True)
        wanted = pending(tokens=5, cpu="4", pre_allocation=True, pre_allocation_policy=policy)
        fixture.api.store(wanted, RESERVATIONS)
        await fixture.until_idle()
        assert users(fixture) == {"o1", "o2"}
        assert written(fixture, "reservations", "r") == {"blue": 2, "red": 3}
        fixture.api.store(other("p", 2))
        fixture.api.store(other("q", 1))
        await fixture.until_idle()
        fixture.api.drop("reservations", "r")

    simulate(story, lambda: one_node(*pods), profile)


def test_a_pod_that_no_plugin_lets_be_taken_over_is_told_of() -> None:
    async def story(fixture: RunningScheduler) -> None:
        wanted = pending(tokens=1, pre_allocation=True)
        wanted = replace(
            wanted,
            metadata=replace(wanted.metadata, labels={"scheduling.koordinator.sh/pre-allocation-required": "true"}),
        )
        fixture.api.store(wanted, RESERVATIONS)
        await fixture.until_idle()
        (note,) = {note for name, reason, note in fixture.events.notes if (name, reason) == ("r", "FailedScheduling")}
        assert "1 Reservation(s) would hold fewer tokens than the pod" in note
        assert users(fixture) == set()
        fixture.api.drop("reservations", "r")

    simulate(story, lambda: one_node(running(owner("o", 3, "1"), red=3)), profile)


def test_after_a_restart_tokens_are_where_they_were() -> None:
    found = holding("r", red=3)
    mine = noted(owner("o", 2), {ANNOTATION: '{"red": 2}', RESERVATION_ALLOCATED: '{"name":"r","uid":"uid-r"}'})
    cluster = cluster_with(found)
    cluster.bound(mine, "a")
    assert tokens_of(cluster).free(0) == Counter(red=1, blue=2)
    nominator = cluster.engine.handle.plugin(ReservationNominator)
    assert nominator is not None
    assert nominator.nominated_reservation(describe(mine), 0) is None, "the row is seen as any pod sees it"
    allocated = nominator.allocated_reservation(describe(mine))
    assert allocated is not None
    assert allocated.name == "r"
