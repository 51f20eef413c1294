"""Which pod is tried next: the one that a plugin wants out of turn, else the first of the queue."""

from __future__ import annotations

from collections.abc import Iterable

from koordinator.scheduler.engine.extender import NextPodPlugin
from koordinator.scheduler.engine.framework import PluginError
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.plugin_errors import PluginErrors
from koordinator.scheduler.queue.queued_pod import QueuedPod
from koordinator.scheduler.queue.scheduling_queue import SchedulingQueue


class NextPod:
    """The queue serves all profiles, so the first plugin of any profile that has a say is asked, and no other."""

    def __init__(self, queue: SchedulingQueue, profiles: Iterable[Profile], errors: PluginErrors) -> None:
        self._queue = queue
        self._errors = errors
        self._plugin = next((plugin for profile in profiles for plugin in profile.all(NextPodPlugin)), None)

    def pop(self) -> QueuedPod | None:
        """Take the pod out of the queue; None when there is nothing to try now. A plugin that names a pod that is
        gated, in flight or unknown, or that fails, is passed over."""
        if self._plugin is not None:
            uid = self._ask(self._plugin)
            entry = self._queue.take(uid) if uid is not None else None
            if entry is not None:
                return entry
        return self._queue.pop()

    def _ask(self, plugin: NextPodPlugin) -> str | None:
        try:
            uid: object = plugin.next_pod()
        except Exception as error:
            # A plugin may raise anything; pods are tried in their order then.
            self._errors.of_plugin(plugin.name, "next_pod", error)
            return None
        if uid is None or isinstance(uid, str):
            return uid
        nonsense = PluginError(f"it answers {uid!r}; expected is the uid of a pod, or None")
        self._errors.of_plugin(plugin.name, "next_pod", nonsense)
        return None
