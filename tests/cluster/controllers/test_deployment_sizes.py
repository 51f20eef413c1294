"""How many replicas the ReplicaSets of a Deployment get."""

from __future__ import annotations

import pytest

from koordinator.cluster.controllers.deployment.sizes import (
    Fleet,
    Limits,
    is_scaling,
    limits_of,
    recreate,
    rolling_update,
    scaled,
)
from koordinator.cluster.controllers.workloads import ReplicaSet
from tests.cluster.controllers.objects import ago, deployment, replica_set


def _noted(
    name: str, replicas: int, desired: int, most: int, *, available: int | None = None, age: float = 0
) -> ReplicaSet:
    return replica_set(
        name,
        replicas,
        available=replicas if available is None else available,
        created=ago(age),
        annotations={
            "deployment.kubernetes.io/desired-replicas": str(desired),
            "deployment.kubernetes.io/max-replicas": str(most),
        },
    )


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "limits"),
    [
        (10, "25%", "25%", Limits(3, 2)),
        (1, "25%", "25%", Limits(1, 0)),
        (3, 2, 1, Limits(2, 1)),
        (3, 0, 0, Limits(0, 1)),
        (3, "0%", "10%", Limits(0, 1)),
        (2, 1, 5, Limits(1, 2)),
        (0, "25%", "25%", Limits(0, 0)),
    ],
)
def test_shares_are_rounded_up_for_the_surge_and_down_for_the_unavailable(
    replicas: int, surge: int | str, unavailable: int | str, limits: Limits
) -> None:
    assert limits_of(deployment(replicas, surge=surge, unavailable=unavailable)) == limits


def test_a_recreation_has_no_surge() -> None:
    assert limits_of(deployment(4, strategy="Recreate")) == Limits(0, 0)


def test_the_new_one_grows_before_the_old_one_shrinks() -> None:
    fleet = Fleet(replica_set("new", 0), [replica_set("old", 10, available=10)])
    assert rolling_update(deployment(10), fleet) == {"new": 3}


def test_the_old_one_shrinks_by_what_is_available_beyond_the_least() -> None:
    fleet = Fleet(replica_set("new", 3, available=1), [replica_set("old", 10, available=10)])
    assert rolling_update(deployment(10), fleet) == {"old": 7}


def test_pods_that_are_not_available_go_first_wherever_they_are() -> None:
    sound, broken = replica_set("sound", 5, available=5, created=ago(9)), replica_set("broken", 3, created=ago(1))
    fleet = Fleet(replica_set("new", 2, available=2), [sound, broken])
    assert rolling_update(deployment(7, surge=3, unavailable=0), fleet) == {"broken": 0}


def test_pods_that_a_status_says_of_another_size_count_as_none() -> None:
    """It was shrunk and grew again: what it reported is not there any more."""
    outdated = replica_set("old", 4, available=4, observed_generation=0)
    fleet = Fleet(replica_set("new", 2, available=2), [outdated])
    assert rolling_update(deployment(4, surge=2, unavailable=0), fleet) == {}


@pytest.mark.parametrize(
    ("old", "old_pods_run", "sizes"),
    [(3, True, {"old": 0}), (0, True, {}), (0, False, {"new": 3})],
)
def test_a_recreation_waits_for_the_last_old_pod(old: int, old_pods_run: bool, sizes: dict[str, int]) -> None:
    fleet = Fleet(replica_set("new", 0), [replica_set("old", old)])
    assert recreate(deployment(3, strategy="Recreate"), fleet, old_pods_run=old_pods_run) == sizes


def test_another_number_of_replicas_than_the_one_noted_is_a_change_of_scale() -> None:
    fleet = Fleet(_noted("new", 3, 3, 4), [])
    assert (is_scaling(deployment(3), fleet), is_scaling(deployment(4), fleet)) == (False, True)


def test_the_only_replica_set_takes_them_all() -> None:
    assert scaled(deployment(7), Fleet(_noted("new", 3, 3, 4), [replica_set("old", 0)])) == {"new": 7}


def test_an_old_one_takes_them_all_if_none_has_pods_and_there_is_no_new_one() -> None:
    old = [replica_set("older", 0, created=ago(9)), replica_set("old", 0, created=ago(1))]
    assert scaled(deployment(2), Fleet(None, old)) == {"old": 2}


def test_old_ones_lose_their_pods_when_the_new_one_has_all() -> None:
    assert scaled(deployment(3), Fleet(_noted("new", 3, 3, 4), [_noted("old", 1, 3, 4)])) == {"old": 0}


@pytest.mark.parametrize(
    ("replicas", "sizes"),
    [
        pytest.param(20, {"new": 10, "old": 15}, id="grown"),
        pytest.param(5, {"new": 3, "old": 4}, id="shrunk"),
        pytest.param(0, {"new": 0, "old": 0}, id="to none"),
    ],
)
def test_in_the_midst_of_an_update_they_keep_their_proportion(replicas: int, sizes: dict[str, int]) -> None:
    """5 and 8 of at most 13 become 10 and 15 of at most 25."""
    fleet = Fleet(_noted("new", 5, 10, 13, available=0), [_noted("old", 8, 10, 13, age=9)])
    assert scaled(deployment(replicas), fleet) == sizes


def test_nothing_is_scaled_where_there_is_nothing() -> None:
    assert scaled(deployment(3), Fleet(None, [])) == {}
