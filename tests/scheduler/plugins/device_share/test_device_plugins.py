"""What device plugins of vendors read: annotations of the pod, and locks of the node."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from koordinator.api.labels import GPU_ISOLATION_PROVIDER, GPU_MODEL, GPU_VENDOR
from koordinator.api.resource_names import GPU_CORE, GPU_MEMORY
from koordinator.scheduler.engine.binding_points import PodChanges
from koordinator.scheduler.engine.framework import PluginError
from koordinator.scheduler.features import DEVICE_PLUGIN_ADAPTION
from koordinator.scheduler.plugins.device_share.allocation import HeldDevice
from koordinator.scheduler.plugins.device_share.device_plugins import for_device_plugins, is_locked, lock_text
from tests.scheduler.plugins.device_share.machines import GIB, Machines, device, gpu, make_device_pod

NOW = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
NANOSECONDS = "1767323045678901000"


def held(minor: int = 1, **changes: Any) -> HeldDevice:
    resources = ((GPU_CORE, 50), (GPU_MEMORY, 8 * GIB))
    return HeldDevice(minor, changes.pop("resources", resources), id=f"GPU-{minor}", **changes)


def written(*gpus: HeldDevice, vendor: str = "", model: str = "", **labels: str) -> dict[str, str | None]:
    return for_device_plugins(gpus, (vendor, model), labels, "a", NOW)[0].annotations


def test_every_pod_has_the_time_of_its_binding() -> None:
    assert written() == {"scheduling.koordinator.sh/bind-timestamp": NANOSECONDS}


def test_gpus_are_listed() -> None:
    assert written(held(0), held(3))["scheduling.koordinator.sh/gpu-minors"] == "0,3"


def test_hami_finds_the_node() -> None:
    found, _ = for_device_plugins((held(),), ("", ""), {GPU_ISOLATION_PROVIDER: "HAMi-core"}, "a", NOW)
    assert found.labels == {"hami.io/vgpu-node": "a"}


@pytest.mark.parametrize(
    ("gpus", "model", "expected"),
    [
        ((held(0), held(1)), "Ascend-910B", {"huawei.com/npu-core": "0,1"}),
        ((held(2, template="vir04"),), "Ascend-910B", {"huawei.com/npu-core": "2-vir04"}),
        ((held(0), held(1)), "Ascend-310P3-300I-DUO", {"huawei.com/Ascend310P": "Ascend310P-0,Ascend310P-1"}),
    ],
)
def test_huawei(gpus: tuple[HeldDevice, ...], model: str, expected: dict[str, str]) -> None:
    assert {"predicate-time": NANOSECONDS, **expected}.items() <= written(*gpus, vendor="huawei", model=model).items()


def test_cambricon_counts_memory_in_units_of_256_mebibytes() -> None:
    found, lock = for_device_plugins((held(),), ("cambricon", ""), {}, "a", NOW)
    assert lock == "cambricon.com/dsmlu.lock"
    assert found.annotations["CAMBRICON_DSMLU_ASSIGHED"] == "false"
    assert found.annotations["CAMBRICON_DSMLU_PROFILE"] == "1_50_32"


def test_metax_counts_memory_in_mebibytes() -> None:
    found, lock = for_device_plugins((held(),), ("metax", ""), {}, "a", NOW)
    assert lock == "hami.io/mutex.lock"
    wanted = '[[{"uuid":"GPU-1","compute":50,"vRam":8192}]]'
    assert found.annotations["metax-tech.com/gpu-devices-allocated"] == wanted


@pytest.mark.parametrize(
    ("gpus", "text"),
    [
        ((held(0), held(1)), "multiple gpu share is not supported on device side"),
        ((held(resources=((GPU_MEMORY, GIB),)),), "gpu core resource is required"),
        ((held(resources=((GPU_CORE, 1), (GPU_MEMORY, 1))),), "gpu memory must not be less than 268435456 bytes"),
    ],
)
def test_what_cambricon_cannot_do(gpus: tuple[HeldDevice, ...], text: str) -> None:
    with pytest.raises(PluginError) as caught:
        written(*gpus, vendor="cambricon")
    assert str(caught.value) == f'failed to adapt for GPU device plugin of vendor "cambricon": {text}'


@pytest.mark.parametrize(
    ("age", "keys", "expected"),
    [(10, ["default/p"], True), (300, ["default/p"], True), (301, ["default/p"], False), (10, ["default/q"], False)],
)
def test_a_lock_holds_for_five_minutes_as_long_as_its_pod_is_there(age: int, keys: list[str], expected: bool) -> None:
    text = lock_text("default/p", NOW.replace(microsecond=0) - timedelta(seconds=age))
    assert is_locked(text, keys, NOW.replace(microsecond=0)) is expected


@pytest.mark.parametrize("text", ["yesterday", "yesterday,default,p", "2026-01-01T00:00:00,default,p"])
def test_a_lock_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(PluginError, match="invalid node lock value"):
        is_locked(text, ["default/p"], NOW)


class Writer:
    def __init__(self) -> None:
        self.patches: list[Any] = []

    def now(self) -> datetime:
        return NOW

    async def patch(self, kind: Any, name: str, namespace: str, patch: Any, subresource: str = "") -> None:
        self.patches.append((kind.name, name, patch))


def bind(machines: Machines, writer: Writer, name: str) -> None:
    share: dict[str, Any] = {"gpu_core": 30, "gpu_memory_ratio": 30}
    placement = machines.place(make_device_pod(name, **share))
    work = machines.plugin.pre_bind(placement.state, placement.pod, placement.node, PodChanges(), writer)  # type: ignore[arg-type]
    asyncio.run(work)


def test_one_pod_at_a_time_is_let_through() -> None:
    machines = Machines(device(gpu(0), labels={GPU_VENDOR: "metax", GPU_MODEL: "C500"}))
    machines.view.gates = frozenset({DEVICE_PLUGIN_ADAPTION})
    writer = Writer()
    bind(machines, writer, "p")
    annotations = {"hami.io/mutex.lock": "2026-01-02T03:04:05Z,default,p"}
    assert writer.patches == [("Node", "a", {"metadata": {"annotations": annotations}})]
    with pytest.raises(PluginError, match='node "a" has been locked'):
        bind(machines, writer, "q")


def test_without_the_gate_nothing_is_locked() -> None:
    machines = Machines(device(gpu(0), labels={GPU_VENDOR: "metax"}))
    writer = Writer()
    bind(machines, writer, "p")
    assert not writer.patches
