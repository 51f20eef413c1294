"""An owner does not mind the Reservation that it may take from, though that has the same labels and terms."""

from __future__ import annotations

from msgspec.structs import replace

from koordinator.api.kinds import RESERVATIONS
from koordinator.api.meta import LabelSelector
from koordinator.api.pod import Affinity, Pod, PodAffinity, PodAffinityTerm
from koordinator.api.reservation import Reservation
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.plugins.inter_pod_affinity.plugin import InterPodAffinity
from koordinator.scheduler.plugins.reservation.plugin import ReservationPlugin
from koordinator.scheduler.plugins.reservation.reserve_pod import reserve_pod
from tests.scheduler.fakes import describe, make_node, make_pod
from tests.scheduler.ground.clusters import NOW, Cluster
from tests.scheduler.plugins.reservation.test_free_capacity import OWNER, available, owner

HOSTNAME = "kubernetes.io/hostname"


def alone(pod: Pod) -> Pod:
    """No other pod with the owners' labels may be on its node."""
    term = PodAffinityTerm(label_selector=LabelSelector(match_labels=OWNER), topology_key=HOSTNAME)
    rule = PodAffinity(required_during_scheduling_ignored_during_execution=[term])
    return replace(pod, spec=replace(pod.spec, affinity=Affinity(pod_anti_affinity=rule)))


def reserved_alone(reservation: Reservation) -> Reservation:
    template = reservation.spec.template
    assert template is not None
    pod = alone(Pod(metadata=replace(template.metadata, labels=OWNER), spec=template.spec))
    template = replace(template, metadata=pod.metadata, spec=pod.spec)
    return replace(reservation, spec=replace(reservation.spec, template=template))


def cluster_with(*reservations: Reservation) -> Cluster:
    nodes = [make_node(name, labels={HOSTNAME: name}) for name in ("a", "b")]
    cluster = Cluster(nodes, InterPodAffinity, ReservationPlugin)
    for reservation in reservations:
        cluster.state.set_object(RESERVATIONS, reservation.metadata.name, reservation)
        cluster.bound(reserve_pod(reservation), reservation.status.node_name)
    return cluster


def test_it_goes_to_the_reserved_node() -> None:
    cluster = cluster_with(reserved_alone(available(once=False)))
    cluster.bound(make_pod("other", labels=OWNER), "b")
    placement = cluster.engine.decide(describe(alone(owner("o"))), NOW)
    assert isinstance(placement, Placement)
    assert placement.node_name == "a"


def test_the_next_owner_minds_the_first() -> None:
    cluster = cluster_with(reserved_alone(available(cpu="3", once=False)))
    cluster.bound(make_pod("other", labels=OWNER), "b")
    first = cluster.engine.decide(describe(alone(owner("o", cpu="1"))), NOW)
    assert isinstance(first, Placement)
    assert cluster.engine.assume(first) is None
    assert isinstance(cluster.engine.decide(describe(alone(owner("o2", cpu="1"))), NOW), Rejection)


def test_others_mind_the_reservation() -> None:
    cluster = cluster_with(reserved_alone(available(cpu="1")))
    cluster.bound(make_pod("other", labels=OWNER), "b")
    stranger = alone(make_pod("s", cpu="1", labels={"app": "stranger"}))
    assert isinstance(cluster.engine.decide(describe(stranger), NOW), Rejection)


def test_what_was_thought_gone_is_minded_again_by_like_pods() -> None:
    """The owner is decided about twice; in between, the Reservation gets a user."""
    cluster = cluster_with(reserved_alone(available(once=False)))
    cluster.bound(make_pod("other", labels=OWNER), "b")
    pods = [describe(alone(owner(name, cpu="1"))) for name in ("o1", "o2")]
    first = cluster.engine.decide(pods[0], NOW)
    assert isinstance(first, Placement)
    assert isinstance(cluster.engine.decide(pods[1], NOW), Placement)
    assert cluster.engine.assume(first) is None
    assert isinstance(cluster.engine.decide(pods[1], NOW), Rejection)
    cluster.engine.forget(first)
    assert isinstance(cluster.engine.decide(pods[1], NOW), Placement)
