"""The index of Reservations by their labels: it leaves fewer nodes to look at, and never another answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.registry import Collector

from koordinator.api.annotations import RESERVATION_AFFINITY
from koordinator.api.kinds import RESERVATIONS
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.scheduler.configuration.koordinator_arguments import ReservationArgs, ReservationSelectorIndex
from koordinator.scheduler.engine.decision import Rejection
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.features import OMIT_NODE_LABELS
from koordinator.scheduler.plugins.reservation.cache import ReservationCache
from koordinator.scheduler.plugins.reservation.plugin import ReservationPlugin
from koordinator.scheduler.plugins.reservation.reserve_pod import reserve_pod
from koordinator.scheduler.plugins.reservation.selector_index import SelectorIndex
from tests.examples import examples
from tests.scheduler.fakes import describe, make_node
from tests.scheduler.ground.clusters import NOW, Cluster
from tests.scheduler.plugins.reservation.test_documents import plugin_of
from tests.scheduler.plugins.reservation.test_free_capacity import available, noted, owner

INDEXED = ReservationSelectorIndex(enabled=True, key_prefixes=["job-"], keys=["team"])


def cluster_with(*reservations: Reservation, index: ReservationSelectorIndex = INDEXED) -> Cluster:
    class Plugin(ReservationPlugin):
        def __init__(self, args: Any, view: ClusterView) -> None:
            super().__init__(ReservationArgs(reservation_selector_index=index), view)

    cluster = Cluster([make_node(name) for name in "abc"], Plugin)
    for reservation in reservations:
        cluster.state.set_object(RESERVATIONS, reservation.metadata.name, reservation)
        cluster.bound(reserve_pod(reservation), reservation.status.node_name)
    return cluster


def labelled(name: str, node: str, **labels: str) -> Reservation:
    found = available(name, cpu="1", node=node, once=False)
    labels = {key.replace("_", "-"): value for key, value in labels.items()}
    return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, labels=labels))


def selecting(**labels: str) -> Pod:
    selector = {key.replace("_", "-"): value for key, value in labels.items()}
    return noted(owner("o", cpu="1"), {RESERVATION_AFFINITY: json.dumps({"reservationSelector": selector})})


def matched(cluster: Cluster, pod: Pod) -> tuple[str, ...]:
    cache: ReservationCache = cluster.view.shared[ReservationPlugin.name]
    return cache.match(describe(pod)).uids


def index_of(*reservations: tuple[str, str, Mapping[str, str]], **args: Any) -> SelectorIndex:
    index = SelectorIndex(msgspec.structs.replace(INDEXED, **args) if args else INDEXED)
    for uid, node, labels in reservations:
        index.set(uid, node, labels)
    return index


@pytest.mark.parametrize(("gates", "uids"), [(frozenset(), ("uid-r1",)), (frozenset({OMIT_NODE_LABELS}), ())])
def test_the_labels_of_its_node_count_for_a_reservation_unless_the_gate_omits_them(
    gates: frozenset[str], uids: tuple[str, ...]
) -> None:
    cluster = cluster_with(labelled("r1", "a", team="x"), index=ReservationSelectorIndex())
    cluster.state.set_node(make_node("a", labels={"zone": "1"}))
    cluster.view.gates = gates
    assert matched(cluster, selecting(zone="1")) == uids
    assert matched(cluster, selecting(team="x")) == ("uid-r1",)


def test_a_whole_key_leaves_the_nodes_with_the_value() -> None:
    index = index_of(("r1", "a", {"team": "x"}), ("r2", "b", {"team": "y"}), ("r3", "c", {}))
    assert index.candidates({"team": "x"}) == ["a"]


def test_a_prefix_leaves_the_nodes_with_such_a_key_whatever_its_value() -> None:
    index = index_of(("r1", "a", {"job-1": "x"}), ("r2", "b", {"job-2": "y"}), ("r3", "c", {"team": "x"}))
    assert index.candidates({"job-1": "x"}) == ["a", "b"]


def test_a_whole_key_goes_before_a_prefix() -> None:
    index = index_of(("r1", "a", {"team": "x"}), ("r2", "b", {"team": "y"}), key_prefixes=["te"])
    assert index.candidates({"team": "x"}) == ["a"]


def test_the_first_prefix_counts() -> None:
    index = index_of(("r1", "a", {"job-1": "x"}), ("r2", "b", {"j": "y"}), key_prefixes=["j", "job-"])
    assert index.candidates({"job-1": "x"}) == ["a", "b"]


def test_of_several_labels_the_one_of_the_fewest_nodes_counts() -> None:
    index = index_of(("r1", "a", {"job-1": "x", "team": "x"}), ("r2", "b", {"job-1": "x"}))
    assert index.candidates({"job-1": "x", "team": "x"}) == ["a"]


def test_a_label_that_nobody_has_leaves_no_node() -> None:
    assert index_of(("r1", "a", {"team": "x"})).candidates({"team": "z"}) == []


def test_labels_that_are_not_indexed_leave_all_nodes() -> None:
    assert index_of(("r1", "a", {"team": "x"})).candidates({"other": "x"}) is None


def test_what_has_changed_or_is_gone_is_found_as_it_is_now() -> None:
    index = index_of(("r1", "a", {"team": "x"}), ("r1", "b", {"team": "y"}), ("r2", "c", {"team": "y"}))
    index.remove("r2")
    assert (index.candidates({"team": "x"}), index.candidates({"team": "y"})) == ([], ["b"])


def test_blank_and_repeated_names_count_for_nothing() -> None:
    index = index_of(key_prefixes=[" ", " j ", "j"], keys=["", " "])
    assert index.document(detail=False) == {"enabled": True, "prefixes": ["j"], "indexedReservations": 0}


@pytest.mark.parametrize("args", [{"enabled": False}, {"key_prefixes": [], "keys": [" "]}])
def test_an_index_of_nothing_is_off(args: Mapping[str, Any]) -> None:
    assert index_of(**args).document(detail=True) == {"enabled": False, "prefixes": None, "indexedReservations": 0}


def test_the_document_counts_what_is_in_each_bucket() -> None:
    index = index_of(("r1", "a", {"team": "x", "job-1": ""}), ("r2", "a", {"team": "y"}), ("r3", "b", {"team": "y"}))
    assert index.document(detail=False) == {
        "enabled": True,
        "prefixes": ["job-"],
        "keys": ["team"],
        "indexedReservations": 3,
        "byPrefix": {"job-": {"nodes": 1, "reservations": 1}},
        "byKey": {"team": {"nodes": 2, "reservations": 3}},
    }


def test_the_detailed_document_says_which() -> None:
    document = index_of(("r1", "a", {"team": "x"}), ("r2", "a", {"team": "y"})).document(detail=True)
    assert document["byKey"] == {"team": {"nodes": 1, "reservations": 2, "byNode": {"a": ["r1", "r2"]}}}
    assert document["byKeyValue"] == {
        "team": {
            "x": {"nodes": 1, "reservations": 1, "byNode": {"a": ["r1"]}},
            "y": {"nodes": 1, "reservations": 1, "byNode": {"a": ["r2"]}},
        }
    }


def test_the_service_shows_the_index_of_the_cluster() -> None:
    cluster = cluster_with(labelled("r1", "a", team="x"), labelled("r2", "b"))
    service = plugin_of(cluster).services()["/reservationSelectorIndex"]
    assert service({"detail": "true"})["byKeyValue"]["team"]["x"]["byNode"] == {"a": ["uid-r1"]}
    assert "byKeyValue" not in service({})


def samples(collector: Collector) -> dict[tuple[str, ...], float]:
    found = (sample for family in collector.collect() for sample in family.samples)
    prefix = "scheduler_reservation_selector_index_"
    return {(each.name.removeprefix(prefix), *each.labels.values()): each.value for each in found}


def test_look_ups_and_what_they_leave_are_counted() -> None:
    index = index_of(("r1", "a", {"team": "x"}), ("r2", "b", {"team": "x"}))
    for selector in ({"team": "x"}, {"team": "z"}, {"other": "x"}):
        index.candidates(selector)
    found = samples(index.metrics)
    assert (found["query_total", "hit"], found["query_total", "miss"]) == (2.0, 1.0)
    # The first bucket begins at 1, so that no node at all is not counted there.
    assert (found["candidates_count_count",], found["candidates_count_sum",]) == (1.0, 2.0)


def test_a_pod_without_affinity_does_not_look_up_anything() -> None:
    cluster = cluster_with(labelled("r1", "a", team="x"))
    matched(cluster, owner("o"))
    matched(cluster, noted(owner("o"), {RESERVATION_AFFINITY: '{"name": "r1", "reservationSelector": {"team": "x"}}'}))
    *_, metrics = plugin_of(cluster).collectors()
    assert not [key for key in samples(metrics) if key[0] == "query_total"]


def test_a_label_of_the_node_alone_counts() -> None:
    cluster = cluster_with(labelled("r1", "a"))
    cluster.state.set_node(make_node("a", labels={"team": "x"}))
    assert matched(cluster, selecting(team="x")) == ("uid-r1",)


def test_the_labels_of_a_node_that_is_gone_do_not_count() -> None:
    cluster = cluster_with(labelled("r1", "a"))
    cluster.state.set_node(make_node("a", labels={"team": "x"}))
    cluster.state.remove_node("a")
    assert plugin_of(cluster).services()["/reservationSelectorIndex"]({})["indexedReservations"] == 0


def test_reservations_on_nodes_that_are_left_out_are_not_counted_in_messages() -> None:
    cluster = cluster_with(labelled("r1", "a", team="x"), labelled("r2", "a", team="y"), labelled("r3", "b", team="y"))
    rejection = cluster.engine.decide(describe(selecting(team="x", other="z")), NOW)
    assert isinstance(rejection, Rejection)
    assert rejection.message.endswith(
        "2 Reservation(s) didn't match affinity rules, 2 Reservation(s) matched owner total"
    )


def test_the_first_profile_that_enables_an_index_has_it() -> None:
    cluster = cluster_with(labelled("r1", "a", team="x", zone="z"), index=ReservationSelectorIndex())
    for keys in (["zone"], ["team"]):
        args = ReservationArgs(reservation_selector_index=ReservationSelectorIndex(enabled=True, keys=keys))
        ReservationPlugin(args, cluster.view)
    assert plugin_of(cluster).services()["/reservationSelectorIndex"]({})["byKey"] == {
        "zone": {"nodes": 1, "reservations": 1}
    }


KEYS = st.sampled_from(["team", "team-x", "job-1", "job-2", "zone"])
LABELS = st.dictionaries(KEYS, st.sampled_from("xy"), max_size=3)
CHANGES = st.lists(
    st.tuples(st.sampled_from(["r1", "r2", "r3", "a", "b"]), st.none() | st.tuples(st.sampled_from("ab"), LABELS)),
    max_size=8,
)


@settings(max_examples=examples(100))
@given(CHANGES, st.lists(LABELS, min_size=1, max_size=3))
def test_pods_take_from_the_same_reservations_with_the_index_and_without(
    changes: Sequence[tuple[str, tuple[str, dict[str, str]] | None]], selectors: Sequence[dict[str, str]]
) -> None:
    clusters = [cluster_with(), cluster_with(index=ReservationSelectorIndex())]
    for name, change in changes:
        for cluster in clusters:
            if name in "ab":
                cluster.state.set_node(make_node(name, labels=change[1] if change is not None else {}))
            else:
                found = labelled(name, change[0], **change[1]) if change is not None else None
                cluster.state.set_object(RESERVATIONS, name, found)
    for selector in selectors:
        indexed, plain = (matched(cluster, selecting(**selector)) for cluster in clusters)
        assert indexed == plain
