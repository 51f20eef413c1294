"""At which extension points a plugin class takes part: told by the protocols that it derives from."""

from __future__ import annotations

from typing import Final

from koordinator.scheduler.engine.binding_points import (
    AllocatorPlugin,
    BindPlugin,
    PermitPlugin,
    PostBindPlugin,
    PreBindPlugin,
    ReservePlugin,
)
from koordinator.scheduler.engine.cycle_state import CyclePreFilterPlugin
from koordinator.scheduler.engine.framework import (
    FilterPlugin,
    Plugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    QueueSortPlugin,
    ScorePlugin,
)
from koordinator.scheduler.engine.framework_hooks import (
    FilterTransformer,
    PostFilterTransformer,
    PreFilterTransformer,
    ScoreTransformer,
)
from koordinator.scheduler.engine.post_filter import PostFilterPlugin

_PROTOCOLS: Final[dict[str, tuple[type[Plugin], ...]]] = {
    "preEnqueue": (PreEnqueuePlugin,),
    "queueSort": (QueueSortPlugin,),
    "preFilter": (PreFilterPlugin, CyclePreFilterPlugin, PreFilterTransformer),
    "filter": (FilterPlugin, FilterTransformer),
    "postFilter": (PostFilterPlugin, PostFilterTransformer),
    "score": (ScorePlugin, ScoreTransformer),
    "reserve": (ReservePlugin, AllocatorPlugin),
    "permit": (PermitPlugin,),
    "preBind": (PreBindPlugin,),
    "bind": (BindPlugin,),
    "postBind": (PostBindPlugin,),
}
_ENGINE: Final = Plugin.__module__.rpartition(".")[0]


def implemented_points(plugin: type[Plugin]) -> frozenset[str]:
    """The points at which a profile lists the plugin, by their names in the configuration."""
    points = {point for point, protocols in _PROTOCOLS.items() if issubclass(plugin, protocols)}
    if issubclass(plugin, ScorePlugin) and plugin.pre_score is not ScorePlugin.pre_score:
        points.add("preScore")
    return frozenset(points)


def has_hooks(plugin: type[Plugin]) -> bool:
    """Whether the class derives from any protocol at all, those included that take part wherever their plugin is in the
    profile (see ``extender``)."""
    protocols = (base for base in plugin.__mro__ if issubclass(base, Plugin) and base is not Plugin)
    return any(base.__module__.startswith(f"{_ENGINE}.") for base in protocols)
