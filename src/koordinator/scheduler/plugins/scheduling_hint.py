"""SchedulingHint: an annotation that names the nodes a pod must or should go to, written by other schedulers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

import msgspec

from koordinator.api import annotations as annotation_keys
from koordinator.api.codec import DecodeError, decode
from koordinator.api.pod import Pod
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.framework import SKIP_FILTER, PluginError, PreFilterPlugin, PreFilterResult
from koordinator.scheduler.engine.framework_hooks import PreferNodesPlugin
from koordinator.scheduler.engine.pod_info import PodInfo

_MEMO: Final = "SchedulingHint"
_ANNOTATIONS: Final = (annotation_keys.SCHEDULING_HINT, annotation_keys.DEPRECATED_SCHEDULING_HINT)


class Hint(msgspec.Struct, frozen=True, rename="camel"):
    """The annotation's value."""

    node_names: tuple[str, ...] = ()
    """The only nodes to look at; none named: all."""
    preferred_node_names: tuple[str, ...] = ()
    """Nodes to take before all others if they can take the pod, in this order."""
    extensions: dict[str, Any] = {}
    """By plugin: what it shall know; its presence makes plugins take what annotations of the pod have designated."""


def hint_of(pod: PodInfo) -> Hint | None:
    """The pod's hint. Raises PluginError when it cannot be read."""
    found = _found(pod)
    if isinstance(found, str):
        raise PluginError(found)
    return found


class SchedulingHint(PreFilterPlugin, PreferNodesPlugin):
    name = "SchedulingHint"

    def class_key(self, pod: PodInfo) -> Hashable:
        # Preferences are asked for before each decision and make no difference to a node's result or score.
        found = _found(pod)
        return frozenset(found.node_names) or None if isinstance(found, Hint) else found

    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        hint = hint_of(pod)
        if hint is None or not hint.node_names:
            return SKIP_FILTER
        return PreFilterResult(node_names=frozenset(hint.node_names))

    def prefer_nodes(self, pod: PodInfo) -> Sequence[str]:
        hint = hint_of(pod)
        return hint.preferred_node_names[: self.args.max_hint_nodes] if hint is not None else ()

    def events_to_register(self) -> frozenset[str]:
        return frozenset({EventKind.NODE_ADD})

    def queueing_hint(self, pod: PodInfo, event: ClusterEvent) -> bool:
        """Whether the node that has come is one of those that the pod waits for."""
        hint = hint_of(pod)
        named = hint.node_names if hint is not None else ()
        return not named or event.new is None or event.new.metadata.name in named


def _found(pod: PodInfo) -> Hint | str | None:
    """As _read, once for each pod."""
    if _MEMO not in pod.memo:
        pod.memo[_MEMO] = _read(pod.pod)
    found: Hint | str | None = pod.memo[_MEMO]
    return found


def _read(pod: Pod) -> Hint | str | None:
    """The hint, or why it cannot be read. An empty annotation is none."""
    for key in _ANNOTATIONS:
        text = pod.metadata.annotations.get(key)
        if text:
            try:
                return decode(text, Hint)
            except DecodeError as error:
                return f"annotation {key}: {error}"
    return None
