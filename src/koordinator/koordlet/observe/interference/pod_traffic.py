"""How pods fare on the network: how much they send and receive, and which share of it was lost or sent again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from koordinator.base.said_once import SaidOnce
from koordinator.koordlet.observe.interference.detection import LATENCY_SENSITIVE, Indicator
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.node.cgroup_reader import CgroupReader
from koordinator.node.connection_delays import ReadDelays
from koordinator.node.errors import (
    MalformedFileError,
    MissingFileError,
    OddRowError,
    Unavailable,
    UnreadableFileError,
)
from koordinator.node.host import Host
from koordinator.node.network_counters import NetworkCounters, read_network_counters

logger = logging.getLogger(__name__)

LEAST_COUNT: Final = 100
"""Segments, or packets, of a round below which their share says nothing: one that is lost would be a per cent."""
_AT_ONCE: Final = 8
"""Pods that are read before others have their turn: about a millisecond."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Of one pod since the round before: bytes a second, and what it may suffer from."""

    sent: float
    useful: float
    """Both ways, less what was sent again, as far as it can be told: a pod that loses packets sends more, but does no
    more."""
    indicators: Mapping[Indicator, float] = field(default_factory=dict)


class PodTraffic:
    """``measure`` once a round; two rounds make a reading."""

    def __init__(self, host: Host, reader: CgroupReader, delays: ReadDelays | None) -> None:
        """``delays`` None: the connections of pods are not looked at."""
        self._host = host
        self._reader = reader
        self._delays = delays
        self._known: dict[str, NetworkCounters] = {}
        """By uid of a pod."""
        self._at = 0.0
        self._said = SaidOnce(logger)

    async def measure(self, pods: Iterable[NodePod], now: float, odd_rows: list[OddRowError]) -> dict[str, Traffic]:
        """By uid of a pod, in ``now`` of monotonic seconds. None of a pod in the network of the node, whose counters
        are everybody's, nor of one that was not there, or began anew, since the last round."""
        seconds, found = now - self._at, dict[str, Traffic]()
        present: dict[str, NetworkCounters] = {}
        sensitive: dict[str, int] = {}
        with self._said.round():
            for number, pod in enumerate(pods):
                if pod.pod.spec.host_network:
                    text = f"pod {pod.pod.metadata.key} is in the network of the node, its traffic is not measured"
                    self._said.say(text, pod.uid, logging.INFO)
                    continue
                if number % _AT_ONCE == _AT_ONCE - 1:
                    await asyncio.sleep(0)
                process, counters = self._read(pod, odd_rows)
                if counters is None:
                    continue
                present[pod.uid] = counters
                if pod.qos_with_default in LATENCY_SENSITIVE:
                    sensitive[pod.uid] = process
                before = self._known.get(pod.uid)
                traffic = compare(before, counters, seconds) if before is not None else None
                if traffic is not None:
                    found[pod.uid] = traffic
            if self._delays is not None and sensitive:
                self._add_delays(found, sensitive, await self._delays(self._host, sensitive.values(), seconds))
        self._known, self._at = present, now
        return found

    def _add_delays(
        self, found: dict[str, Traffic], sensitive: Mapping[str, int], delays: Mapping[int, float] | Unavailable
    ) -> None:
        if isinstance(delays, Unavailable):
            self._said.say(f"the delay of connections is not measured: {delays}")
            return
        for uid, process in sensitive.items():
            if uid in found and process in delays:
                indicators = {**found[uid].indicators, Indicator.DELAY: delays[process]}
                found[uid] = replace(found[uid], indicators=indicators)

    def _read(self, pod: NodePod, odd_rows: list[OddRowError]) -> tuple[int, NetworkCounters | None]:
        """Through a process of the pod. The sandbox's is asked first: it is in no other namespace that the pod may have
        made. Processes are looked up again each time, since their numbers are given to others."""
        for folder in (pod.sandbox, *(each.cgroup for each in pod.running)):
            # Processes and containers end all the time.
            with suppress(MissingFileError):
                for process in self._reader.processes(folder)[:1] if folder else ():
                    try:
                        return process, read_network_counters(self._host, process, odd_rows.append)
                    except (MalformedFileError, UnreadableFileError) as error:
                        self._said.say(f"the network of pods is not measured: {error}", error.path)
        return 0, None


def compare(before: NetworkCounters, after: NetworkCounters, seconds: float) -> Traffic | None:
    """What happened in between; None if it began anew, in another namespace."""
    received, sent, packets, dropped, segments, again = (
        getattr(after, name) - getattr(before, name) for name in NetworkCounters.__slots__
    )
    if seconds <= 0 or min(received, sent, packets, dropped, segments, again) < 0:
        return None
    indicators: dict[Indicator, float] = {}
    # OutSegs has those alone that were sent for the first time.
    for indicator, lost, all_ in (
        (Indicator.RETRANSMITS, again, segments + again),
        (Indicator.DROPS, dropped, packets + dropped),
    ):
        if all_ >= LEAST_COUNT:
            indicators[indicator] = 100 * lost / all_
    first = segments / (segments + again) if segments + again else 1.0
    return Traffic(sent / seconds, (received + sent * first) / seconds, indicators)
