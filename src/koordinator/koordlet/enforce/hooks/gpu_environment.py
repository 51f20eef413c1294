"""GPUEnvInject: containers see the GPUs that the scheduler has given to their pod, and no more of them than that.

A share of a GPU is enforced by HAMi-core, a library that is loaded into the container's programs (pkg/koordlet/
runtimehooks/hooks/gpu). Mounts reach a container through NRI alone.
"""

from __future__ import annotations

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

OWNER: Final = "gpu env inject"
_HAMI_CORE: Final = "HAMi-core"
_WHOLE: Final = 100
_LOCKS: Final = "/tmp/vgpulock"  # noqa: S108 HAMi-core's own path
"""HAMi-core keeps its locks there (github.com/Project-HAMi/HAMi, issue 696)."""


def allocated_devices(pod: PodContext, device_type: str) -> list[AllocatedDevice]:
    """What the scheduler has given to the pod. HookError if the annotation cannot be read."""
    return (annotation(pod, annotation_keys.DEVICE_ALLOCATED, AllocatedDevices) or {}).get(device_type, [])


def container(pod: PodContext, _: ContainerContext, rules: Rules) -> Change | None:
    """The variables of a container that is about to start. HookError if the allocation lacks what is needed."""
    devices = allocated_devices(pod, "gpu")
    if not devices:
        return None
    environment = {"NVIDIA_VISIBLE_DEVICES": ",".join(str(device.minor) for device in devices)}
    mounts: tuple[Mount, ...] = ()
    if pod.labels.get(GPU_ISOLATION_PROVIDER) == _HAMI_CORE:
        share = _share(devices[0].resources)
        if share:
            environment |= share | {"LD_PRELOAD": rules.hami_library}
            mounts = (Mount(rules.hami_library, rules.hami_library), Mount(_LOCKS, _LOCKS))
    reason = f"the pod's annotation {annotation_keys.DEVICE_ALLOCATED}"
    return Change(reason, Priority.POD, environment=environment, mounts=mounts)


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


HOOK: Final = Hook(
    OWNER,
    features.GPU_ENV_INJECT,
    frozenset({Stage.PRE_CREATE_CONTAINER}),
    is_reconciled=False,
    container=container,
)
