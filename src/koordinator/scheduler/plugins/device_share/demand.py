"""A pod's demand for devices: amounts, hints, joint allocation, partitions; and the templates that shares of some
models of GPUs have to equal, fixed sizes that a ConfigMap defines."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from koordinator.api.codec import DecodeError, convert, decode
from koordinator.api.core import ConfigMap
from koordinator.api.device import GPU
from koordinator.api.device_share import (
    APPLY_FOR_ALL,
    DEVICE_SCOPE,
    NODE_SCOPE,
    NUMA_NODE_SCOPE,
    PCIE_SCOPE,
    RESTRICTED,
    SAME_PCIE,
    DeviceHint,
    DeviceJointAllocate,
    GPUPartitionSpec,
)
from koordinator.api.meta import LabelSelector
from koordinator.api.pod import Pod, ResourceList
from koordinator.base.errors import ConfigurationError
from koordinator.base.strict_yaml import load_documents
from koordinator.model.label_selector import CompiledSelector, SelectorError, compile_selector
from koordinator.scheduler.plugins.device_share.allocation import DeviceAllocations, read_allocations
from koordinator.scheduler.plugins.device_share.requests import Amounts, PerGPU, RequestError, device_requests, per_gpu

SCOPE_LEVELS: Final[Mapping[str, int]] = {"": 0, NODE_SCOPE: 1, NUMA_NODE_SCOPE: 2, PCIE_SCOPE: 3}
"""The larger the level, the nearer GPUs are to each other."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Hint:
    """The requirements on the devices of one type."""

    selector: CompiledSelector | None = None
    vf_selector: CompiledSelector | None = None
    """If set, each device comes with one of the virtual functions that match."""
    strategy: str = ""
    exclusive_policy: str = ""


NO_HINT: Final = Hint()


@dataclass(frozen=True, slots=True)
class GPUDemand:
    """The requirements on GPUs beyond amounts."""

    per_gpu: PerGPU
    is_partition: bool = False
    """Whether the GPUs have to be a partition of the node."""
    best_partition_only: bool = False
    bandwidth: int | None = None
    """The least bandwidth of the partition, in units of 10**-9."""
    scope: str = ""
    """The topology scope that has to contain all GPUs."""

    @property
    def amounts(self) -> dict[str, int]:
        """The amounts for each GPU, by resource."""
        return dict(self.per_gpu.amounts)


@dataclass(frozen=True, slots=True)
class DeviceDemand:
    """A pod's demand for devices. ``requests``: type -> normalised request."""

    requests: Mapping[str, Amounts]
    gpu: GPUDemand | None = None
    hints: Mapping[str, Hint] = field(default_factory=dict)
    joint: tuple[str, ...] = ()
    """Types that are allocated together, the primary one first."""
    same_pcie: bool = False
    """Whether these have to be on the same PCIe switches."""
    isolation: str = ""
    """The required provider of isolation for shares of a GPU on the node."""
    designated: DeviceAllocations = ()
    """The devices that another scheduler has designated; no others may be used."""

    @property
    def shares_gpu(self) -> bool:
        """Whether less than a GPU is requested."""
        return self.gpu is not None and self.gpu.per_gpu.is_shared

    def hint(self, device_type: str) -> Hint:
        return self.hints.get(device_type, NO_HINT)


def read_demand(pod: Pod, requested: Amounts, *, is_designated: bool) -> DeviceDemand | None:
    """The demand of a pod that requests these amounts, by resource; None if no device is among them. ``is_designated``:
    the pod has to get the devices in its annotation ``device-allocated``.

    Raises RequestError with a text for the pod's owner.
    """
    requests = device_requests(requested)
    if not requests:
        return None
    annotations = pod.metadata.annotations
    hints = _read(annotations, annotation_keys.DEVICE_ALLOCATE_HINT, dict[str, DeviceHint], "DeviceAllocateHint") or {}
    joint = _read(annotations, annotation_keys.DEVICE_JOINT_ALLOCATE, DeviceJointAllocate, "DeviceJointAllocate")
    together = joint.device_types if joint is not None else []
    compiled = {device_type: _compiled(device_type, hint) for device_type, hint in hints.items()}
    gpu = _gpu(annotations, requests[GPU], hints.get(GPU)) if GPU in requests else None
    isolation = pod.metadata.labels.get(label_keys.GPU_ISOLATION_PROVIDER, "")
    return DeviceDemand(
        requests,
        gpu,
        compiled,
        joint=tuple(
            dict.fromkeys(
                each for each in together if each in requests and compiled.get(each, NO_HINT).strategy != APPLY_FOR_ALL
            )
        ),
        same_pcie=joint is not None and joint.required_scope == SAME_PCIE,
        isolation=isolation if gpu is not None and gpu.per_gpu.is_shared else "",
        designated=_designated(annotations) if is_designated else (),
    )


