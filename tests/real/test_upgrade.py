"""The programs of the control plane are replaced one at a time, there and back, while pods come and go and work is half
done: those of the Go original by ours, and those of our last release by ours.

What must hold is looked for in all that watches and the audit log have told, not only at the end. docs/upgrade.md tells
a platform engineer what is done here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.real.programs import RealPrograms
from tests.real.upgrade import history, releases, work
from tests.real.upgrade.cluster import PATHS
from tests.real.upgrade.scenario import Upgrade, upgraded

_WAITS_AT_MOST: Final = 40.0
"""Seconds without a scheduler: the grace of the old one and the lease of the new one are 9 of them."""
_CHECKED_ELSEWHERE: Final = ("pods", "nodes", "leases", "podmigrationjobs")
"""Jobs are written by descheduler and user alike; their ends are checked."""


@pytest.fixture(
    scope="module", params=["part 0: original", pytest.param("part 1: last release", marks=pytest.mark.slow)]
)
def upgrade(
    request: pytest.FixtureRequest, real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Upgrade]:
    folder = tmp_path_factory.mktemp("upgrade")
    is_original = "original" in request.param
    old = releases.original(real_programs) if is_original else releases.last_release(folder / "last")
    with upgraded(real_programs, folder, old, releases.ours()) as found:
        yield found


def test_no_pod_moves(upgrade: Upgrade) -> None:
    assert history.moved(upgrade.pods, upgrade.cluster.released) == []


def test_all_that_stays_is_there_at_the_end(upgrade: Upgrade) -> None:
    """A deleted pod would be missed by a check of what watches tell, were none told of it."""
    pods = upgrade.cluster.recorder.latest("pods")
    assert [name for name in upgrade.standing if not history.is_live(pods[name])] == []


def test_no_pod_is_bound_twice_and_one_scheduler_binds_at_a_time(upgrade: Upgrade) -> None:
    assert history.bound_twice(upgrade.cluster.audited()) == []


def test_no_node_has_more_than_it_offers_and_nobody_takes_what_is_reserved(upgrade: Upgrade) -> None:
    reserved = {name: ("held-0", history.requests(work.pod("", "", str(work.RESERVED_CPUS)))) for name in work.RESERVED}
    assert history.overfull(upgrade.pods, upgrade.most_offered, reserved) == []


def test_no_device_is_given_twice(upgrade: Upgrade) -> None:
    assert history.shared_devices(upgrade.pods) == []


def test_no_cpu_is_given_twice(upgrade: Upgrade) -> None:
    assert history.shared_cpus(upgrade.pods) == []


def test_no_quota_is_exceeded(upgrade: Upgrade) -> None:
    assert history.over_quota(upgrade.pods, work.TEAM, "cpu", 1000 * work.TEAM_CPUS) == []


def test_what_the_quota_says_adds_up(upgrade: Upgrade) -> None:
    assert len(upgrade.used) == 2
    assert [stage for stage, (said, counted) in upgrade.used.items() if said != counted] == []


def test_no_object_is_lost_or_changed(upgrade: Upgrade) -> None:
    recorder = upgrade.cluster.recorder
    faults = []
    for resource in sorted(set(PATHS) - set(_CHECKED_ELSEWHERE)):
        events = recorder.of(resource)
        kept = {each.name for each in events if each.at < upgrade.began}
        assert kept, f"there were no {resource}"
        faults += history.changed(events, kept, upgrade.began)
    assert faults == []


def test_a_reservation_keeps_its_owner(upgrade: Upgrade) -> None:
    events = upgrade.cluster.recorder.of("reservations")
    assert history.disowned(events, {"owned": "standing-owner"}, upgrade.began) == []
    free = upgrade.cluster.recorder.latest("reservations")["free"]
    assert {each["name"] for each in free["status"]["currentOwners"]} == {"owner-1", "owner-2"}


def test_nodes_offer_batch_resources_and_gpus_all_the_time(upgrade: Upgrade) -> None:
    roomy = [each for each in upgrade.cluster.recorder.of("nodes") if each.name.startswith("roomy")]
    gpus = [each for each in upgrade.cluster.recorder.of("nodes") if each.name == "gpu-0"]
    assert history.vanished(roomy, "kubernetes.io/batch-cpu") == []
    assert history.vanished(gpus, "koordinator.sh/gpu-core") == []


def test_a_lease_has_one_holder_at_a_time(upgrade: Upgrade) -> None:
    assert history.contested(upgrade.cluster.recorder.of("leases")) == []


def test_gangs_become_whole(upgrade: Upgrade) -> None:
    assert set(upgrade.whole) == {"waiting-1", "half-1", "waiting-2", "half-2"}


def test_migrations_end(upgrade: Upgrade) -> None:
    assert upgrade.jobs == {"moving-1": "Succeeded", "moving-2": "Succeeded"}


def test_pods_are_admitted_and_placed_all_the_time(upgrade: Upgrade) -> None:
    names = upgrade.load.created["plain"]
    assert upgrade.load.refused == []
    late = {name: seconds for name, seconds in history.waits(upgrade.pods, names).items() if seconds > _WAITS_AT_MOST}
    assert late == {}
    added = [each for each in upgrade.pods if each.kind == "ADDED" and each.name in set(names)]
    missed = [each for each in added if "admitted" not in each.object["metadata"]["labels"]]
    assert [each.name for each in missed if not any(start < each.at < end for start, end in upgrade.crashed)] == []
