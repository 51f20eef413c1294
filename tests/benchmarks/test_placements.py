from __future__ import annotations

from benchmarks import pod_mixes, workload
from benchmarks.placements import Faults, broken_rules, over_allocatable, without_reservation
from benchmarks.pod_mixes import Document

NODES = [workload.node(number) for number in range(6)]
NAMES = [node["metadata"]["name"] for node in NODES]
ZONES = {name: workload.zone_of(number) for number, name in enumerate(NAMES)}


def all_on(pods: list[Document], node: str) -> dict[str, str]:
    return {pod["metadata"]["name"]: node for pod in pods}


def round_robin(pods: list[Document]) -> dict[str, str]:
    return {pod["metadata"]["name"]: NAMES[number % len(NAMES)] for number, pod in enumerate(pods)}


def spread(count: int) -> list[Document]:
    return [pod for pod in pod_mixes.mixed(40 * count) if "topologySpreadConstraints" in pod["spec"]][:count]


def bound_to(zone: str) -> Document:
    def zones(pod: Document) -> list[str]:
        rule = pod["spec"].get("affinity", {}).get("nodeAffinity")
        if rule is None:
            return []
        terms = rule["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        found: list[str] = terms[0]["matchExpressions"][0]["values"]
        return found

    return next(pod for pod in pod_mixes.mixed(3000) if zones(pod) == [zone])


def test_a_node_may_be_filled_to_the_last_bit() -> None:
    pods = pod_mixes.equal(64)
    assert over_allocatable(NODES, pods, all_on(pods, NAMES[0])) == []


def test_one_pod_more_is_too_many() -> None:
    pods = pod_mixes.equal(65)
    assert over_allocatable(NODES, pods, all_on(pods, NAMES[0])) == [NAMES[0]]


def test_pods_that_ran_before_count_too() -> None:
    pods, running = pod_mixes.equal(64), pod_mixes.running(1, 1)
    assert over_allocatable(NODES, [*pods, *running], all_on(pods, NAMES[0])) == [NAMES[0]]


def test_pods_count_against_the_node_s_limit_of_pods() -> None:
    pods = pod_mixes.equal(257)
    for pod in pods:
        pod["spec"]["containers"][0]["resources"]["requests"] = {}
    assert over_allocatable(NODES, pods, all_on(pods, NAMES[0])) == [NAMES[0]]


def test_a_pod_bound_to_a_zone_must_be_in_it() -> None:
    pod = bound_to(ZONES[NAMES[0]])
    assert broken_rules([pod], all_on([pod], NAMES[0]), ZONES) == []
    assert len(broken_rules([pod], all_on([pod], NAMES[1]), ZONES)) == 1


def test_pods_that_keep_apart_must_not_share_a_node() -> None:
    pods = pod_mixes.apart(2)
    assert broken_rules(pods, round_robin(pods), ZONES) == []
    assert len(broken_rules(pods, all_on(pods, NAMES[0]), ZONES)) == 1


def test_zones_must_have_as_many_spread_pods_but_for_one() -> None:
    pods = spread(5)
    assert broken_rules(pods, round_robin(pods), ZONES) == []
    assert len(broken_rules(pods, all_on(pods, NAMES[0]), ZONES)) == 1


def test_a_pod_that_was_not_bound_breaks_no_rule() -> None:
    assert broken_rules(pod_mixes.apart(2), {}, ZONES) == []


def test_any_count_is_a_fault() -> None:
    assert not Faults(0, 0, 0, 0, 0).any
    assert all(Faults(*(int(place == one) for place in range(5))).any for one in range(5))


def test_an_owner_that_uses_no_reservation_is_found() -> None:
    pods = pod_mixes.with_consumers(6)
    owners = {pod["metadata"]["name"] for pod in pods[::2]}
    assert without_reservation(pods, owners) == []
    assert len(without_reservation(pods, set(sorted(owners)[1:]))) == 1
