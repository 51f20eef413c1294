"""The hooks that exist, the stages at which each is called, and the calls.

Hooks of a stage are called in the order of their names; where two of them return a value for the same thing, the
later one counts (pkg/koordlet/runtimehooks/hooks/hooks.go).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final

from koordinator.api.host_application import HostApplicationSpec
from koordinator.base.feature_gates import FeatureGates
from koordinator.koordlet import features
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting
from koordinator.koordlet.enforce.hooks import (
    batch_resource,
    core_sched,
    cpu_normalization,
    cpuset_allocator,
    gpu_environment,
    group_identity,
    network_classes,
    oom_score_adj,
    pod_resctrl,
    rdma_devices,
)
from koordinator.koordlet.enforce.hooks.contexts import Change, ContainerContext, PodContext
from koordinator.koordlet.enforce.hooks.rdma_devices import RDMADeviceInject
from koordinator.koordlet.enforce.hooks.rules import Rules


class Stage(StrEnum):
    """A moment in the life of a pod or container, as runtimes and their proxies call it."""

    PRE_RUN_POD_SANDBOX = "PreRunPodSandbox"
    PRE_CREATE_CONTAINER = "PreCreateContainer"
    PRE_START_CONTAINER = "PreStartContainer"
    POST_START_CONTAINER = "PostStartContainer"
    POST_STOP_CONTAINER = "PostStopContainer"
    POST_STOP_POD_SANDBOX = "PostStopPodSandbox"
    PRE_UPDATE_CONTAINER_RESOURCES = "PreUpdateContainerResources"


PodFunction = Callable[[PodContext, Rules], Change | None]
ContainerFunction = Callable[[PodContext, ContainerContext, Rules], Change | None]


@dataclass(frozen=True, slots=True)
class Hook:
    """What one feature wants at each level of cgroups. Functions are pure, and raise HookError for what a pod says.

    ``pod`` and ``container`` are called by the reconciler unless ``is_reconciled`` is False, and for runtimes at
    ``stages``.
    """

    name: str
    gate: str = ""
    """Empty for a hook of another package: it is on where the package is installed."""
    stages: frozenset[Stage] = frozenset()
    is_reconciled: bool = True
    is_of_processes: bool = False
    """Whether its settings are for processes, whose numbers mean others a moment later."""
    pod: PodFunction | None = None
    container: ContainerFunction | None = None
    qos_folder: Callable[[str, Rules], Change | None] | None = None
    host_application: Callable[[HostApplicationSpec, Rules], Change | None] | None = None
    node: Callable[[Rules], list[DesiredSetting]] | None = None
    of_pod: Callable[[PodContext, Rules], list[DesiredSetting]] | None = None
    """Its settings for a pod that are not files of the pod's cgroups."""
    of_pods: Callable[[Sequence[PodContext], Rules], list[DesiredSetting]] | None = None
    """The same for all pods together."""
    task_group: Callable[[PodContext, Rules], str | None] | None = None
    """The group of resctrl in which the pod's tasks are to be."""


_STARTING: Final = frozenset(
    {Stage.PRE_RUN_POD_SANDBOX, Stage.PRE_CREATE_CONTAINER, Stage.PRE_UPDATE_CONTAINER_RESOURCES}
)
_CREATING: Final = frozenset({Stage.PRE_CREATE_CONTAINER})


@dataclass(frozen=True, slots=True)
class Hooks:
    """``enabled`` in the order in which they are called; ``released`` undo what those did whose gates are off."""

    enabled: tuple[Hook, ...] = ()
    released: tuple[Hook, ...] = ()

    def at(self, stage: Stage) -> tuple[Hook, ...]:
        """Those that are called at a stage."""
        return tuple(hook for hook in self.enabled if stage in hook.stages)

    @property
    def stages(self) -> list[Stage]:
        """The stages at which any hook is called, by name."""
        return sorted(stage for stage in Stage if self.at(stage))

    @property
    def reconciled(self) -> Iterator[Hook]:
        """Those that pods are kept at while they run."""
        return (hook for hook in (*self.enabled, *self.released) if hook.is_reconciled)


def make_hooks(gates: FeatureGates, rdma: RDMADeviceInject, installed: Sequence[Hook] = ()) -> Hooks:
    """By the feature gates, with those of other packages, which no gate switches."""
    enabled = (*(hook for hook in _all(rdma) if gates.enabled(hook.gate)), *installed)
    return Hooks(
        enabled=tuple(sorted(enabled, key=lambda hook: hook.name)),
        released=tuple(hook for hook in _releasing() if not gates.enabled(hook.gate)),
    )


