"""Block I/O: limits and weights of disks for best-effort pods and for annotated ones, and the cost model of each disk.

What the NodeSLO says of a disk for best-effort pods is written to the cgroup of their class, what a pod's annotation
says to the pod's, and what describes the disk itself to the root (pkg/koordlet/qosmanager/plugins/blkio). A disk that
such a cgroup still limits although no block names it is released. While the disk of one block is not known, nothing is
released in its cgroup, because a limit that is there may belong to this block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api.codec import DecodeError
from koordinator.api.meta import ObjectReference
from koordinator.api.pod import Pod, Volume
from koordinator.api.qos import KubernetesQoS, QoSClass
from koordinator.api.resource_qos import (
    BLOCK_DEVICE,
    BLOCK_POD_VOLUME,
    BLOCK_VOLUME_GROUP,
    BlkioQoS,
    BlkioQoSConfig,
    BlockConfig,
    IOConfig,
)
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting, Priority
from koordinator.koordlet.enforce.strategies.snapshot import Decision, Problem, Snapshot, pod_reference, read_annotation
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.model.slo_configuration.field_ranges import range_errors
from koordinator.node import kernel_files as files
from koordinator.node.block_devices import BlockDevices
from koordinator.node.cgroup_layout import CgroupLayout
from koordinator.node.kernel_files import KernelFile, Target, Value

OWNER: Final = "BlkIOReconcile"
ROOT: Final = ""
"""The folder of the cgroup root."""
_LATENCY: Final = 3000
"""Microseconds."""
_LATENCY_PERCENT: Final = 95
_NEUTRAL: Final[Mapping[KernelFile, Value]] = {
    files.BLOCK_READ_IOPS: 0,
    files.BLOCK_READ_BPS: 0,
    files.BLOCK_WRITE_IOPS: 0,
    files.BLOCK_WRITE_BPS: 0,
    files.BLOCK_WEIGHT: files.BLOCK_DEFAULT_WEIGHT,
}
_NEUTRAL_COST: Final[Mapping[KernelFile, Value]] = {
    files.BLOCK_COST_QOS: "enable=0",
    files.BLOCK_COST_MODEL: "ctrl=auto",
}

Claim = tuple[str, str]
"""The namespace and the name of a PersistentVolumeClaim."""


@dataclass(frozen=True, slots=True)
class Disks:
    """What is known of the node's disks and of what the kernel does on them."""

    devices: BlockDevices | None
    """None: not known yet."""
    kubelet_folder: str
    """Below which pods' volumes are mounted."""
    shown: Mapping[str, Mapping[KernelFile, Mapping[str, Value]]] = field(default_factory=dict)
    """Folder -> file -> the number of a device -> its value."""
    volume_names: Mapping[Claim, str] = field(default_factory=dict)
    """The PersistentVolumes of claims that have been requested; empty for a claim that is not bound."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """One cgroup, and the blocks that its author names. ``path`` is where they are written."""

    folder: str
    blocks: tuple[BlockConfig, ...]
    path: str
    pod: Pod | None = None


class _UnusableBlockError(Exception):
    """A block whose disk is not known, or a value that the kernel has no meaning for."""


class _NotRequestedError(_UnusableBlockError):
    """A block on the volume of a claim that is about to be read: there is nothing to report yet."""


def neutral(folder: str) -> Mapping[KernelFile, Value]:
    """The files that are written in a folder, with what they have for a disk that is not limited."""
    return _NEUTRAL_COST if folder == ROOT else _NEUTRAL


def folders(snapshot: Snapshot, layout: CgroupLayout, limited: frozenset[str] | None) -> list[str]:
    """The cgroups of which ``decide`` has to be shown the files."""
    pods = [pod.cgroup for pod in (usage.pod for usage in snapshot.pods) if _is_concerned(pod, limited)]
    return [ROOT, layout.qos(KubernetesQoS.BEST_EFFORT), *pods]


def claims(pods: Iterable[NodePod]) -> frozenset[Claim]:
    """The claims of which the volumes have to be known, since an annotation names them."""
    return frozenset().union(*(pod.derived(_claims) for pod in pods))


def _claims(pod: NodePod) -> frozenset[Claim]:
    blocks = pod.derived(_annotated_blocks)
    names = {block.name for block in blocks if block.type == BLOCK_POD_VOLUME} if not isinstance(blocks, str) else ()
    claims = (_claim(pod.pod, volume) for volume in pod.pod.spec.volumes if volume.name in names)
    return frozenset(claim for claim in claims if claim is not None)


def decide(
    snapshot: Snapshot, layout: CgroupLayout, disks: Disks, limited: frozenset[str] | None
) -> tuple[Decision, frozenset[str] | None]:
    """The decision, and the UIDs of the pods that are limited or about to be released: ``limited`` of the next call.

    None until there are pods: what an agent before this one has left on any of them is released, too.
    """
    strategy = snapshot.resource_qos
    if strategy is None or disks.devices is None:
        return Decision(None, "the NodeSLO or the disks are not known"), limited
    problems = [
        Problem(f"resourceQOSStrategy.{name}.blkioQOS.blocks: not supported, allowed in beClass and cgroupRoot")
        for name, class_ in (("lsrClass", strategy.lsr_class), ("lsClass", strategy.ls_class))
        if class_ is not None and _blocks(class_.blkio_qos)
    ]
    scopes = []
    for name, class_, folder in (
        ("beClass", strategy.be_class, layout.qos(KubernetesQoS.BEST_EFFORT)),
        ("cgroupRoot", strategy.cgroup_root, ROOT),
    ):
        if class_ is not None and class_.blkio_qos is not None:
            scopes.append(_Scope(folder, _blocks(class_.blkio_qos), f"resourceQOSStrategy.{name}.blkioQOS"))
    remaining = set()
    for pod in (usage.pod for usage in snapshot.pods if _is_concerned(usage.pod, limited)):
        if _is_annotated(pod) or _left(pod.cgroup, disks, set()):
            remaining.add(pod.uid)
        blocks = pod.derived(_annotated_blocks)
        if isinstance(blocks, str):
            problems.append(Problem(blocks, _reference(pod.pod)))
        else:
            scopes.append(_Scope(pod.cgroup, blocks, _ANNOTATION, pod.pod))
    settings: list[DesiredSetting] = []
    for scope in scopes:
        settings += _scope_settings(scope, disks, disks.devices, problems)
    reason = "the NodeSLO's blkioQOS and the pods' annotations"
    limited = None if limited is None and not snapshot.pods else frozenset(remaining)
    return Decision(tuple(settings), reason, problems=tuple(problems)), limited


_ANNOTATION: Final = f"metadata.annotations[{annotation_keys.BLKIO_QOS}]"


def _blocks(config: BlkioQoSConfig | None) -> tuple[BlockConfig, ...]:
    return tuple(config.blocks) if config is not None and config.enable else ()


def _is_concerned(pod: NodePod, limited: frozenset[str] | None) -> bool:
    if not pod.is_running or pod.qos is QoSClass.NONE:
        return False
    return limited is None or pod.uid in limited or _is_annotated(pod)


def _is_annotated(pod: NodePod) -> bool:
    return annotation_keys.BLKIO_QOS in pod.pod.metadata.annotations


def _annotated_blocks(pod: NodePod) -> tuple[BlockConfig, ...] | str:
    """A text says why the annotation cannot be used."""
    try:
        given = read_annotation(pod.pod.metadata.annotations, annotation_keys.BLKIO_QOS, BlkioQoS) or BlkioQoS()
    except DecodeError as error:
        return str(error)
    if errors := range_errors(given, given, _ANNOTATION):
        return "; ".join(f"{path}: {what}" for path, what in sorted(errors.items()))
    return tuple(given.blocks)


def _scope_settings(
    scope: _Scope, disks: Disks, devices: BlockDevices, problems: list[Problem]
) -> Iterator[DesiredSetting]:
    priority = Priority.POLICY if scope.pod is None else Priority.POD
    named: dict[str, str] = {}
    is_complete = True
    for number, block in enumerate(scope.blocks):
        path = f"{scope.path}.blocks[{number}]"
        try:
            device = _device_number(block, scope.pod, disks, devices)
            _check_is_new(block, device, named)
            values = _cost(block.io_cfg) if scope.folder == ROOT else _limits(block.io_cfg)
        except _UnusableBlockError as error:
            is_complete = False
            if not isinstance(error, _NotRequestedError):
                problems.append(Problem(f"{path}.{error}", _reference(scope.pod)))
            continue
        named[device] = f"blocks[{number}]"
        for file, value in values.items():
            yield DesiredSetting(OWNER, Target(file, scope.folder, device), value, f"{path}: {block.name}", priority)
    if is_complete:
        reason = f"{scope.path} does not name the disk"
        for target, value in _left(scope.folder, disks, named):
            yield DesiredSetting(OWNER, target, value, reason, Priority.RELEASE)


def _reference(pod: Pod | None) -> ObjectReference | None:
    return None if pod is None else pod_reference(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)


def _check_is_new(block: BlockConfig, device: str, named: Mapping[str, str]) -> None:
    if device in named:
        raise _UnusableBlockError(f"name: {block.name!r} is on the disk {device}, which {named[device]} is on, too")


def _left(folder: str, disks: Disks, named: Iterable[str]) -> list[tuple[Target, Value]]:
    """What the kernel still limits there, of disks that are not named, and the value that does not."""
    shown = disks.shown.get(folder, {})
    return [
        (Target(file, folder, device), value)
        for file, value in neutral(folder).items()
        for device, present in sorted(shown.get(file, {}).items())
        if device not in named and present != value
    ]


def _device_number(block: BlockConfig, pod: Pod | None, disks: Disks, devices: BlockDevices) -> str:
    if block.type == BLOCK_DEVICE:
        device = block.name
    elif block.type == BLOCK_VOLUME_GROUP:
        device = devices.volume_groups.get(block.name, "")
    elif block.type == BLOCK_POD_VOLUME:
        device = _mounted_device(block.name, pod, disks, devices)
    else:
        raise _UnusableBlockError(
            f"type: {block.type!r}, allowed: {BLOCK_DEVICE}, {BLOCK_VOLUME_GROUP}, {BLOCK_POD_VOLUME}"
        )
    number = devices.disk_number(device)
    if number is None:
        raise _UnusableBlockError(
            f"name: the {block.type} {block.name!r} is on no disk of this node, or on more than one"
        )
    return number


def _mounted_device(name: str, pod: Pod | None, disks: Disks, devices: BlockDevices) -> str:
    if pod is None:
        raise _UnusableBlockError(f"type: {BLOCK_POD_VOLUME!r} is allowed in the annotation of a pod alone")
    volume = next((volume for volume in pod.spec.volumes if volume.name == name), None)
    if volume is None:
        raise _UnusableBlockError(f"name: the pod has no volume {name!r}")
    if (claim := _claim(pod, volume)) is not None:
        mounted = disks.volume_names.get(claim)
        if mounted is None:
            raise _NotRequestedError
        if not mounted:
            raise _UnusableBlockError(f"name: the claim {'/'.join(claim)} of the volume {name!r} is not bound")
    elif volume.csi is not None:
        mounted = name
    else:
        raise _UnusableBlockError(f"name: the volume {name!r} is neither of a claim nor of a CSI driver")
    point = f"{disks.kubelet_folder}/pods/{pod.metadata.uid}/volumes/kubernetes.io~csi/{mounted}/mount"
    device = devices.mounts.get(point)
    if device is None:
        raise _UnusableBlockError(f"name: nothing is mounted at {point} from a device")
    return device


def _claim(pod: Pod, volume: Volume) -> Claim | None:
    namespace = pod.metadata.namespace
    if volume.persistent_volume_claim is not None:
        return namespace, volume.persistent_volume_claim.claim_name
    # The name that Kubernetes gives the claim of a generic ephemeral volume.
    return (namespace, f"{pod.metadata.name}-{volume.name}") if volume.ephemeral is not None else None


def _limits(config: IOConfig) -> dict[KernelFile, Value]:
    weight = config.io_weight_percent
    return {
        files.BLOCK_READ_IOPS: config.read_iops or 0,
        files.BLOCK_READ_BPS: config.read_bps or 0,
        files.BLOCK_WRITE_IOPS: config.write_iops or 0,
        files.BLOCK_WRITE_BPS: config.write_bps or 0,
        files.BLOCK_WEIGHT: files.BLOCK_DEFAULT_WEIGHT if weight is None else weight,
    }


def _cost(config: IOConfig) -> dict[KernelFile, Value]:
    words = ["enable=1", "ctrl=user"]
    for letter, latency, percent in (
        ("r", config.read_latency, config.read_latency_percent),
        ("w", config.write_latency, config.write_latency_percent),
    ):
        if latency is not None and latency < 0:
            raise _UnusableBlockError(f"ioCfg: a latency of {latency}, allowed: 0 or more microseconds")
        words.append(f"{letter}pct={_LATENCY_PERCENT if percent is None else percent}")
        words.append(f"{letter}lat={_LATENCY if latency is None else latency}")
    return {files.BLOCK_COST_QOS: " ".join(words), files.BLOCK_COST_MODEL: _model(config)}


def _model(config: IOConfig) -> str:
    if not config.enable_user_model:
        return "ctrl=auto"
    figures = {
        "rbps": ("modelReadBPS", config.model_read_bps),
        "rseqiops": ("modelReadSeqIOPS", config.model_read_seq_iops),
        "rrandiops": ("modelReadRandIOPS", config.model_read_rand_iops),
        "wbps": ("modelWriteBPS", config.model_write_bps),
        "wseqiops": ("modelWriteSeqIOPS", config.model_write_seq_iops),
        "wrandiops": ("modelWriteRandIOPS", config.model_write_rand_iops),
    }
    if missing := [name for name, value in figures.values() if value is None]:
        raise _UnusableBlockError(f"ioCfg: enableUserModel needs {', '.join(missing)}, 1 or more")
    return " ".join(["ctrl=user", *(f"{word}={value}" for word, (_, value) in figures.items())])
