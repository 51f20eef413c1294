"""Pod lifecycle events: the kernel reports at once a cgroup that the kubelet or the container runtime created, or has
written.

The kubelet would be queried for its pods every ten seconds only. For a new pod it is queried right away. The kubelet
lists the ID of a container after the runtime has reported it, the kubelet has written it into the pod's status and the
API server has returned that status. This takes some seconds, so that for a new container the kubelet is queried several
times. Where the kernel cannot report cgroups, the kubelet is queried every ten seconds as before.

systemd knows nothing of what others write into the files of its slices and scopes. When its configuration is loaded
anew, as each installation of a package does it, it writes its own values into all of them; and when the kubelet writes
those of a QoS class, as it does once a minute and for each pod that comes or goes, into those of that class. The CPU
weight of the class is always among them, and koordlet writes none: when one was written, what koordlet has written into
that class is looked at. The weight of the folder of all pods is no such class's, and the kubelet writes it at its start
alone: then everything is looked at. Without systemd, nobody writes what is another's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from koordinator.api.qos import KubernetesQoS
from koordinator.base.clock import Clock
from koordinator.base.loops import LoopMetrics
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion, UnknownCgroupError
from koordinator.node.errors import FileError
from koordinator.node.host import subfolders_or_none
from koordinator.node.inotify import Created, FolderEvent, FolderWatcher, InotifyError, Overflow, Written
from koordinator.node.kernel_files import CPU_SHARES

logger = logging.getLogger(__name__)

_FOLDER_SECONDS: Final = 10.0
"""How often folders are looked for that kubelet has not made yet, or made anew."""
_CONTAINER_SECONDS: Final = (1.5, 3.0, 6.0)
"""The delays after which the kubelet is queried for a new container. The first is the kubelet's relist period."""
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 2.0
"""Seconds between two refreshes, each twice the last while pods keep coming: hundreds that start at once are in few
responses, each of which has all pods of the node."""
_REWRITE_SECONDS: Final = 1.0
"""systemd writes the files of hundreds of cgroups in less time."""


