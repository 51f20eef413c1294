"""How the agent connects to its kubelet: the address, the time that responses take, and where its cgroups are."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from koordinator.api.node import Node
from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError
from koordinator.base.metrics import Metrics, exponential_buckets
from koordinator.base.said_once import Reminder, SaidOnce
from koordinator.koordlet.agent_metrics import PREFIX
from koordinator.koordlet.options import Options
from koordinator.koordlet.pods.states import StatesInformer
from koordinator.kube.errors import ApiStatusError
from koordinator.node.cgroup_layout import (
    CgroupDriver,
    CgroupLayout,
    CgroupVersion,
    detect_version,
    find_kubepods,
    kubepods_folder,
)
from koordinator.node.host import exists
from koordinator.node.kubelet import Get, Kubelet, KubeletAddressError

logger = logging.getLogger(__name__)

PAUSE: Final = 1.0
"""Seconds between two tries."""
_QUERY_EVERY: Final = 30.0
_QUERY_AGAIN: Final = 3.0
"""While nothing is known of the configuration: containers start on the right CPUs only when it is."""
_BUCKETS: Final = exponential_buckets(0.001, 4, 7)


@dataclass(frozen=True, slots=True)
class KubeletConnection:
    """The requests to one kubelet, and how the connection is closed."""

    get: Get
    close: Callable[[], Awaitable[None]]


ConnectKubelet = Callable[[Node], Awaitable[KubeletConnection]]
"""Gets the Node, which says where its kubelet is."""


async def connect_when_there(states: StatesInformer, connect: ConnectKubelet, clock: Clock) -> KubeletConnection:
    """A Node says where its kubelet is once kubelet has reported: what is missing is said every half minute."""
    reminder = Reminder(clock)
    while True:
        try:
            return await connect(await states.wait_for_node())
        except KubeletAddressError as error:
            if reminder.is_due():
                logger.warning("waiting for kubelet to report: %s", error)
        await clock.sleep(PAUSE)


class KubeletMovedError(KoordinatorError):
    """The kubelet has the cgroups of pods elsewhere now than when koordlet started."""


class KubeletFollower:
    """How the kubelet is configured: asked before anything is enforced, and again now and then."""

    def __init__(self, options: Options, kubelet: Kubelet, states: StatesInformer, clock: Clock) -> None:
        """``states`` is where the configuration goes."""
        self._options = options
        self._kubelet = kubelet
        self._states = states
        self._clock = clock
        self._said = SaidOnce(logger)

    async def layout(self) -> CgroupLayout:
        """Where the cgroups of pods are: as the kubelet says, else by the folders that it has made. After a boot there
        is neither for a while: nothing is assumed until then, and what is missing is said every half minute.

        FileError if no cgroup hierarchy is mounted.
        """
        version = detect_version(self._options.host)
        reminder = Reminder(self._clock)
        while True:
            await self._query()
            layout = self._layout(version, find_kubepods(self._options.host, version))
            if layout is not None:
                return layout
            if reminder.is_due():
                why = str(self._said) or "--disable-query-kubelet-config is set"
                logger.warning("waiting for kubelet, which has made no cgroups yet: %s", why)
            await self._clock.sleep(PAUSE)

    async def follow(self, layout: CgroupLayout) -> None:
        """Query until cancelled. KubeletMovedError if the kubelet was started anew with another driver or cgroup root:
        then nothing that was found below ``layout`` is right any more."""
        while self._options.kubelet.query_configuration:
            is_known = self._states.kubelet_configuration is not None
            await self._clock.sleep(_QUERY_EVERY if is_known else _QUERY_AGAIN)
            if not await self._query():
                continue
            now = self._layout(layout.version, find_kubepods(self._options.host, layout.version))
            if now is not None and now != layout:
                raise KubeletMovedError(
                    f"kubelet has the cgroups of pods in {now.kubepods} now, by the driver {now.driver}, and no longer "
                    f"in {layout.kubepods}: koordlet has to start anew"
                )

    async def _query(self) -> bool:
        """Whether the configuration is known as of now."""
        if not self._options.kubelet.query_configuration:
            return False
        with self._said.round():
            try:
                self._states.kubelet_configuration = await self._kubelet.configuration()
            except KoordinatorError as error:
                self._said.say(f"kubelet does not say how it is configured: {error}")
                return False
        return True

    def _layout(self, version: CgroupVersion, found: tuple[CgroupDriver, str] | None) -> CgroupLayout | None:
        root, configuration = self._options.host.cgroup, self._states.kubelet_configuration
        if configuration is not None:
            driver = configuration.cgroup_driver
            given = CgroupLayout(root, version, driver, kubepods_folder(driver, configuration.cgroup_root))
            # A kubelet in a cgroup namespace of its own knows the upper part of its path as the root.
            if found is None or exists(given.folder("cpu", given.kubepods)):
                return given
        return None if found is None else CgroupLayout(root, version, *found)


def timed(get: Get, clock: Clock, metrics: Metrics) -> Get:
    """``get``, with the time of each response in the metrics; a request without a response is not counted."""
    durations = metrics.histogram(
        f"{PREFIX}kubelet_request_duration_seconds",
        "kubelet http request duration in seconds",
        ("verb", "path", "code"),
        buckets=_BUCKETS,
    )

    async def timed_get(path: str) -> bytes:
        started = clock.monotonic()
        try:
            body = await get(path)
        except ApiStatusError as error:
            durations.labels("get", path, str(error.code)).observe(clock.monotonic() - started)
            raise
        durations.labels("get", path, "200").observe(clock.monotonic() - started)
        return body

    return timed_get
