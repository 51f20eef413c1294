"""What DeviceShare decides otherwise than the original, or what shows only in the engine: filters, hints, records."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from koordinator.api.annotations import DEVICE_ALLOCATED
from koordinator.api.codec import convert
from koordinator.api.core import ConfigMap
from koordinator.api.kinds import CONFIG_MAPS, DEVICES
from koordinator.api.labels import GPU_ISOLATION_PROVIDER, GPU_MODEL, GPU_VENDOR
from koordinator.api.pod import Pod
from koordinator.base.services import ServiceError
from koordinator.scheduler.engine.binding_points import PodChanges
from koordinator.scheduler.engine.decision import Placement
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.framework import PluginError
from tests.scheduler.fakes import make_pod
from tests.scheduler.plugins.device_share.machines import GIB, Machines, device, eight, gpu, make_device_pod, rdma

SHARE: dict[str, Any] = {"gpu_core": 50, "gpu_memory_ratio": 50}


class Writer:
    """Notes what is written."""

    def __init__(self) -> None:
        self.patches: list[tuple[str, Any]] = []

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    async def patch(self, kind: Any, name: str, namespace: str, patch: Any, subresource: str = "") -> None:
        self.patches.append((name, patch))


def recorded(machines: Machines, placement: Placement, writer: Writer | None = None) -> PodChanges:
    """What PreBind wants written."""
    changes, state = PodChanges(), placement.state
    asyncio.run(
        machines.plugin.pre_bind(state, placement.pod, placement.node, changes, writer or Writer())  # type: ignore[arg-type]
    )
    return changes


def test_pods_without_devices_are_all_alike() -> None:
    machines = Machines(device(gpu(0)))
    pod = machines.info(make_pod("p"))
    assert machines.plugin.class_key(pod) is None
    assert machines.plugin.pre_filter(pod).skip


def test_nodes_with_like_devices_are_evaluated_once() -> None:
    """But for one that has a device less, and for one on which somebody has a share."""
    names = [f"n{number}" for number in range(20)]
    machines = Machines(*[device(gpu(0), gpu(1, health=name != "n3"), node=name) for name in names])
    machines.bound(
        make_device_pod("x"), "n7", devices='{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"5"}}]}'
    )
    info, requested = machines.info(make_device_pod("p", gpu=200)), []

    def filter_one(pod: Any, state: Any, row: int) -> int:
        requested.append(row)
        return type(machines.plugin).filter_one(machines.plugin, pod, state, row)

    machines.plugin.filter_one = filter_one  # type: ignore[method-assign]
    rows = np.arange(1, 21)
    codes = machines.plugin.filter(info, machines.plugin.demand_of(info), rows)
    assert len(requested) == 3
    assert [machines.view.columns.names[row] for row in rows[codes != 0].tolist()] == ["n3", "n7"]


def test_a_gpu_of_which_nobody_knows_the_bytes_is_shared_by_percent() -> None:
    """koordlet describes GPUs that use the memory of the CPUs so."""
    unified = gpu(0)
    del unified["resources"]["koordinator.sh/gpu-memory"]
    machines = Machines(device(unified))
    assert "Insufficient GPU Devices" in machines.message(make_device_pod("bytes", gpu_memory="1Gi"))
    for name in ("p", "q"):
        machines.place(make_device_pod(name, **SHARE))
        assert machines.minors(name) == [0]
    assert "Insufficient GPU Devices" in machines.message(make_device_pod("r", **SHARE))


def test_a_share_takes_memory_in_both_units() -> None:
    machines = Machines(device(gpu(0)))
    machines.place(make_device_pod("p", gpu_memory="5Gi"))
    ((_, (held,)),) = machines.held("uid-p")
    assert dict(held.resources) == {"koordinator.sh/gpu-memory": 5 * GIB, "koordinator.sh/gpu-memory-ratio": 31}


def test_a_share_by_percent_does_not_take_bytes_that_another_share_has() -> None:
    machines = Machines(device(gpu(0)))
    machines.place(make_device_pod("p", gpu_memory="8300Mi"))
    assert dict(machines.held("uid-p")[0][1][0].resources)["koordinator.sh/gpu-memory-ratio"] == 50
    assert "Insufficient GPU Devices" in machines.message(make_device_pod("q", gpu_memory_ratio=50))


def test_what_a_device_does_not_name_it_does_not_have() -> None:
    resources = {"koordinator.sh/gpu-memory": "16Gi", "koordinator.sh/gpu-memory-ratio": 100}
    machines = Machines(device(gpu(0, resources=resources)))
    assert "Insufficient GPU Devices" in machines.message(make_device_pod("p", gpu=100))


def test_another_isolation_rules_out_the_node_alone() -> None:
    machines = Machines(device(gpu(0)), device(gpu(0), node="b"), labels={GPU_ISOLATION_PROVIDER: "other"})
    pod = make_device_pod("p", labels={GPU_ISOLATION_PROVIDER: "HAMi-core"}, **SHARE)
    assert "2 GPUIsolationProviderHAMICore not found on the node" in machines.message(pod)


def test_the_partitions_with_the_highest_score_come_first() -> None:
    table = '{"2":[{"minors":[0,1],"allocationScore":1},{"minors":[2,3],"allocationScore":9}]}'
    machines = Machines(device(*eight(), annotations={"scheduling.koordinator.sh/gpu-partitions": table}))
    machines.place(make_device_pod("p", gpu=200, annotations={"gpu_partition_spec": {"allocatePolicy": "Restricted"}}))
    assert machines.minors("p") == [2, 3]


def test_partitions_of_many_gpus_are_distinguished() -> None:
    """Minor numbers above 63 are numbers like others."""
    table = '{"1":[{"minors":[70],"allocationScore":1},{"minors":[6],"allocationScore":1}]}'
    annotations = {"scheduling.koordinator.sh/gpu-partitions": table}
    machines = Machines(device(gpu(6), gpu(70), annotations=annotations))
    pods = [make_device_pod(name, gpu=100, annotations={"gpu_partition_spec": {}}) for name in ("p", "q")]
    for pod in pods:
        machines.place(pod)
    assert machines.minors("p") + machines.minors("q") == [70, 6]


@pytest.mark.parametrize(("strategy", "minor"), [("LeastAllocated", 1), ("MostAllocated", 0)])
def test_of_shared_gpus_the_emptiest_or_the_fullest_is_taken(strategy: str, minor: int) -> None:
    machines = Machines(
        device(gpu(0), gpu(1)),
        scoringStrategy={"type": strategy, "resources": [{"name": "koordinator.sh/gpu-memory-ratio", "weight": 1}]},
    )
    text = '{"gpu":[{"minor":%d,"resources":{"koordinator.sh/gpu-memory-ratio":"%d"}}]}'
    machines.bound(make_device_pod("x"), devices=text % (0, 40))
    machines.bound(make_device_pod("y"), devices=text % (1, 20))
    machines.place(make_device_pod("p", gpu_memory_ratio=30))
    assert machines.minors("p") == [minor]


def test_a_pod_that_wants_its_pcie_switch_for_itself_gets_an_unused_one() -> None:
    machines = Machines(device(*[rdma(minor, pcie=str(minor // 2)) for minor in range(4)]))
    machines.place(make_device_pod("p", rdma=10))
    hint = {"device_allocate_hint": {"rdma": {"exclusivePolicy": "PCIeLevel"}}}
    machines.place(make_device_pod("q", rdma=10, annotations=hint))
    assert (machines.minors("p", "rdma"), machines.minors("q", "rdma")) == ([0], [2])


def test_devices_that_do_not_work_are_no_devices_to_apply_for() -> None:
    machines = Machines(device(rdma(0), rdma(1, health=False), rdma(2)))
    hint = {"device_allocate_hint": {"rdma": {"allocateStrategy": "ApplyForAll"}}}
    machines.place(make_device_pod("p", rdma=5, annotations=hint))
    assert machines.minors("p", "rdma") == [0, 2]


def test_no_gpus_are_in_the_scope_device() -> None:
    machines = Machines(device(*eight()))
    pod = make_device_pod(
        "p", gpu=100, annotations={"device_allocate_hint": {"gpu": {"requiredTopologyScope": "Device"}}}
    )
    assert "no GPUs are in the scope Device" in machines.message(pod)


def test_where_nodes_are_planned_well_the_secondary_device_shows_at_reserve_alone() -> None:
    labels = {"node.koordinator.sh/secondary-device-well-planned": "true"}
    machines = Machines(device(gpu(0), labels=labels))
    together = {"device_joint_allocate": {"deviceTypes": ["gpu", "rdma"]}}
    result = machines.decide(make_device_pod("p", gpu=100, rdma=1, annotations=together))
    assert isinstance(result, Placement)
    rejection = machines.engine.assume(result)
    assert rejection is not None
    assert "Insufficient rdma devices" in rejection.message


def test_a_share_has_to_be_a_template_of_its_model() -> None:
    labels = {GPU_VENDOR: "huawei", GPU_MODEL: "Ascend-910B"}
    resources = {"huawei.com/npu-core": 20, "huawei.com/npu-cpu": 7, "koordinator.sh/gpu-memory": "32Gi"}
    machines = Machines(device(gpu(0, resources=resources)), labels=labels)
    requests: dict[str, Any] = {"gpu.shared": 1, "gpu_memory": "8Gi"}
    pod = make_device_pod("p", **requests)
    amounts = pod.spec.containers[0].resources.requests
    amounts.update(
        {
            "huawei.com/npu-core": amounts["koordinator.sh/gpu.shared"],
            "huawei.com/npu-cpu": amounts["koordinator.sh/gpu.shared"],
        }
    )
    assert "no matched GPU shared resource template" in machines.message(pod)
    text = (
        "huawei-Ascend-910B: {vir01: {huawei.com/npu-core: 1, huawei.com/npu-cpu: 1, koordinator.sh/gpu-memory: 8Gi}}"
    )
    metadata = {"name": "gpu-shared-resource-templates", "namespace": "koordinator-system"}
    found = convert({"metadata": metadata, "data": {"data.yaml": text}}, ConfigMap)
    machines.state.set_object(CONFIG_MAPS, found.metadata.key, found)
    machines.place(pod)
    assert machines.held("uid-p")[0][1][0].template == "vir01"


def test_devices_that_another_scheduler_has_chosen_are_taken_or_none() -> None:
    chosen = (
        '{"gpu":[{"minor":1,"resources":{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory-ratio":"100"}}]}'
    )
    hint = {
        DEVICE_ALLOCATED: chosen,
        "internal.scheduling.koordinator.sh/scheduling-hint": '{"extensions":{"DeviceShare":{}}}',
    }
    machines = Machines(device(gpu(0), gpu(1)))

    def pod(name: str) -> Pod:
        made = make_device_pod(name, gpu=100)
        made.metadata.annotations.update(hint)
        return made

    machines.place(pod("p"))
    assert machines.minors("p") == [1]
    assert "Insufficient GPU Devices" in machines.message(pod("q"))


def test_a_hint_of_another_scheduler_that_cannot_be_read_is_why_the_pod_waits() -> None:
    machines = Machines(device(gpu(0)))
    made = make_device_pod("p", gpu=100)
    made.metadata.annotations["internal.scheduling.koordinator.sh/scheduling-hint"] = '{"extensions":5}'
    assert "scheduling-hint: " in machines.message(made)
    machines.place(make_device_pod("q", gpu=100))


# Records.


def test_the_record_names_what_devices_call_themselves() -> None:
    machines = Machines(device(gpu(0)))
    changes = recorded(machines, machines.place(make_device_pod("p", gpu=100)))
    assert changes.annotations[DEVICE_ALLOCATED] == (
        '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory":"16Gi",'
        '"koordinator.sh/gpu-memory-ratio":"100"},"id":"gpu-0"}]}'
    )


def test_a_record_of_an_earlier_attempt_is_taken_off_where_nothing_is_allocated() -> None:
    machines = Machines()
    pod = make_device_pod("p", gpu=100)
    pod.metadata.annotations[DEVICE_ALLOCATED] = '{"gpu":[{"minor":0}]}'
    placement = machines.place(pod)
    assert machines.plugin.pre_binds(placement.state, placement.pod, placement.node)
    assert recorded(machines, placement).annotations == {DEVICE_ALLOCATED: None}


def test_a_pod_is_not_bound_when_the_device_object_has_gone() -> None:
    machines = Machines(device(gpu(0)))
    placement = machines.place(make_device_pod("p", gpu=100))
    machines.state.set_node_object(DEVICES.name, "a", None)
    with pytest.raises(PluginError, match=r'devices\.scheduling\.koordinator\.sh "a" not found'):
        recorded(machines, placement)


# What wakes pods, and what is shown.


@pytest.mark.parametrize(("requests", "wakes"), [({"gpu": 100}, True), ({}, False)])
def test_pods_that_leave_without_devices_wake_nobody(requests: dict[str, Any], wakes: bool) -> None:
    machines = Machines(device(gpu(0)))
    event = ClusterEvent(EventKind.POD_DELETE, machines.info(make_device_pod("gone", **requests)))
    assert machines.plugin.queueing_hint(machines.info(make_device_pod("p", gpu=100)), event) is wakes


def test_only_pods_that_need_a_template_wait_for_the_config_map() -> None:
    machines = Machines(device(gpu(0)))
    info = machines.info(make_device_pod("p", gpu=100))
    assert not machines.plugin.queueing_hint(info, ClusterEvent(f"{CONFIG_MAPS.name}/Update"))


def test_a_lack_says_how_many_devices_have_how_much_left() -> None:
    machines = Machines(device(gpu(0), gpu(1)))
    machines.place(make_device_pod("p", **SHARE))
    info = machines.info(make_device_pod("q", gpu=200))
    demand = machines.plugin.demand_of(info)
    (lack,) = machines.plugin.lacks(info, demand, 1, 0)
    assert lack.text == (
        "gpu: needs 2 with koordinator.sh/gpu-core 100, koordinator.sh/gpu-memory-ratio 100; "
        "1 of 2 that may be used have so much left"
    )


def test_the_service_sums_up_what_there_is_and_who_holds_it() -> None:
    machines = Machines(device(gpu(0)))
    machines.place(make_device_pod("p", **SHARE))
    services = machines.plugin.services()
    found = services["/nodeDeviceSummaries/:name"]({"name": "a"})
    assert found["deviceFree"]["koordinator.sh/gpu-memory"] == "8Gi"
    assert found["deviceTotalDetail"]["gpu"]["0"]["koordinator.sh/gpu-core"] == "100"
    assert found["allocateSet"]["gpu"]["default/p"]["0"]["koordinator.sh/gpu-core"] == "50"
    assert services["/nodeDeviceSummaries"]({}) == {"a": found}
    with pytest.raises(ServiceError, match="cannot find node c"):
        services["/nodeDeviceSummaries/:name"]({"name": "c"})


def test_the_metric_names_nodes_that_are_not_planned_well() -> None:
    label = "node.koordinator.sh/secondary-device-well-planned"
    machines = Machines(device(gpu(0), labels={label: "false"}), device(gpu(0), node="b", labels={label: "true"}))
    (gauge,) = machines.plugin.collectors()
    (family,) = gauge.collect()
    assert [(each.labels, each.value) for each in family.samples] == [({"node_name": "a"}, 1)]
