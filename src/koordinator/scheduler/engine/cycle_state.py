"""The state of one attempt to place one pod (upstream: CycleState), and PreFilter for the attempt, not the class.

What PreFilter and PreScore prepare is kept for a class of like pods. What holds for one attempt alone, such as whether
the pod's gang is complete or how much of its quota is left, is asked anew each time, and what plugins note here for one
another lasts until the pod is bound or the attempt fails.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from typing import Any, ClassVar

from koordinator.scheduler.engine.columns import NodeReference
from koordinator.scheduler.engine.framework import Plugin, Reason
from koordinator.scheduler.engine.pod_info import PodInfo


class CycleState:
    """``pod`` is the pod of the attempt; ``node`` the node that was chosen, None before Reserve."""

    __slots__ = ("_data", "node", "pod")

    def __init__(self, pod: PodInfo) -> None:
        self.pod = pod
        self.node: NodeReference | None = None
        self._data: dict[Hashable, Any] | None = None

    def write(self, key: Hashable, value: Any) -> None:
        """Keep ``value`` for whoever reads ``key`` later in this attempt."""
        if self._data is None:
            self._data = {}
        self._data[key] = value

    def read(self, key: Hashable, default: Any = None) -> Any:
        """What was written last, else ``default``."""
        return default if self._data is None else self._data.get(key, default)


class CyclePreFilterPlugin(Plugin):
    """Takes part where it is listed at PreFilter, before the plugins that are asked once for each class."""

    sees_all_attempts: ClassVar[bool] = False
    """Whether it is asked before those that do not say so, wherever it is listed, so that none of these can end an
    attempt of which it does not know (upstream: a PreFilterTransformer)."""

    @abstractmethod
    def pre_filter_cycle(self, state: CycleState, pod: PodInfo) -> Reason | None:
        """Why this attempt must not go on; None lets it. Asked in every attempt, so it must be quick. The class of the
        pod keeps its filter results: PostFilter plugins are asked as if this plugin had rejected every node, and may
        simulate. The pod waits for ``events_to_register``."""

    def refusal_if_tried(self, pod: PodInfo) -> Reason | None:
        """Why it would end an attempt of the pod as things are, or would be in a simulation, in which plugins that plan
        for several pods ask. Changes nothing. The default never knows."""
        return None

    def waits_as(self, pod: PodInfo) -> Hashable:
        """If not None: the pods that this plugin has rejected and that have equal keys wait for the same, so that
        ``queueing_hint`` is asked once for all of them. The default asks for every pod."""
        return None
