"""Devices: GPUs as variables and mounts, RDMA cards as device files."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordinator.koordlet.enforce.hooks import devices
from koordinator.koordlet.enforce.hooks.contexts import HookError, PodContext, starting_container, starting_pod
from koordinator.koordlet.enforce.hooks.devices import rdma_hook
from koordinator.node.errors import MissingFileError
from koordinator.node.rdma import DeviceFile
from tests.koordlet.enforce.hooks.hook_fixtures import rules


def pod(labels: dict[str, str] | None = None, **devices: Any) -> PodContext:
    annotations = {"scheduling.koordinator.sh/device-allocated": json.dumps(devices)}
    return starting_pod("shop", "web", "web", labels or {}, annotations, "/kubepods/podweb")


def environment(of: PodContext) -> dict[str, str]:
    change = devices.gpu_environment(of, starting_container(of, "c", 0, 0), rules(hami_library="/lib/hami.so"))
    return {} if change is None else dict(change.environment)


def hami(**resources: str) -> PodContext:
    named = {f"koordinator.sh/{name.replace('_', '-')}": value for name, value in resources.items()}
    return pod({"koordinator.sh/gpu-isolation-provider": "HAMi-core"}, gpu=[{"minor": 0, "resources": named}])


def test_a_container_sees_its_gpus() -> None:
    assert environment(pod(gpu=[{"minor": 2}, {"minor": 0}])) == {"NVIDIA_VISIBLE_DEVICES": "2,0"}
    assert environment(pod(rdma=[{"minor": 2}])) == {}


def test_a_share_of_a_gpu_is_held_to() -> None:
    assert environment(hami(gpu_memory_ratio="50", gpu_memory="8Gi", gpu_core="30")) == {
        "NVIDIA_VISIBLE_DEVICES": "0",
        "CUDA_DEVICE_MEMORY_LIMIT": str(8 << 30),
        "CUDA_DEVICE_SM_LIMIT": "30",
        "LD_PRELOAD": "/lib/hami.so",
    }


def test_a_whole_gpu_needs_no_holding() -> None:
    assert environment(hami(gpu_memory_ratio="100")) == {"NVIDIA_VISIBLE_DEVICES": "0"}


@pytest.mark.parametrize(("resources", "text"), [({}, "memory ratio"), ({"gpu_memory_ratio": "50"}, "gpu memory not")])
def test_a_share_that_is_not_said_is_an_error(resources: dict[str, str], text: str) -> None:
    with pytest.raises(HookError, match=text):
        environment(hami(**resources))


def test_virtual_functions_go_before_their_card() -> None:
    hook = rdma_hook(lambda address: DeviceFile(address, 231, 1), lambda path: DeviceFile(path, 10, 58)).container
    assert hook is not None
    of = pod(rdma=[{"id": "0000:01:00.0", "extension": {"vfs": [{"busID": "0000:01:00.2"}]}}, {"id": "0000:02:00.0"}])
    change = hook(of, starting_container(of, "c", 0, 0), rules())
    assert change is not None
    paths = [device.path for device in change.devices]
    assert paths == ["/dev/infiniband/rdma_cm", "0000:01:00.2", "0000:02:00.0"]


def test_a_card_that_is_not_there_is_an_error() -> None:
    def missing(address: str) -> DeviceFile:
        raise MissingFileError(address, "does not exist")

    of = pod(rdma=[{"id": "0000:01:00.0"}])
    hook = rdma_hook(missing, missing).container
    assert hook is not None
    with pytest.raises(HookError, match="RDMA device"):
        hook(of, starting_container(of, "c", 0, 0), rules())
