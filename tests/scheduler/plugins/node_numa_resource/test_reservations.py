"""What Reservations hold of CPUs and NUMA nodes is for their owners, and for nobody else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from koordinator.api import annotations as annotation_keys
from koordinator.api.kinds import RESERVATIONS
from koordinator.api.labels import RESERVATION_IGNORED
from koordinator.api.pod import Pod, PodTemplateSpec
from koordinator.api.reservation import RESTRICTED, Reservation
from koordinator.scheduler.plugins.reservation.plugin import ReservationPlugin
from koordinator.scheduler.plugins.reservation.reserve_pod import reserve_pod
from tests.scheduler.plugins.node_numa_resource.numa_cluster import NUMA, Machines, pod, topology
from tests.scheduler.plugins.reservation.test_free_capacity import OWNER, available

FULL = {"requiredCPUBindPolicy": "FullPCPUs"}
SINGLE = {"node.koordinator.sh/numa-topology-policy": "SingleNUMANode"}
AFFINITY = {annotation_keys.RESERVATION_AFFINITY: json.dumps({"reservationSelector": {}})}


def holding(
    name: str, cpu: str, *, policy: str = "", zones: Mapping[int, str] | None = None, cpus: str = ""
) -> Reservation:
    """One on the node, of which the record names CPUs, or CPU by NUMA node."""
    found = available(name, cpu, "a", once=False)
    template = pod(name, cpu, "100Mi", spec=FULL if cpus else None, qos="LSR" if cpus else "LS")
    status: dict[str, Any] = {"cpuset": cpus} if cpus else {}
    if zones:
        status["numaNodeResources"] = [{"node": number, "resources": {"cpu": each}} for number, each in zones.items()]
    return replace(
        found,
        metadata=replace(found.metadata, annotations={annotation_keys.RESOURCE_STATUS: json.dumps(status)}),
        spec=replace(
            found.spec,
            allocate_policy=policy,
            template=PodTemplateSpec(metadata=template.metadata, spec=template.spec),
        ),
    )


def cluster(*reservations: Reservation, labels: Mapping[str, str] | None = None, cpu: str = "16") -> Machines:
    machines = Machines(topology(), plugins=(ReservationPlugin, NUMA), labels=labels, cpu=cpu)
    for each in reservations:
        machines.state.set_object(RESERVATIONS, each.metadata.name, each)
        machines.bound(reserve_pod(each), "a")
    return machines


def owner(name: str, cpu: str, *, required: bool = False, **changes: Any) -> Pod:
    changes.setdefault("spec", FULL)
    return pod(name, cpu, annotations=AFFINITY if required else None, **{**OWNER, **changes})


def test_reserved_cpus_are_for_owners() -> None:
    machines = cluster(holding("r", "4", cpus="8-11"), cpu="32")

    assert machines.placed(pod("p", "12", spec=FULL)) == "0-7,12-15"
    assert "not enough cpus" in machines.refused(pod("q", "2", spec=FULL))
    assert machines.placed(owner("o", "4")) == "8-11"


def test_an_owner_takes_reserved_cpus_first_and_then_others() -> None:
    machines = cluster(holding("r", "4", cpus="8-11"))

    assert machines.placed(owner("o", "6")) == "0-1,8-11"


def test_what_an_owner_has_left_is_for_the_next_one() -> None:
    machines = cluster(holding("r", "4", cpus="8-11"))
    machines.placed(owner("o", "2"))

    assert machines.placed(owner("o2", "2")) == "10-11"


def test_an_owner_does_not_take_what_another_reservation_holds() -> None:
    machines = cluster(holding("r1", "4", cpus="8-11"), holding("r2", "4", cpus="12-15"), cpu="32")
    machines.placed(pod("p", "8", spec=FULL))

    assert machines.placed(owner("o", "4")) == "8-11"
    assert "not enough cpus available" in machines.refused(owner("o2", "6", required=True))
    assert machines.placed(owner("o3", "4")) == "12-15"


@pytest.mark.parametrize(("cpu", "fits"), [("4", True), ("6", False)])
def test_a_restricted_reservation_gives_no_more_than_it_holds(cpu: str, fits: bool) -> None:
    machines = cluster(holding("r", "4", cpus="8-11", policy=RESTRICTED))

    if fits:
        assert machines.placed(owner("o", cpu, required=True)) == "8-11"
    else:
        assert "Reservation(s)" in machines.refused(owner("o", cpu, required=True))


def test_owners_of_a_reservation_without_cpus_take_from_the_node() -> None:
    machines = cluster(holding("r", "4", zones={}))

    assert machines.placed(owner("o", "4")) == "0-3"


def test_who_ignores_reservations_takes_what_they_hold() -> None:
    machines = cluster(holding("r", "12", cpus="0-11"))
    ignoring = pod("p", "8", spec=FULL)
    ignoring.metadata.labels[RESERVATION_IGNORED] = "true"

    assert machines.placed(ignoring) == "0-7"


def test_a_reserved_numa_node_is_for_owners() -> None:
    machines = cluster(holding("r", "6", zones={0: "6"}), labels=SINGLE)
    machines.placed(pod("p", "6", qos="LS"))

    assert machines.zones_of(pod("p"))[1]["cpu"] == "6"
    assert "Unaligned" in machines.refused(pod("q", "4", qos="LS"))
    machines.placed(owner("o", "4", qos="LS", spec=None))
    assert machines.zones_of(pod("o"))[0]["cpu"] == "4"


def test_what_owners_have_taken_counts_once() -> None:
    machines = cluster(holding("r", "4", zones={0: "4"}), labels=SINGLE)
    machines.placed(owner("o", "4", qos="LS", spec=None))

    machines.placed(pod("p", "8", qos="LS"))
    machines.placed(pod("q", "4", qos="LS"))

    assert [machines.zones_of(pod(name)).keys() for name in "opq"] == [{0}, {1}, {0}]


def test_an_owner_leaves_and_its_part_is_reserved_again() -> None:
    machines = cluster(holding("r", "4", cpus="8-11"))
    taken = owner("o", "4")
    machines.placed(taken)

    machines.state.forget(taken.metadata.uid)

    assert machines.placed(pod("p", "12", spec=FULL)) == "0-7,12-15"
    assert machines.placed(owner("o2", "4")) == "8-11"
