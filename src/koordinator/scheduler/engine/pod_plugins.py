"""The plugins of a profile that have something to do in an attempt of a pod, by extension point."""

from __future__ import annotations

from dataclasses import dataclass

from koordinator.scheduler.engine.binding_points import (
    AllocatorPlugin,
    BindPlugin,
    PermitPlugin,
    PostBindPlugin,
    PreBindPlugin,
    ReservePlugin,
)
from koordinator.scheduler.engine.cycle_state import CyclePreFilterPlugin
from koordinator.scheduler.engine.framework import Plugin, PreEnqueuePlugin
from koordinator.scheduler.engine.framework_hooks import (
    FilterTransformer,
    FindOneNodePlugin,
    PreferNodesPlugin,
    ResizePodPlugin,
)


@dataclass(frozen=True, slots=True, eq=False)
class PodPlugins:
    """Those that ``concern`` the pod, in the order in which each point calls them. Pods that the same plugins concern
    share the object."""

    context: tuple[Plugin | None, ...]
    """Those with a ``context_key``; None in place of one that does not concern the pod."""
    pre_enqueue: tuple[PreEnqueuePlugin, ...]
    pre_filter_cycle: tuple[CyclePreFilterPlugin, ...]
    finder: FindOneNodePlugin | None
    preferring: PreferNodesPlugin | None
    resizing: tuple[ResizePodPlugin, ...]
    allocators: tuple[AllocatorPlugin, ...]
    transformers: tuple[FilterTransformer, ...]
    """Those that adjust a node as allocators see it."""
    reserve: tuple[ReservePlugin, ...]
    permit: tuple[PermitPlugin, ...]
    pre_bind: tuple[PreBindPlugin, ...]
    bind: tuple[BindPlugin, ...]
    post_bind: tuple[PostBindPlugin, ...]
