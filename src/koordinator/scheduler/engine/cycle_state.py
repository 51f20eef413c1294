"""The state of one attempt to place one pod (upstream: CycleState), and PreFilter for the attempt, not the class.

What PreFilter and PreScore prepare is kept for a class of identical pods. What holds for one attempt alone, such as
whether the pod's gang is complete or how much of its quota is left, is computed in each attempt, and what plugins write
here for each other lasts until the pod is bound or the attempt fails.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from typing import Any, ClassVar

import msgspec

from koordinator.scheduler.engine.columns import NodeReference
from koordinator.scheduler.engine.framework import Plugin, Reason
from koordinator.scheduler.engine.pod_info import PodInfo


class CycleState(msgspec.Struct, eq=False):
    """``pod`` is the pod of the attempt; ``node`` the node that was chosen, None before Reserve."""

    pod: PodInfo
    node: NodeReference | None = None
    _data: dict[Hashable, Any] | None = None

    def write(self, key: Hashable, value: Any) -> None:
        """Store ``value`` for plugins that read ``key`` later in this attempt."""
        if self._data is None:
            self._data = {}
        self._data[key] = value

    def read(self, key: Hashable, default: Any = None) -> Any:
        """The value last written to ``key``, else ``default``."""
        return default if self._data is None else self._data.get(key, default)


class CyclePreFilterPlugin(Plugin):
    """A plugin that is called where it is listed at PreFilter, in every attempt, before the plugins that are called
    once for each class."""

    sees_all_attempts: ClassVar[bool] = False
    """Whether it is called before plugins without this flag, wherever it is listed, so that none of these can end an
    attempt that it has not seen (upstream: a PreFilterTransformer)."""

    @abstractmethod
    def pre_filter_cycle(self, state: CycleState, pod: PodInfo) -> Reason | None:
        """The reason to end this attempt; None to continue. Called in every attempt, so it must be quick. The class of
        the pod keeps its filter results: PostFilter plugins are called as if this plugin had rejected every node, and
        may simulate. The pod waits for ``events_to_register``."""

    def refusal_if_tried(self, pod: PodInfo) -> Reason | None:
        """The reason for which an attempt of the pod would be ended at present, or within a simulation; called by
        plugins that plan for several pods, and every few seconds for the condition of a pod that this plugin keeps
        waiting. Changes nothing. The default is None."""
        return None

    def waits_as(self, pod: PodInfo) -> Hashable:
        """If not None: pods that this plugin has rejected and whose keys are equal wait for the same events, so that
        ``queueing_hint`` is called once for all of them. By default it is called for every pod."""
        return None
