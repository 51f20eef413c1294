"""Operating-mode pods: who gets what they hold, and from when until when."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from koordinator.api.annotations import (
    RESERVATION_AFFINITY,
    RESERVATION_ALLOCATED,
    RESERVATION_CURRENT_OWNER,
    RESERVATION_OWNERS,
)
from koordinator.api.kinds import RESERVATIONS
from koordinator.api.labels import OPERATING_MODE
from koordinator.api.pod import Pod, PodCondition, PodStatus
from koordinator.api.reservation import ReservationStatus
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.engine.row_amounts import CPU
from koordinator.scheduler.plugins.reservation.plugin import ReservationPlugin
from koordinator.scheduler.plugins.reservation.pod_points import Use
from koordinator.scheduler.plugins.reservation.reserve_pod import allocated_annotation, operating_faults, reserve_pod
from tests.scheduler.fakes import describe, make_node, make_pod
from tests.scheduler.ground.clusters import NOW, Cluster
from tests.scheduler.plugins.reservation.test_free_capacity import OWNER, available, cluster_with, noted, owner
from tests.scheduler.plugins.reservation.test_waking import one_node, profile
from tests.scheduler.running_scheduler import RunningScheduler, simulate

OWNERS = '[{"labelSelector": {"matchLabels": {"app": "web"}}}]'
READY = PodStatus(phase="Running", conditions=[PodCondition(type="Ready", status="True")])
STARTING = PodStatus(phase="Running", conditions=[PodCondition(type="Ready", status="False")])


def operating(status: PodStatus = READY, *, name: str = "keeper", node: str = "a", cpu: str = "3", **more: str) -> Pod:
    """On a node, if it is given one, for pods with the label ``app=web``."""
    pod = noted(make_pod(name, cpu=cpu, labels={OPERATING_MODE: "Reservation"}), {RESERVATION_OWNERS: OWNERS, **more})
    return replace(pod, spec=replace(pod.spec, node_name=node), status=status)


def annotated(annotations: Mapping[str, str]) -> Pod:
    return noted(operating(), {RESERVATION_OWNERS: OWNERS, **annotations})


def cluster_of(*pods: Pod) -> Cluster:
    """One node with four cores, and these on it."""
    cluster = Cluster([make_node("a")], ReservationPlugin)
    for pod in pods:
        cluster.bound(pod, "a")
    return cluster


def test_an_owner_takes_from_a_pod_that_is_ready() -> None:
    cluster = cluster_of(operating())
    placement = cluster.engine.decide(describe(owner("o")), NOW)
    assert isinstance(placement, Placement)
    assert cluster.engine.assume(placement) is None
    assert cluster.view.allocations.of("Reservation", "uid-o") == Use("keeper", "uid-keeper")


def test_a_pod_and_the_owner_that_uses_it_both_count() -> None:
    """Both run, and kubelet would turn others away."""
    cluster = cluster_of(operating())
    placement = cluster.engine.decide(describe(owner("o")), NOW)
    assert isinstance(placement, Placement)
    cluster.engine.assume(placement)
    assert cluster.view.columns.requested[0, CPU] == 6000


@pytest.mark.parametrize("status", [STARTING, PodStatus(phase="Pending"), replace(READY, phase="Pending")])
def test_nobody_takes_from_a_pod_that_is_not_ready(status: PodStatus) -> None:
    cluster = cluster_of(operating(status))
    assert isinstance(cluster.engine.decide(describe(owner("o")), NOW), Rejection)


def test_a_pod_that_does_not_own_it_cannot_take_from_it() -> None:
    cluster = cluster_of(operating())
    assert isinstance(cluster.engine.decide(describe(make_pod("p", cpu="3")), NOW), Rejection)


def test_its_first_owner_uses_it_up() -> None:
    cluster = cluster_of(operating())
    first = cluster.engine.decide(describe(owner("o", cpu="1")), NOW)
    assert isinstance(first, Placement)
    cluster.engine.assume(first)
    assert isinstance(cluster.engine.decide(describe(owner("o2", cpu="2")), NOW), Rejection)


def test_a_pod_that_names_its_current_owner_is_used_up() -> None:
    cluster = cluster_of(annotated({RESERVATION_CURRENT_OWNER: '{"namespace": "default", "name": "o", "uid": "u"}'}))
    assert isinstance(cluster.engine.decide(describe(owner("o2")), NOW), Rejection)


def test_owners_may_draw_from_the_node_too() -> None:
    cluster = cluster_of(operating())
    assert isinstance(cluster.engine.decide(describe(owner("o", cpu="4")), NOW), Placement)


def test_it_can_be_requested_by_its_name() -> None:
    cluster = cluster_of(operating())
    requesting = noted(owner("o"), {RESERVATION_AFFINITY: '{"name": "keeper"}'})
    assert isinstance(cluster.engine.decide(describe(requesting), NOW), Placement)


def test_it_does_not_take_from_itself() -> None:
    cluster = cluster_of(operating())
    own = replace(operating(), metadata=replace(operating().metadata, labels={OPERATING_MODE: "Reservation", **OWNER}))
    cluster.bound(own, "a")
    requesting = noted(own, {RESERVATION_AFFINITY: "{}"})
    assert isinstance(cluster.engine.decide(describe(requesting), NOW), Rejection)


def test_a_pod_that_loses_the_label_reserves_nothing() -> None:
    cluster = cluster_of(operating())
    cluster.bound(replace(operating(), metadata=replace(operating().metadata, labels={})), "a")
    assert isinstance(cluster.engine.decide(describe(owner("o")), NOW), Rejection)


def test_a_record_that_is_known_before_the_pod_counts() -> None:
    """As after a restart, whatever the order in which pods are listed."""
    taken = noted(owner("o"), {RESERVATION_ALLOCATED: allocated_annotation("keeper", "uid-keeper")})
    cluster = cluster_of(taken)
    cluster.state.restore("uid-o")
    cluster.bound(operating(), "a")
    requesting = noted(owner("o2", cpu="1"), {RESERVATION_AFFINITY: "{}"})
    assert isinstance(cluster.engine.decide(describe(requesting), NOW), Rejection)


@pytest.mark.parametrize(("policy", "expected"), [("", Rejection), ("Aligned", Placement), ("Restricted", Placement)])
def test_it_stays_off_a_node_with_a_reservation_of_the_default_policy_that_it_owns(policy: str, expected: type) -> None:
    cluster = cluster_with(available(cpu="1", policy=policy))
    pod = operating(PodStatus(), node="", cpu="1")
    owning = replace(pod, metadata=replace(pod.metadata, labels={**pod.metadata.labels, **OWNER}))
    decided = cluster.engine.decide(describe(owning), NOW)
    assert isinstance(decided, expected), decided


def test_it_may_go_where_others_have_a_reservation_of_the_default_policy() -> None:
    cluster = cluster_with(available(cpu="1"))
    decided = cluster.engine.decide(describe(operating(PodStatus(), node="", cpu="1")), NOW)
    assert isinstance(decided, Placement), decided


def test_a_reservation_of_the_default_policy_stays_off_its_node() -> None:
    cluster = cluster_of(operating(cpu="1"))
    pending = replace(available(cpu="1"), status=ReservationStatus())
    cluster.state.set_object(RESERVATIONS, "r", pending)
    rejection = cluster.engine.decide(describe(reserve_pod(pending)), NOW)
    assert isinstance(rejection, Rejection)
    assert "node(s) reservation allocate policy conflict" in rejection.message


def test_an_owner_that_waits_is_tried_when_the_pod_becomes_ready() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(operating(STARTING))
        fixture.api.store(owner("o"))
        await fixture.until_idle()
        assert "o" not in fixture.api.placed()
        fixture.api.store(operating())
        await fixture.until_idle()
        assert "o" in fixture.api.placed()
        fixture.api.drop("pods", "default/keeper")

    simulate(story, one_node, profile)


def test_a_deleted_pod_reserves_nothing_any_more() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(operating())
        await fixture.until_idle()
        fixture.api.drop("pods", "default/keeper")
        fixture.api.store(noted(owner("o"), {RESERVATION_AFFINITY: "{}"}))
        await fixture.until_idle()
        assert "o" not in fixture.api.placed()

    simulate(story, one_node, profile)


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({RESERVATION_OWNERS: "{"}, f"annotation {RESERVATION_OWNERS}: not JSON"),
        ({RESERVATION_OWNERS: '{"object": {}}'}, f"annotation {RESERVATION_OWNERS}: "),
        ({RESERVATION_CURRENT_OWNER: "7"}, f"annotation {RESERVATION_CURRENT_OWNER}: "),
        (
            {RESERVATION_OWNERS: '[{"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}]'},
            f"annotation {RESERVATION_OWNERS}[0].labelSelector: ",
        ),
    ],
)
def test_what_cannot_be_read_is_reported(annotations: Mapping[str, str], expected: str) -> None:
    faults = operating_faults(annotated(annotations))
    assert [fault[: len(expected)] for fault in faults] == [expected]


def test_the_author_of_broken_annotations_is_reported_once() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(operating(STARTING, **{RESERVATION_OWNERS: "{"}))
        await fixture.until_idle()
        fixture.api.store(operating(READY, **{RESERVATION_OWNERS: "{"}))

    fixture = simulate(story, one_node, profile)
    reported = [reason for name, reason, _ in fixture.events.notes if name == "keeper"]
    assert reported == ["InvalidReservation"]