def merge(changes: Sequence[Change]) -> Change | None:
    """All of them in one; the last that says something of a thing counts."""
    if not changes:
        return None
    merged: dict[str, object] = {}
    for change in changes:
        for name in _VALUES:
            value = getattr(change, name)
            if name == "environment":
                merged[name] = {**merged.get(name, {}), **value}  # type: ignore[dict-item]
            elif isinstance(value, tuple):
                merged[name] = (*merged.get(name, ()), *value)  # type: ignore[misc]
            elif value is not None:
                merged[name] = value
    return Change("; ".join(dict.fromkeys(change.reason for change in changes)), **merged)  # type: ignore[arg-type]


_VALUES: Final = tuple(each.name for each in fields(Change) if each.name not in ("reason", "priority"))


def _all(rdma: RDMADeviceInject) -> list[Hook]:
    return [
        Hook(
            group_identity.OWNER,
            features.GROUP_IDENTITY,
            frozenset({Stage.PRE_RUN_POD_SANDBOX}),
            pod=group_identity.pod,
            container=group_identity.container,
            qos_folder=group_identity.qos_folder,
            host_application=group_identity.host_application,
            node=group_identity.node,
        ),
        Hook(
            cpuset_allocator.OWNER,
            features.CPUSET_ALLOCATOR,
            _STARTING,
            pod=cpuset_allocator.pod,
            container=cpuset_allocator.container,
            host_application=cpuset_allocator.host_application,
        ),
        Hook(
            batch_resource.OWNER,
            features.BATCH_RESOURCE,
            _STARTING,
            pod=batch_resource.pod,
            container=batch_resource.container,
        ),
        Hook(
            cpu_normalization.OWNER,
            features.CPU_NORMALIZATION,
            _STARTING,
            pod=cpu_normalization.pod,
            container=cpu_normalization.container,
        ),
        Hook(
            core_sched.OWNER,
            features.CORE_SCHED,
            pod=core_sched.check,
            qos_folder=core_sched.qos_folder,
            node=core_sched.node,
        ),
        Hook(
            pod_resctrl.OWNER,
            features.RESCTRL,
            frozenset({Stage.PRE_RUN_POD_SANDBOX, Stage.PRE_CREATE_CONTAINER}),
            container=pod_resctrl.container,
            of_pod=pod_resctrl.schemata,
            of_pods=pod_resctrl.unused_groups,
        ),
        Hook(
            pod_resctrl.TASKS_OWNER,
            features.RESCTRL,
            is_of_processes=True,
            task_group=pod_resctrl.task_group,
        ),
        Hook(
            network_classes.OWNER,
            features.TC_NETWORK_QOS,
            pod=network_classes.net_class,
        ),
        Hook(
            oom_score_adj.OWNER,
            features.OOM_SCORE_ADJ,
            is_of_processes=True,
            container=oom_score_adj.container,
        ),
        Hook(
            gpu_environment.OWNER,
            features.GPU_ENV_INJECT,
            _CREATING,
            is_reconciled=False,
            container=gpu_environment.container,
        ),
        Hook(
            rdma_devices.OWNER,
            features.RDMA_DEVICE_INJECT,
            _CREATING,
            is_reconciled=False,
            container=rdma.container,
        ),
    ]


def _releasing() -> list[Hook]:
    """What was given at the start of a container alone goes with the container."""
    return [
        Hook(
            group_identity.OWNER,
            features.GROUP_IDENTITY,
            pod=lambda _, rules: group_identity.release(rules),
            container=lambda _, __, rules: group_identity.release(rules),
            qos_folder=lambda _, rules: group_identity.release(rules),
            host_application=lambda _, rules: group_identity.release(rules),
        ),
        Hook(
            core_sched.OWNER,
            features.CORE_SCHED,
            qos_folder=lambda _, rules: core_sched.release(rules),
        ),
        Hook(
            pod_resctrl.OWNER,
            features.RESCTRL,
            of_pods=lambda _, rules: pod_resctrl.release(rules),
        ),
        Hook(
            cpuset_allocator.OWNER,
            features.CPUSET_ALLOCATOR,
            pod=cpuset_allocator.release_pod,
            container=cpuset_allocator.release_container,
        ),
        Hook(
            batch_resource.OWNER,
            features.BATCH_RESOURCE,
            pod=batch_resource.release_pod,
            container=batch_resource.release_container,
        ),
        Hook(
            cpu_normalization.OWNER,
            features.CPU_NORMALIZATION,
            pod=cpu_normalization.release_pod,
            container=cpu_normalization.release_container,
        ),
    ]
