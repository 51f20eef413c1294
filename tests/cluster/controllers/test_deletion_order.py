"""Which pods of a ReplicaSet go first."""

from __future__ import annotations

import pytest

from koordinator.api.pod import Pod
from koordinator.cluster.controllers.replica_set.deletion_order import deletion_cost, pods_to_delete
from tests.cluster.controllers.objects import NOW, ago, pod

_HOUR = 3600


@pytest.mark.parametrize(
    ("first", "other"),
    [
        pytest.param(pod("z", node=""), pod("a"), id="not assigned"),
        pytest.param(pod("z", phase="Pending"), pod("a", phase="Unknown"), id="pending"),
        pytest.param(pod("z", phase="Unknown"), pod("a", phase="Running"), id="of an unknown phase"),
        pytest.param(pod("z"), pod("a", ready=NOW), id="not ready"),
        pytest.param(pod("z", ready=ago(_HOUR), cost="-1"), pod("a", ready=NOW), id="cheaper"),
        pytest.param(pod("z", ready=ago(1)), pod("a", ready=ago(_HOUR)), id="ready for a shorter time"),
        pytest.param(pod("z", restarts=2), pod("a", restarts=1), id="restarted more often"),
        pytest.param(pod("z", created=ago(1)), pod("a", created=ago(_HOUR)), id="newer"),
        pytest.param(pod("a", ready=ago(100)), pod("z", ready=ago(101)), id="about as old, by uid"),
    ],
)
def test_of_two_pods_the_first_goes(first: Pod, other: Pod) -> None:
    for pods in ([first, other], [other, first]):
        assert pods_to_delete(pods, pods, 1, NOW) == [first]


def test_a_criterion_outweighs_all_later_ones() -> None:
    unready = pod("z", cost="9", created=ago(_HOUR))
    ready = pod("a", ready=NOW, cost="-9", restarts=7)
    assert pods_to_delete([ready, unready], [], 1, NOW) == [unready]


def test_the_node_with_the_most_pods_of_the_workload_loses_one_first() -> None:
    """Those of another revision of it count."""
    alone, beside = pod("a", node="one", ready=NOW), pod("z", node="two", ready=NOW)
    old = pod("old", node="two", ready=NOW)
    assert pods_to_delete([alone, beside], [alone, beside, old], 1, NOW) == [beside]


def test_all_of_them_if_that_many_are_too_many() -> None:
    pods = [pod("a"), pod("b")]
    assert pods_to_delete(pods, pods, 2, NOW) == pods


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("7", 7),
        ("-7", -7),
        ("0", 0),
        ("2147483647", 2**31 - 1),
        ("2147483648", 0),
        ("+7", 0),
        ("007", 0),
        ("-0", 0),
        ("1.5", 0),
    ],
)
def test_a_cost_is_a_32_bit_number_as_kubernetes_writes_it(text: str, cost: int) -> None:
    assert deletion_cost(pod("p", cost=text)) == cost
