"""What may make an unschedulable pod schedulable: an event for which a plugin's queueing hint is True.

Free capacity on a node that a pod is nominated to is for that pod alone, until it is there or its nomination is
cleared: waking all other pods for it, each time that a pod leaves, would be useless.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from koordinator.api.node import Node
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.events import ClusterEvent
from koordinator.scheduler.engine.framework import Plugin
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.simulation import nominated_before, place_nominated
from koordinator.scheduler.plugin_errors import PluginErrors
from koordinator.scheduler.queue.queued_pod import QueuedPod


class QueueingHints:
    """Calls the queueing hints of plugins. ``profile_of`` returns the profile of a scheduler name."""

    def __init__(self, state: ClusterState, profile_of: Callable[[str], Profile], errors: PluginErrors) -> None:
        self._state = state
        self._profile_of = profile_of
        self._errors = errors

    def queueing_hint(self, entry: QueuedPod, event: ClusterEvent) -> bool:
        """Whether any plugin that rejected the pod's nodes, or that adjusts how it sees nodes, returns a positive hint;
        a plugin that fails counts as one."""
        profile = self._profile_of(entry.pod.pod.spec.scheduler_name)
        if not entry.plugins or not all(name in profile.plugins for name in entry.plugins):
            return True
        view, pod = self._state.view, entry.pod
        transformers = [each.name for each in profile.filter_transformers if each.name not in entry.plugins]
        plugins = [profile.plugins[name] for name in (*entry.plugins, *transformers)]
        row = view.columns.row_of.get(_node_name(event)) if not view.nominations.is_empty else None
        if row is None or not nominated_before(view, pod, row):
            return any(self._hint(plugin, pod, event) for plugin in plugins)
        try:
            with view.simulate() as journal:
                place_nominated(journal, profile.allocators, view, pod, row)
                return any(self._hint(plugin, pod, event) for plugin in plugins)
        except Exception as error:
            # Hints do not raise: a plugin does not know what a nominated pod is going to get.
            self._errors.of_plugin("", "nominated_allocation", error)
            return True

    def _hint(self, plugin: Plugin, pod: PodInfo, event: ClusterEvent) -> bool:
        try:
            return event.kind in plugin.events_to_register() and plugin.queueing_hint(pod, event)
        except Exception as error:
            self._errors.of_plugin(plugin.name, "queueing_hint", error)
            return True

    def nominated_to(self, event: ClusterEvent) -> Collection[str]:
        """The uids of the pods that are nominated to the node that the event is about."""
        nominations = self._state.view.nominations
        return [pod.uid for pod in nominations.on(_node_name(event))] if not nominations.is_empty else ()


def _node_name(event: ClusterEvent) -> str:
    """The node that may have more free capacity now; empty when it is not one node."""
    about = event.new if event.new is not None else event.old
    if isinstance(about, Node):
        return about.metadata.name
    return about.pod.spec.node_name if isinstance(about, PodInfo) else ""
