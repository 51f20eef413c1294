"""``enablePreemption``: who leaves for a Reservation that finds no node, and for pods that may use Reservations."""

from __future__ import annotations

from typing import Any

import msgspec

from koordinator.api.annotations import RESERVATION_AFFINITY, RESERVATION_ALLOCATED, RESERVATION_OWNERS
from koordinator.api.kinds import POD_DISRUPTION_BUDGETS, RESERVATIONS
from koordinator.api.labels import DISABLE_PREEMPTIBLE, OPERATING_MODE
from koordinator.api.meta import LabelSelector, ObjectMeta
from koordinator.api.pod import Pod, PodCondition, PodStatus, PodTemplateSpec
from koordinator.api.reservation import AVAILABLE, RESTRICTED, Reservation, ReservationStatus
from koordinator.api.workload import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from koordinator.scheduler.configuration.koordinator_arguments import ReservationArgs
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.reservation.plugin import ReservationPlugin
from koordinator.scheduler.plugins.reservation.pod_points import Use
from koordinator.scheduler.plugins.reservation.reserve_pod import reserve_pod
from tests.scheduler.fakes import FirstChoice, Fit, describe, make_node, make_pod, make_profile, make_state
from tests.scheduler.ground.clusters import NOW, listed
from tests.scheduler.plugins.reservation.test_free_capacity import OWNER, available, noted
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi

IMPORTANT = 10


class ColumnFit(Fit):
    """Asked about columns alone, as NodeResourcesFit is."""

    from_columns = True


def preempting(view: ClusterView, *, enabled: bool = True) -> Profile:
    """With DefaultPreemption if Reservation's own is not enabled."""
    base = make_profile(view, preempts=not enabled)
    plugin = ReservationPlugin(ReservationArgs(enable_preemption=enabled), view)
    plugins = {**base.plugins, "Fit": ColumnFit(None, view), plugin.name: plugin}
    return Profile(base.scheduler_name, plugins, listed(base.order, ReservationPlugin))


class Fixture:
    """Nodes with four cores. The Reservations with a node are on it."""

    def __init__(self, *reservations: Reservation, nodes: str = "a", enabled: bool = True) -> None:
        self.state = make_state()
        profile = preempting(self.state.view, enabled=enabled)
        self.state.add_event_handlers(profile.event_handlers)
        for name in nodes:
            self.state.set_node(make_node(name))
        self.engine = Engine(profile, self.state, FirstChoice())
        for each in reservations:
            self.state.set_object(RESERVATIONS, each.metadata.name, each)
            self.state.view.pseudo_pods.add(each.metadata.uid)
            if each.status.node_name:
                self.state.set_pod(describe(reserve_pod(each)), each.status.node_name)

    def running(self, pod: Pod, node: str = "a", *, of: str = "") -> None:
        """It runs on the node, and takes from the Reservation ``of``."""
        pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))
        if of:
            pod = noted(pod, {RESERVATION_ALLOCATED: f'{{"name":"{of}","uid":"uid-{of}"}}'})
        self.state.set_pod(describe(pod), node)

    def rejected(self, pod: Pod) -> Rejection:
        found = self.engine.decide(describe(pod), NOW)
        assert isinstance(found, Rejection)
        return found

    def placed(self, pod: Pod) -> str:
        found = self.engine.decide(describe(pod), NOW)
        assert isinstance(found, Placement), found.message
        return found.node_name

    def plan(self, pod: Pod) -> tuple[str | None, set[str]]:
        after = self.rejected(pod).after
        return after.nominated_node, {victim.pod.metadata.name for victim in after.victims}


def wanted(cpu: str = "2", *, priority: int | None = IMPORTANT, **template: Any) -> Reservation:
    """A Reservation that has no node yet."""
    found = available(cpu=cpu)
    spec = msgspec.structs.replace(make_pod("template", cpu=cpu).spec, priority=priority, **template)
    return msgspec.structs.replace(
        found,
        spec=msgspec.structs.replace(found.spec, template=PodTemplateSpec(spec=spec)),
        status=ReservationStatus(),
    )


def owner(cpu: str, *, priority: int = IMPORTANT, name: str = "o") -> Pod:
    return noted(make_pod(name, cpu=cpu, priority=priority, labels=OWNER), {RESERVATION_AFFINITY: "{}"})


def low(name: str = "low", cpu: str = "2", **changes: Any) -> Pod:
    return make_pod(name, cpu=cpu, priority=1, **changes)


def test_a_less_important_pod_leaves_for_a_reservation() -> None:
    fixture = Fixture(wanted())
    fixture.running(low(cpu="4"))
    assert fixture.plan(reserve_pod(wanted())) == ("a", {"low"})


def test_nobody_leaves_for_a_reservation_unless_that_is_enabled() -> None:
    fixture = Fixture(wanted(), enabled=False)
    fixture.running(low(cpu="4"))
    assert fixture.plan(reserve_pod(wanted())) == (None, set())


