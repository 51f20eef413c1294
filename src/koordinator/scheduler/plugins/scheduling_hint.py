"""SchedulingHint: an annotation, written by other schedulers, with the nodes that a pod must or should go to."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

import msgspec

from koordinator.api import annotations as annotation_keys
from koordinator.api.codec import DecodeError, decode
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.framework import SKIP_FILTER, PreFilterPlugin, PreFilterResult, Reason
from koordinator.scheduler.engine.framework_hooks import PreferNodesPlugin
from koordinator.scheduler.engine.pod_info import PodInfo

_MEMO: Final = "SchedulingHint"
_ANNOTATIONS: Final = (annotation_keys.SCHEDULING_HINT, annotation_keys.DEPRECATED_SCHEDULING_HINT)


class Hint(msgspec.Struct, frozen=True, rename="camel"):
    """The annotation's value."""

    node_names: tuple[str, ...] = ()
    """The only nodes to consider; empty for all."""
    preferred_node_names: tuple[str, ...] = ()
    """Nodes to take before all others if they are feasible, in this order."""
    extensions: dict[str, Any] = {}
    """Data by plugin; if not empty, plugins use the allocations that annotations of the pod designate."""


def hint_of(pod: PodInfo) -> Hint | str | None:
    """The pod's hint, or the error in it, read once for each pod. None without an annotation or with an empty one."""
    if _MEMO not in pod.memo:
        present = ((key, pod.pod.metadata.annotations.get(key)) for key in _ANNOTATIONS)
        key, text = next(((key, text) for key, text in present if text), ("", None))
        try:
            pod.memo[_MEMO] = decode(text, Hint) if text else None
        except DecodeError as error:
            pod.memo[_MEMO] = f"annotation {key}: {error}"
    found: Hint | str | None = pod.memo[_MEMO]
    return found


class SchedulingHint(PreFilterPlugin, PreferNodesPlugin):
    name = "SchedulingHint"

    def class_key(self, pod: PodInfo) -> Hashable:
        # Preferred nodes are read before each decision and change no node's result or score.
        found = hint_of(pod)
        return frozenset(found.node_names) or None if isinstance(found, Hint) else found

    def concerns(self, pod: PodInfo) -> bool:
        return hint_of(pod) is not None

    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        hint = hint_of(pod)
        if isinstance(hint, str):
            return PreFilterResult(skip=True, rejection=Reason(hint, unresolvable=True))
        if hint is None or not hint.node_names:
            return SKIP_FILTER
        return PreFilterResult(node_names=frozenset(hint.node_names))

    def prefer_nodes(self, pod: PodInfo) -> Sequence[str]:
        hint = hint_of(pod)
        return hint.preferred_node_names[: self.args.max_hint_nodes] if isinstance(hint, Hint) else ()

    def events_to_register(self) -> frozenset[str]:
        return frozenset({EventKind.NODE_ADD})

    def queueing_hint(self, pod: PodInfo, event: ClusterEvent) -> bool:
        """Whether the new node is one of those that the pod waits for."""
        hint = hint_of(pod)
        named = hint.node_names if isinstance(hint, Hint) else ()
        return not named or event.new is None or event.new.metadata.name in named
