"""The annotations by which device plugins of some vendors find out which devices a pod was allocated (gate
DevicePluginAdaption).

A kubelet's call of a device plugin does not name the pod. The device plugin finds it by annotations: by the time of the
binding, or, for some vendors, by being the only one on the node: then a lock on the Node lets one pod pass at a time,
and the device plugin removes it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api.codec import encode
from koordinator.api.labels import GPU_ISOLATION_PROVIDER, HAMI_VGPU_NODE
from koordinator.api.resource_names import GPU_CORE, GPU_MEMORY
from koordinator.scheduler.engine.binding_points import PodChanges
from koordinator.scheduler.engine.framework import PluginError
from koordinator.scheduler.plugins.device_share.allocation import HeldDevice

LOCK_SECONDS: Final = 300
"""The age after which a lock is considered abandoned."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HAMI_CORE: Final = "HAMi-core"
_ASCEND_310P: Final = "Ascend-310P3-300I-DUO"
_MEBIBYTE: Final = 2**20
_CAMBRICON_UNIT: Final = 256 * _MEBIBYTE


def for_device_plugins(
    gpus: Sequence[HeldDevice],
    device_labels: tuple[str, str],
    pod_labels: Mapping[str, str],
    node_name: str,
    now: datetime,
) -> tuple[PodChanges, str]:
    """What is written to the pod, and the annotation of the node that locks it; "" for none. ``gpus`` are the pod's;
    ``device_labels`` the vendor and the model that the Device object names. Raises PluginError for devices that the
    vendor's device plugin does not support."""
    nanoseconds = str((now - _EPOCH) // timedelta(microseconds=1) * 1000)
    found = PodChanges(annotations={annotation_keys.BIND_TIMESTAMP: nanoseconds})
    if not gpus:
        return found, ""
    found.annotations[annotation_keys.GPU_MINORS] = _minors(gpus)
    if pod_labels.get(GPU_ISOLATION_PROVIDER) == _HAMI_CORE:
        found.labels[HAMI_VGPU_NODE] = node_name
    vendor, model = device_labels
    try:
        match vendor:
            case "huawei":
                more, lock = {annotation_keys.HUAWEI_PREDICATE_TIME: nanoseconds, **_huawei(gpus, model)}, ""
            case "cambricon":
                more, lock = _cambricon(gpus), annotation_keys.CAMBRICON_LOCK
            case "metax":
                more, lock = _metax(gpus), annotation_keys.HAMI_MUTEX_LOCK
            case _:
                return found, ""
    except PluginError as error:
        raise PluginError(f'failed to adapt for GPU device plugin of vendor "{vendor}": {error}') from error
    found.annotations.update(more)
    return found, lock


def _minors(gpus: Sequence[HeldDevice], prefix: str = "") -> str:
    return ",".join(f"{prefix}{each.minor}" for each in gpus)


def _huawei(gpus: Sequence[HeldDevice], model: str) -> dict[str, str]:
    if model == _ASCEND_310P:
        return {annotation_keys.HUAWEI_ASCEND_310P: _minors(gpus, "Ascend310P-")}
    first = gpus[0]
    return {annotation_keys.HUAWEI_NPU_CORE: f"{first.minor}-{first.template}" if first.template else _minors(gpus)}


def _cambricon(gpus: Sequence[HeldDevice]) -> dict[str, str]:
    if len(gpus) > 1:
        raise PluginError("multiple gpu share is not supported on device side")
    core, memory = _core_and_memory(gpus[0], _CAMBRICON_UNIT)
    return {
        annotation_keys.CAMBRICON_ASSIGNED: "false",
        annotation_keys.CAMBRICON_PROFILE: f"{gpus[0].minor}_{core}_{memory}",
    }


def _metax(gpus: Sequence[HeldDevice]) -> dict[str, str]:
    shares = [(each, *_core_and_memory(each, _MEBIBYTE)) for each in gpus]
    wanted = [{"uuid": each.id, "compute": core, "vRam": memory} for each, core, memory in shares]
    return {annotation_keys.METAX_GPU_DEVICES_ALLOCATED: encode([wanted]).decode()}


def _core_and_memory(gpu: HeldDevice, unit: int) -> tuple[int, int]:
    """Percent of the cores, and units of memory."""
    resources = dict(gpu.resources)
    if GPU_CORE not in resources:
        raise PluginError("gpu core resource is required")
    if resources.get(GPU_MEMORY, 0) < unit:
        raise PluginError(f"gpu memory must not be less than {unit} bytes")
    return resources[GPU_CORE], resources[GPU_MEMORY] // unit


def lock_text(key: str, now: datetime) -> str:
    """The value of the lock for the pod with this key (``namespace/name``)."""
    namespace, _, name = key.rpartition("/")
    return f"{now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ},{namespace},{name}"


def is_locked(text: str, keys: Collection[str], now: datetime) -> bool:
    """Whether the lock is in force: not if it is old, or its pod is not among ``keys`` any more.

    Raises PluginError for a lock that cannot be decoded.
    """
    parts = text.split(",")
    if len(parts) != 3:
        raise PluginError(f'invalid node lock value "{text}"')
    try:
        since = datetime.fromisoformat(parts[0])
    except ValueError as error:
        raise PluginError(f'invalid node lock value "{text}": {error}') from error
    if since.tzinfo is None:
        raise PluginError(f'invalid node lock value "{text}": the time has no zone')
    return (now - since).total_seconds() <= LOCK_SECONDS and f"{parts[1]}/{parts[2]}" in keys