def demand_key(pod: Pod, requested: Collection[tuple[str, int]], *, is_designated: bool) -> tuple[object, ...]:
    """Equal for pods of equal demands."""
    annotations = pod.metadata.annotations
    names = (*_READ, annotation_keys.DEVICE_ALLOCATED) if is_designated else _READ
    isolation = pod.metadata.labels.get(label_keys.GPU_ISOLATION_PROVIDER, "")
    return tuple(requested), tuple([annotations.get(name, "") for name in names]), isolation


_READ: Final = (
    annotation_keys.DEVICE_ALLOCATE_HINT,
    annotation_keys.DEVICE_JOINT_ALLOCATE,
    annotation_keys.GPU_PARTITION_SPEC,
)


def _read(annotations: Mapping[str, str], key: str, kind: type[T], name: str) -> T | None:
    text = annotations.get(key)
    if text is None or (not text and key == annotation_keys.DEVICE_ALLOCATE_HINT):
        return None
    try:
        return decode(text, kind)
    except DecodeError as error:
        raise RequestError(f"invalid {name} annotation, err: {error}") from error


def _compiled(device_type: str, hint: DeviceHint) -> Hint:
    return Hint(
        _selector(device_type, "Selector", hint.selector),
        _selector(device_type, "VFSelector", hint.vf_selector),
        hint.allocate_strategy,
        hint.exclusive_policy,
    )


def _selector(device_type: str, name: str, selector: LabelSelector | None) -> CompiledSelector | None:
    if selector is None:
        return None
    try:
        return compile_selector(selector)
    except SelectorError as error:
        raise RequestError(f"invalid {name} of DeviceHint, deviceType: {device_type}, err: {error}") from error


def _gpu(annotations: Mapping[str, str], request: Amounts, hint: DeviceHint | None) -> GPUDemand:
    spec = _read(annotations, annotation_keys.GPU_PARTITION_SPEC, GPUPartitionSpec, "GPUPartitionSpec")
    scope = hint.required_topology_scope if hint is not None else ""
    if scope == DEVICE_SCOPE:
        raise RequestError(
            "invalid DeviceAllocateHint annotation, err: requiredTopologyScope: no GPUs are in the scope Device; "
            f"use {PCIE_SCOPE}, {NUMA_NODE_SCOPE} or {NODE_SCOPE}"
        )
    bandwidth = spec.ring_bus_bandwidth if spec is not None else None
    return GPUDemand(
        per_gpu(request),
        is_partition=spec is not None,
        best_partition_only=spec is not None and spec.allocate_policy == RESTRICTED,
        bandwidth=bandwidth.nanos if bandwidth is not None else None,
        scope=scope,
    )


def _designated(annotations: Mapping[str, str]) -> DeviceAllocations:
    text = annotations.get(annotation_keys.DEVICE_ALLOCATED)
    if text is None:
        return ()
    try:
        return read_allocations(text)
    except DecodeError as error:
        raise RequestError(str(error)) from error


_KEY: Final = "data.yaml"
Templates = dict[str, dict[str, Mapping[str, int]]]
"""``vendor-model`` -> name of the template -> amounts of a GPU by resource."""


def matching_templates(templates: Templates, amounts: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """``vendor-model`` -> the names of the templates that equal these amounts of a GPU; models without any are
    omitted."""
    wanted = {name: amount for name, amount in amounts.items() if amount}
    found = {
        model: tuple([name for name, each in sorted(of_model.items()) if each == wanted])
        for model, of_model in templates.items()
    }
    return {model: names for model, names in found.items() if names}


def templates_of(config_map: ConfigMap | None) -> tuple[Templates, str]:
    """The templates, and the error in the ConfigMap, which may be missing."""
    if config_map is None:
        return {}, ""
    name = f"ConfigMap {config_map.metadata.key}: {_KEY}"
    try:
        documents = load_documents(config_map.data.get(_KEY, ""), name)
        if len(documents) > 1:
            return {}, str(ConfigurationError(name, f"{len(documents)} documents", "one"))
        found = convert(documents[0] if documents else {}, dict[str, dict[str, ResourceList]])
    except (DecodeError, ConfigurationError) as error:
        return {}, str(error)
    return {
        model: {name: {key: each.value for key, each in amounts.items() if each} for name, amounts in templates.items()}
        for model, templates in found.items()
    }, ""