class PodLifecycleEvents:
    """Calls ``refresh`` when the pods or containers of the node are not what they were, and ``look_again`` when others
    may have written the files of a relative folder, or any file of pods: None."""

    def __init__(
        self,
        layout: CgroupLayout,
        clock: Clock,
        loops: LoopMetrics,
        refresh: Callable[[], Awaitable[None]],
        look_again: Callable[[str | None], object],
        make_watcher: Callable[[], FolderWatcher] = FolderWatcher,
    ) -> None:
        self._layout = layout
        self._clock = clock
        self._loops = loops
        self._refresh = refresh
        self._look_again = look_again
        self._make_watcher = make_watcher
        self._qos_folders: Final = {layout.folder("cpu", layout.qos(qos)): layout.qos(qos) for qos in KubernetesQoS}
        """The relative folders of the classes by their paths."""
        self._pod_appeared = asyncio.Event()
        self._container_appeared = asyncio.Event()
        self._rewriting = asyncio.Event()
        self._rewritten: set[str] = set()
        """The relative folders of classes whose weight was written."""
        is_v1 = layout.version is CgroupVersion.V1
        self._weight: Final = CPU_SHARES.v1 if is_v1 else CPU_SHARES.v2
        self._is_exhausted = False

    async def run(self) -> None:
        """Watch until cancelled; returns at once where the kernel has no inotify for us."""
        try:
            watcher = self._make_watcher()
        except InotifyError as error:
            logger.warning("new pods are noticed when the kubelet is queried the next time: %s", error)
            return
        loop = asyncio.get_running_loop()
        loop.add_reader(watcher.fileno(), lambda: self._on_events(watcher))
        try:
            async with asyncio.TaskGroup() as tasks:
                for name, body in (
                    ("folders of pods", partial(self._keep_watching, watcher)),
                    ("new pods", partial(self._refresh_after, self._pod_appeared, (0.0,))),
                    ("rewritten cgroups", self._look_again_after_writes),
                    ("new containers", partial(self._refresh_after, self._container_appeared, _CONTAINER_SECONDS)),
                ):
                    tasks.create_task(self._loops.loop(name).watch(body), name=name)
        finally:
            loop.remove_reader(watcher.fileno())
            watcher.close()

    async def _keep_watching(self, watcher: FolderWatcher) -> None:
        while True:
            for folder in self._qos_folders:
                # To watch a folder again that is watched changes nothing, and finds one that was made anew.
                if self._watch(watcher.watch, folder):
                    if self._layout.driver is CgroupDriver.SYSTEMD:
                        self._watch(watcher.watch_file, f"{folder}/{self._weight}")
                    for name in filter(self._is_pod, subfolders_or_none(folder) or ()):
                        self._watch(watcher.watch, f"{folder}/{name}")
            await self._clock.sleep(_FOLDER_SECONDS)

    async def _look_again_after_writes(self) -> None:
        while True:
            await self._rewriting.wait()
            await self._clock.sleep(_REWRITE_SECONDS)
            self._rewriting.clear()
            rewritten, self._rewritten = self._rewritten, set()
            for folder in [None] if self._layout.kubepods in rewritten else sorted(rewritten):
                self._look_again(folder)

    def _note_rewrite(self, folder: str) -> None:
        self._rewritten.add(folder)
        self._rewriting.set()

    async def _refresh_after(self, appeared: asyncio.Event, delays: Sequence[float]) -> None:
        pause, paused_at = _FIRST_PAUSE, self._clock.monotonic()
        while True:
            await appeared.wait()
            appeared.clear()
            if self._clock.monotonic() - paused_at >= _LONGEST_PAUSE:
                pause = _FIRST_PAUSE
            for delay in delays:
                await self._clock.sleep(delay)
                await self._refresh_once()
            await self._clock.sleep(pause)
            pause, paused_at = min(pause * 2, _LONGEST_PAUSE), self._clock.monotonic()

    async def _refresh_once(self) -> None:
        try:
            await self._refresh()
        except Exception:
            # The next refresh may go better, and what else the agent does does not depend on it.
            logger.exception("the pods could not be refreshed")

    def _on_events(self, watcher: FolderWatcher) -> None:
        for event in watcher.read():
            self._on_event(watcher, event)

    def _on_event(self, watcher: FolderWatcher, event: FolderEvent) -> None:
        if isinstance(event, Overflow):
            self._pod_appeared.set()
            self._note_rewrite(self._layout.kubepods)
        elif isinstance(event, Written):
            self._note_rewrite(self._qos_folders[event.path.removesuffix(f"/{self._weight}")])
        elif isinstance(event, Created) and event.folder in self._qos_folders:
            if self._is_pod(event.name):
                self._pod_appeared.set()
                folder = f"{event.folder}/{event.name}"
                if self._watch(watcher.watch, folder) and any(
                    map(self._is_container, subfolders_or_none(folder) or ())
                ):
                    # The runtime was faster than we.
                    self._container_appeared.set()
        elif isinstance(event, Created) and self._is_container(event.name):
            self._container_appeared.set()

    def _watch(self, watch: Callable[[str], None], path: str) -> bool:
        """Whether it is there and watched."""
        try:
            watch(path)
        except FileError:
            return False
        except InotifyError as error:
            if not self._is_exhausted:
                logger.warning("some new containers are noticed when the kubelet is queried the next time: %s", error)
            self._is_exhausted = True
            return False
        return True

    def _is_pod(self, name: str) -> bool:
        return _is_known(self._layout.pod_uid, name)

    def _is_container(self, name: str) -> bool:
        return _is_known(self._layout.container_id, name)


def _is_known(of_layout: Callable[[str], object], name: str) -> bool:
    try:
        of_layout(name)
    except UnknownCgroupError:
        return False
    return True