def test_no_more_pods_leave_than_have_to() -> None:
    fixture = Fixture(wanted())
    fixture.running(low())
    fixture.running(make_pod("middle", cpu="2", priority=5))
    assert fixture.plan(reserve_pod(wanted())) == ("a", {"low"})


def test_pods_that_are_not_preemptible_stay() -> None:
    fixture = Fixture(wanted())
    fixture.running(low(labels={DISABLE_PREEMPTIBLE: "true"}))
    fixture.running(make_pod("middle", cpu="2", priority=5))
    assert fixture.plan(reserve_pod(wanted())) == ("a", {"middle"})


def test_a_node_without_violated_budgets_is_chosen() -> None:
    fixture = Fixture(wanted(), nodes="ab")
    fixture.running(low("protected", cpu="4", labels={"app": "db"}), "a")
    fixture.running(make_pod("middle", cpu="4", priority=5), "b")
    budget = PodDisruptionBudget(
        metadata=ObjectMeta(name="db", namespace="default", uid="db"),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": "db"})),
        status=PodDisruptionBudgetStatus(disruptions_allowed=0),
    )
    fixture.state.set_object(POD_DISRUPTION_BUDGETS, "default/db", budget)
    assert fixture.plan(reserve_pod(wanted())) == ("b", {"middle"})


def test_a_reservation_that_never_preempts_waits() -> None:
    reservation = wanted(preemption_policy="Never")
    fixture = Fixture(reservation)
    fixture.running(low(cpu="4"))
    assert fixture.plan(reserve_pod(reservation)) == (None, set())


def test_a_reservation_preempts_only_on_the_node_that_it_is_pinned_to() -> None:
    reservation = wanted(node_name="b")
    fixture = Fixture(reservation, nodes="ab")
    fixture.running(low("here", cpu="4"), "a")
    fixture.running(make_pod("there", cpu="4", priority=5), "b")
    assert fixture.plan(reserve_pod(reservation)) == ("b", {"there"})


def test_other_reservations_stay() -> None:
    other = available("other", cpu="4")
    spec = msgspec.structs.replace(make_pod("template", cpu="4").spec, priority=1)
    other = msgspec.structs.replace(
        other, spec=msgspec.structs.replace(other.spec, template=PodTemplateSpec(spec=spec))
    )
    fixture = Fixture(wanted(), other)
    assert fixture.rejected(reserve_pod(wanted())).message.endswith(
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )


def test_a_user_of_a_full_reservation_leaves_for_a_more_important_owner() -> None:
    fixture = Fixture(available(cpu="2", once=False, policy=RESTRICTED))
    fixture.running(low("user"), of="r")
    fixture.running(low("beside", cpu="1"))
    assert fixture.plan(owner("2")) == ("a", {"user"})


def test_a_pod_leaves_where_that_and_what_is_reserved_is_enough() -> None:
    fixture = Fixture(available(cpu="2"))
    fixture.running(low())
    assert fixture.plan(owner("4")) == ("a", {"low"})


def test_nobody_leaves_where_the_rest_is_reserved_for_others() -> None:
    fixture = Fixture(available(cpu="2"))
    fixture.running(low())
    assert fixture.plan(make_pod("p", cpu="4", priority=IMPORTANT)) == ("", set())


def test_users_of_what_stays_reserved_do_not_leave_in_vain() -> None:
    fixture = Fixture(available(cpu="4", once=False))
    fixture.running(low("user"), of="r")
    assert fixture.plan(make_pod("p", cpu="2", priority=IMPORTANT)) == ("", set())


def test_a_user_leaves_for_a_stranger_if_it_uses_more_than_is_reserved() -> None:
    fixture = Fixture(available(cpu="2", once=False))
    fixture.running(low("user", cpu="4"), of="r")
    assert fixture.plan(make_pod("p", cpu="2", priority=IMPORTANT)) == ("a", {"user"})


def test_the_message_says_first_why_nobody_leaves_and_then_how_many_reservations_it_owns() -> None:
    fixture = Fixture(available(cpu="2", once=False, policy=RESTRICTED))
    assert fixture.rejected(owner("3")).message == (
        "0/1 nodes are available: 1 Reservation(s) Insufficient cpu. "
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod., "
        "1 Reservation(s) matched owner total"
    )


def test_equally_important_owners_that_differ_in_their_policy_are_requested_apart() -> None:
    fixture = Fixture(available(cpu="2"))
    fixture.running(low())
    never = owner("4")
    never = msgspec.structs.replace(never, spec=msgspec.structs.replace(never.spec, preemption_policy="Never"))
    fixture.rejected(never)
    assert fixture.plan(owner("4")) == ("a", {"low"})


