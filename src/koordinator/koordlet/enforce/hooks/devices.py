"""GPUEnvInject and RDMADeviceInject: containers see the devices that the scheduler has given to their pod, and no more.

GPUs are named in variables. A share of one is enforced by HAMi-core, a library that is loaded into the container's
programs. RDMA cards, or virtual functions, appear as device files. Mounts and devices reach a container through NRI
alone (pkg/koordlet/runtimehooks/hooks/gpu, rdma).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api.device_share import AllocatedDevice, AllocatedDevices
from koordinator.api.labels import GPU_ISOLATION_PROVIDER
from koordinator.api.pod import ResourceList
from koordinator.api.resource_names import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from koordinator.koordlet import features
from koordinator.koordlet.enforce.executor.desired_settings import Priority
from koordinator.koordlet.enforce.hooks.contexts import (
    Change,
    ContainerContext,
    HookError,
    Mount,
    PodContext,
    annotation,
)
from koordinator.koordlet.enforce.hooks.registry import Hook, Stage
from koordinator.koordlet.enforce.hooks.rules import Rules
from koordinator.node.errors import FileError
from koordinator.node.rdma import DEVICE_FOLDER, DeviceFile

GPU_OWNER: Final = "gpu env inject"
_HAMI_CORE: Final = "HAMi-core"
_WHOLE: Final = 100
_LOCKS: Final = "/tmp/vgpulock"  # noqa: S108 HAMi-core's own path
"""HAMi-core keeps its locks there (github.com/Project-HAMi/HAMi, issue 696)."""
RDMA_OWNER: Final = "rdma device inject"
_CONNECTION_MANAGER: Final = f"{DEVICE_FOLDER}/rdma_cm"
_REASON: Final = f"the pod's annotation {annotation_keys.DEVICE_ALLOCATED}"
_CREATING: Final = frozenset({Stage.PRE_CREATE_CONTAINER})


def _allocated(pod: PodContext, device_type: str) -> list[AllocatedDevice]:
    """What the scheduler has given to the pod. HookError if the annotation cannot be read."""
    return (annotation(pod, annotation_keys.DEVICE_ALLOCATED, AllocatedDevices) or {}).get(device_type, [])


def gpu_environment(pod: PodContext, _: ContainerContext, rules: Rules) -> Change | None:
    """The variables of a container that is about to start. HookError if the allocation lacks what is needed."""
    devices = _allocated(pod, "gpu")
    if not devices:
        return None
    environment = {"NVIDIA_VISIBLE_DEVICES": ",".join(str(device.minor) for device in devices)}
    mounts: tuple[Mount, ...] = ()
    if pod.labels.get(GPU_ISOLATION_PROVIDER) == _HAMI_CORE:
        share = _share(devices[0].resources)
        if share:
            environment |= share | {"LD_PRELOAD": rules.hami_library}
            mounts = (Mount(rules.hami_library, rules.hami_library), Mount(_LOCKS, _LOCKS))
    return Change(_REASON, Priority.POD, environment=environment, mounts=mounts)


def _share(resources: ResourceList) -> dict[str, str]:
    """Nothing for a whole GPU."""
    ratio, memory, core = (resources.get(name) for name in (GPU_MEMORY_RATIO, GPU_MEMORY, GPU_CORE))
    if ratio is None:
        raise HookError("gpu memory ratio not found in gpu resource")
    if ratio.value >= _WHOLE:
        return {}
    if memory is None:
        raise HookError("gpu memory not found in gpu resource")
    limits = {"CUDA_DEVICE_MEMORY_LIMIT": str(memory.value)}
    return limits | ({"CUDA_DEVICE_SM_LIMIT": str(core.value)} if core is not None else {})


def rdma_hook(of_address: Callable[[str], DeviceFile], of_path: Callable[[str], DeviceFile]) -> Hook:
    """``of_address`` finds the device file of a PCI address, ``of_path`` one by its path; both raise FileError."""

    def container(pod: PodContext, _: ContainerContext, rules: Rules) -> Change | None:
        """The devices of a container that is about to start. HookError if one of them is not on this node."""
        allocated = _allocated(pod, "rdma")
        if not allocated:
            return None
        try:
            devices = [of_path(_CONNECTION_MANAGER)]
            devices += [of_address(address) for device in allocated for address in _addresses(device)]
        except FileError as error:
            raise HookError(f"an RDMA device of {pod.key} is not to be had: {error}") from error
        return Change(_REASON, Priority.POD, devices=tuple(devices))

    return Hook(RDMA_OWNER, features.RDMA_DEVICE_INJECT, _CREATING, is_reconciled=False, container=container)


def _addresses(device: AllocatedDevice) -> list[str]:
    """Its virtual functions, else the card itself."""
    functions = device.extension.virtual_functions if device.extension is not None else []
    return [function.bus_id for function in functions] or [device.id]


GPU_HOOK: Final = Hook(GPU_OWNER, features.GPU_ENV_INJECT, _CREATING, is_reconciled=False, container=gpu_environment)
