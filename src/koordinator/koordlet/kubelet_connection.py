"""How the agent connects to its kubelet: the address, the time that responses take, and the cgroup driver."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf
from typing import Final

from koordinator.api.node import Node
from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError
from koordinator.base.metrics import Metrics, exponential_buckets
from koordinator.koordlet.agent_metrics import PREFIX
from koordinator.koordlet.options import Options
from koordinator.koordlet.states import StatesInformer
from koordinator.kube.errors import ApiStatusError
from koordinator.node.cgroup_layout import CgroupDriver, CgroupVersion, detect_driver
from koordinator.node.kubelet import Get, Kubelet, KubeletAddressError

logger = logging.getLogger(__name__)

PAUSE: Final = 1.0
"""Seconds between two tries."""
_SAID_EVERY: Final = 30.0
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
    said_at = -inf
    while True:
        try:
            return await connect(await states.wait_for_node())
        except KubeletAddressError as error:
            if clock.monotonic() - said_at >= _SAID_EVERY:
                logger.warning("waiting for kubelet to report: %s", error)
                said_at = clock.monotonic()
        await clock.sleep(PAUSE)


async def cgroup_driver(options: Options, kubelet: Kubelet, version: CgroupVersion) -> CgroupDriver:
    """By the folders that kubelet has made, else as kubelet says, else systemd, which is what most have."""
    found = detect_driver(options.host, version)
    if found is not None:
        return found
    why = "--disable-query-kubelet-config is set"
    if options.kubelet.query_configuration:
        try:
            configuration = await kubelet.configuration()
        except KoordinatorError as error:
            why = str(error)
        else:
            return configuration.cgroup_driver or CgroupDriver.CGROUPFS
    logger.warning("kubelet has made no cgroups yet, and its driver is not known (%s): systemd is assumed", why)
    return CgroupDriver.SYSTEMD


async def query_configuration(options: Options, kubelet: Kubelet, states: StatesInformer) -> None:
    """What the kubelet does with limits, before anything is enforced; what it does not say is asked for again later."""
    if not options.kubelet.query_configuration:
        return
    try:
        states.kubelet_configuration = await kubelet.configuration()
    except KoordinatorError as error:
        logger.warning("the kubelet does not say how it is configured: %s", error)


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
