from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from benchmarks import pod_mixes, workload
from benchmarks.pod_mixes import Document
from koordinator.api.labels import QOS_CLASS
from koordinator.api.resource_names import BATCH_CPU


def requests(pod: Document) -> dict[str, str]:
    found: dict[str, str] = pod["spec"]["containers"][0]["resources"]["requests"]
    return found


def is_batch(pod: Document) -> bool:
    return QOS_CLASS in pod["metadata"]["labels"]


def test_mixed_pods_are_the_same_in_every_run() -> None:
    assert pod_mixes.mixed(200) == pod_mixes.mixed(200)


def test_mixed_pods_have_every_request_size() -> None:
    sizes = {tuple(requests(pod).values()) for pod in pod_mixes.mixed(3000) if not is_batch(pod)}
    assert len(sizes) == 25


@pytest.mark.parametrize(
    ("is_one", "expected"),
    [
        (is_batch, 0.4),
        (lambda pod: "affinity" in pod["spec"], 0.1),
        (lambda pod: "topologySpreadConstraints" in pod["spec"], 0.1),
    ],
    ids=["batch", "zone affinity", "spread"],
)
def test_mixed_pods_have_the_shares_that_the_case_names(is_one: Callable[[Document], bool], expected: float) -> None:
    assert sum(map(is_one, pod_mixes.mixed(3000))) / 3000 == pytest.approx(expected, abs=0.02)


def test_batch_pods_request_batch_resources_only() -> None:
    batch = [pod for pod in pod_mixes.mixed(200) if is_batch(pod)]
    assert all(BATCH_CPU in requests(pod) and "cpu" not in requests(pod) for pod in batch)


def test_no_pod_is_both_bound_to_a_zone_and_spread_over_zones() -> None:
    assert not [
        pod for pod in pod_mixes.mixed(3000) if "affinity" in pod["spec"] and "topologySpreadConstraints" in pod["spec"]
    ]


def test_different_pods_differ_in_requests_and_labels_also_from_running_ones() -> None:
    pods = [*pod_mixes.different(1000), *pod_mixes.running(5000, 500)]
    assert len({tuple(requests(pod).values()) for pod in pods}) == len(pods)
    assert len({pod["metadata"]["labels"]["app"] for pod in pods}) == len(pods)


def test_running_pods_are_evenly_on_nodes_that_exist() -> None:
    names = {workload.node(number)["metadata"]["name"] for number in range(10)}
    assert Counter(pod["spec"]["nodeName"] for pod in pod_mixes.running(50, 10)) == dict.fromkeys(names, 5)


def test_consumers_are_half_of_the_pods_and_fill_the_reservations_of_their_teams() -> None:
    teams = Counter(
        pod["metadata"]["labels"]["team"]
        for pod in pod_mixes.with_consumers(2000)
        if "team" in pod["metadata"]["labels"]
    )
    capacity: Counter[str] = Counter()
    for reservation in pod_mixes.reservations(500):
        capacity[reservation["spec"]["owners"][0]["labelSelector"]["matchLabels"]["team"]] += 2
    assert teams.total() == 1000
    assert teams == capacity