def test_users_of_a_pod_that_reserves_do_not_keep_its_capacity() -> None:
    reserving = low("keeper", cpu="4", labels={OPERATING_MODE: "Reservation"})
    status = PodStatus(phase="Running", conditions=[PodCondition(type="Ready", status="True")])
    reserving = noted(reserving, {RESERVATION_OWNERS: '[{"labelSelector": {"matchLabels": {"app": "web"}}}]'})
    fixture = Fixture()
    fixture.running(msgspec.structs.replace(reserving, status=status))
    fixture.running(make_pod("user", cpu="3", priority=IMPORTANT), of="keeper")
    assert fixture.plan(make_pod("p", cpu="4", priority=IMPORTANT)) == ("", set())


# While the victims leave.


def nominated(fixture: Fixture, pod: Pod) -> None:
    """The plan for the pod is carried out: it is nominated, and its victims are gone."""
    after = fixture.rejected(pod).after
    assert after.nominated_node is not None
    fixture.state.view.nominations.set(describe(pod), after.nominated_node)
    for victim in after.victims:
        fixture.state.remove_pod(victim.uid)


def test_a_less_important_owner_does_not_take_what_a_nominated_one_waits_for() -> None:
    fixture = Fixture(available(cpu="2", once=False, policy=RESTRICTED))
    fixture.running(low("user"), of="r")
    nominated(fixture, owner("2"))
    assert "Reservation(s) Insufficient cpu" in fixture.rejected(owner("1", priority=5, name="late")).message


def test_a_more_important_owner_takes_it() -> None:
    fixture = Fixture(available(cpu="2", once=False, policy=RESTRICTED))
    fixture.running(low("user"), of="r")
    nominated(fixture, owner("2"))
    assert fixture.placed(owner("1", priority=IMPORTANT + 1, name="late")) == "a"


def test_a_reservation_for_one_owner_is_kept_for_the_nominated_one() -> None:
    fixture = Fixture(available(cpu="2"))
    fixture.running(low())
    nominated(fixture, owner("3"))
    fixture.rejected(owner("1", priority=5, name="late"))


def test_what_a_nominated_owner_takes_of_its_reservation_counts_once() -> None:
    fixture = Fixture(available(cpu="2", once=False, policy=RESTRICTED))
    fixture.running(low("user"), of="r")
    nominated(fixture, owner("2"))
    assert fixture.placed(make_pod("p", cpu="2", priority=5)) == "a"


def test_an_owner_that_has_lost_its_nomination_keeps_nothing() -> None:
    fixture = Fixture(available(cpu="2", once=False, policy=RESTRICTED))
    fixture.running(low("user"), of="r")
    nominated(fixture, owner("2"))
    fixture.state.view.nominations.remove("uid-o")
    assert fixture.placed(owner("1", priority=5, name="late")) == "a"


def test_the_nominated_owner_gets_it() -> None:
    fixture = Fixture(available(cpu="2", once=False, policy=RESTRICTED))
    fixture.running(low("user"), of="r")
    nominated(fixture, owner("2"))
    placement = fixture.engine.decide(describe(owner("2")), NOW)
    assert isinstance(placement, Placement)
    assert fixture.engine.assume(placement) is None
    assert fixture.state.view.allocations.of("Reservation", "uid-o") == Use("r", "uid-r")


# Whole stories.


def full_node() -> SchedulerApi:
    api = SchedulerApi()
    api.store(make_node("a"))
    pod = low(cpu="4")
    api.store(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name="a")))
    return api


def test_a_reservation_gets_the_node_that_its_victim_has_left() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(wanted(), RESERVATIONS)
        await fixture.until_idle(5)
        (reservation,) = fixture.api.objects("reservations").values()
        assert (reservation.status.phase, reservation.status.node_name) == (AVAILABLE, "a")
        assert not fixture.api.objects("pods")
        fixture.api.drop("reservations", "r")

    simulate(story, full_node, preempting)


def test_what_no_server_has_is_not_told_that_its_nomination_is_cleared() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.leaving_takes_time = True
        fixture.api.store(wanted(), RESERVATIONS)
        await fixture.until_idle()
        nominations = fixture.scheduler.state.view.nominations
        assert nominations.node_of("uid-r") == "a"
        fixture.api.store(make_pod("high", cpu="4", priority=IMPORTANT + 1))
        await fixture.until_idle(2)
        assert (nominations.node_of("uid-r"), nominations.node_of("uid-high")) == ("", "a")
        fixture.api.drop("reservations", "r")

    fixture = simulate(story, full_node, preempting)
    assert [each for each in fixture.api.requests if each.plural == "pods" and each.name == "uid-r"] == []


def test_the_capacity_of_the_victims_is_kept_for_the_reservation() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.leaving_takes_time = True
        fixture.api.store(wanted("4"), RESERVATIONS)
        await fixture.until_idle()
        fixture.api.store(make_pod("rival", cpu="1", priority=IMPORTANT - 1))
        fixture.api.drop("pods", "default/low")
        await fixture.until_idle(2)
        (reservation,) = fixture.api.objects("reservations").values()
        assert (reservation.status.phase, fixture.api.placed()) == (AVAILABLE, {})
        fixture.api.drop("pods", "default/rival")
        fixture.api.drop("reservations", "r")

    simulate(story, full_node, preempting)
