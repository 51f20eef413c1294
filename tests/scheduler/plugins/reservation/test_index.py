"""The index of owners finds what a look at every reservation finds, whatever has happened to them before."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.annotations import RESERVATION_AFFINITY, RESERVATION_ALLOCATED
from koordinator.api.kinds import RESERVATIONS
from koordinator.api.meta import LabelSelector, LabelSelectorRequirement, ObjectReference, OwnerReference
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation, ReservationControllerReference, ReservationOwner
from koordinator.scheduler.plugins.reservation.cache import ReservationCache
from koordinator.scheduler.plugins.reservation.matching import Owners
from koordinator.scheduler.plugins.reservation.plugin import ReservationPlugin
from tests.examples import examples
from tests.scheduler.fakes import describe, make_node, make_pod
from tests.scheduler.ground.clusters import Cluster
from tests.scheduler.plugins.reservation.test_free_capacity import OWNER, available, cluster_with, noted

NAMES = st.sampled_from(["x", "y"])
LABELS = st.dictionaries(NAMES, NAMES, max_size=2)
REQUIREMENTS = st.one_of(
    st.builds(
        LabelSelectorRequirement,
        key=NAMES,
        operator=st.sampled_from(["In", "NotIn"]),
        values=st.lists(NAMES, min_size=1),
    ),
    st.builds(LabelSelectorRequirement, key=NAMES, operator=st.sampled_from(["Exists", "DoesNotExist"])),
)
EXPRESSIONS = st.lists(REQUIREMENTS, max_size=2)
SELECTORS = st.builds(LabelSelector, match_labels=LABELS, match_expressions=EXPRESSIONS)
OBJECTS = st.builds(ObjectReference, name=st.sampled_from(["", "x"]), uid=st.sampled_from(["", "uid-x", "uid-y"]))
CONTROLLERS = st.builds(ReservationControllerReference, uid=st.sampled_from(["", "x"]), name=st.sampled_from(["", "y"]))
OWNERS = st.one_of(
    st.builds(ReservationOwner, object=OBJECTS),
    st.builds(ReservationOwner, controller=CONTROLLERS),
    st.builds(ReservationOwner, label_selector=SELECTORS),
    st.builds(ReservationOwner, object=st.none() | OBJECTS, controller=CONTROLLERS, label_selector=SELECTORS),
)
CHANGES = st.lists(
    st.tuples(st.sampled_from("abc"), st.none() | st.lists(OWNERS, min_size=1, max_size=2)), min_size=1, max_size=8
)


def pod(name: str, labels: dict[str, str], references: Sequence[tuple[str, str]]) -> Pod:
    made = make_pod(name, labels=labels)
    owners = [OwnerReference(uid=uid, name=of) for uid, of in references]
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, owner_references=owners))


PODS = [
    pod(name, {key: value for key, value in (("x", x), ("y", y)) if value}, [(uid, "y")])
    for name, x, y, uid in itertools.product("xy", ("", "x", "y"), ("", "x", "y"), "xy")
]
"""One of each kind that the owners above tell apart."""


def changed(cluster: Cluster, name: str, owners: Sequence[ReservationOwner] | None) -> Reservation | None:
    if owners is None:
        cluster.state.set_object(RESERVATIONS, name, None)
        return None
    found = available(name, once=False)
    found = msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, owners=owners))
    cluster.state.set_object(RESERVATIONS, name, found)
    return found


@settings(max_examples=examples(100))
@given(CHANGES)
def test_the_index_finds_what_a_look_at_every_reservation_finds(
    changes: Sequence[tuple[str, Sequence[ReservationOwner] | None]],
) -> None:
    cluster = cluster_with()
    there: dict[str, Reservation] = {}
    for name, owners in changes:
        found = changed(cluster, name, owners)
        if found is None:
            there.pop(name, None)
        else:
            there[name] = found
    cache: ReservationCache = cluster.view.shared[ReservationPlugin.name]
    for each in PODS:
        owned = tuple(sorted(r.metadata.uid for r in there.values() if Owners(r.spec.owners).include(each)))
        assert cache.match(describe(each)).uids == owned


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (LabelSelector(match_labels={"a": "common", "z": "rare"}), {("label", "z", "rare")}),
        (
            LabelSelector(
                match_labels={"a": "common"},
                match_expressions=[LabelSelectorRequirement(key="z", operator="In", values=["rare", "none"])],
            ),
            {("label", "z", "rare"), ("label", "z", "none")},
        ),
        (
            LabelSelector(
                match_labels={"a": "common"}, match_expressions=[LabelSelectorRequirement(key="z", operator="Exists")]
            ),
            {("key", "z")},
        ),
        (LabelSelector(match_expressions=[LabelSelectorRequirement(key="z", operator="DoesNotExist")]), {None}),
    ],
)
def test_owners_are_looked_up_by_what_the_fewest_have(selector: LabelSelector, expected: set[Hashable]) -> None:
    sizes: dict[Hashable, int] = {("label", "a", "common"): 9, ("label", "z", "rare"): 1}
    owners = Owners([ReservationOwner(label_selector=selector)])
    assert owners.index_keys(lambda key: sizes.get(key, 0)) == expected


class CountedOwners(Owners):
    calls = 0

    def include(self, pod: Pod) -> bool:
        self.calls += 1
        return super().include(pod)


def test_a_pod_is_matched_anew_for_what_is_reserved_and_not_for_what_is_used() -> None:
    cluster = cluster_with(available(cpu="1"))
    cache: ReservationCache = cluster.view.shared[ReservationPlugin.name]
    booking = cache.bookings["uid-r"]
    booking.owners = owners = CountedOwners(booking.reservation.spec.owners)
    requesting = describe(make_pod("asking", labels=OWNER))
    assert cache.match(requesting).uids == ("uid-r",)
    cluster.bound(noted(make_pod("user"), {RESERVATION_ALLOCATED: '{"name":"r","uid":"uid-r"}'}), "a")
    assert cache.match(requesting).uids == ()
    cluster.state.remove_pod("uid-user")
    assert cache.match(requesting).uids == ("uid-r",)
    assert owners.calls == 1


def test_labels_that_a_node_gets_count_for_its_reservations() -> None:
    cluster = cluster_with(available())
    requesting = noted(
        make_pod("asking", labels=OWNER), {RESERVATION_AFFINITY: '{"reservationSelector": {"zone": "x"}}'}
    )
    cache: ReservationCache = cluster.view.shared[ReservationPlugin.name]
    info = describe(requesting)
    assert cache.match(info).uids == ()
    cluster.state.set_node(make_node("a", labels={"zone": "x"}))
    assert cache.match(info).uids == ("uid-r",)
