"""What a hook is, and the stages at which each is called, in the order of their names (pkg/koordlet/runtimehooks/hooks/
hooks.go)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from koordinator.api.host_application import HostApplicationSpec
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting
from koordinator.koordlet.enforce.hooks.contexts import Change, ContainerContext, PodContext
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


STARTING: Final = frozenset(
    {Stage.PRE_RUN_POD_SANDBOX, Stage.PRE_CREATE_CONTAINER, Stage.PRE_UPDATE_CONTAINER_RESOURCES}
)
"""When a runtime sets the limits of a pod or container."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """``enabled`` in the order in which they are called; ``released`` undo what those did whose gates are off."""

    enabled: tuple[Hook, ...] = ()
    released: tuple[Hook, ...] = ()

    def at(self, stage: Stage) -> tuple[Hook, ...]:
        return tuple(hook for hook in self.enabled if stage in hook.stages)

    @property
    def stages(self) -> list[Stage]:
        """The stages at which any hook is called, by name."""
        return sorted(stage for stage in Stage if self.at(stage))

    @property
    def reconciled(self) -> Iterator[Hook]:
        """Those that pods are kept at while they run."""
        return (hook for hook in (*self.enabled, *self.released) if hook.is_reconciled)
