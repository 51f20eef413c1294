"""Containers that were killed, or evicted, because they needed more memory: what the samples of usage do not show."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from koordinator.api.core import Event
from koordinator.api.kinds import EVENTS
from koordinator.api.quantity import QuantityError, parse_quantity
from koordinator.api.resource_names import MEMORY
from koordinator.base.clock import Clock
from koordinator.kube.informer import Informer
from koordinator.kube.interface import Client
from koordinator.manager.recommender.observed_pods import ObservedPod, new_kills

logger = logging.getLogger(__name__)

EVICTED_PODS: Final = "reason=Evicted,involvedObject.kind=Pod"
_CONTAINERS: Final = "offending_containers"
_USAGE: Final = "offending_containers_usage"
_RESOURCES: Final = "starved_resource"
"""The annotations of the kubelet's Evicted events: comma-separated lists of equal length."""
_MOST_PENDING: Final = 10_000
_NANO: Final = 10**9


class OutOfMemory(NamedTuple):
    """One container of one pod needed more than ``amount`` bytes."""

    namespace: str
    pod: str
    uid: str
    container: str
    amount: float
    at: datetime


class OutOfMemoryWatch:
    """Collects kills and evictions until ``take``. The most recent ten thousand are kept."""

    def __init__(self, client: Client, pods: Informer[ObservedPod], namespace: str, clock: Clock) -> None:
        self._clock = clock
        self._found: deque[OutOfMemory] = deque(maxlen=_MOST_PENDING)
        pods.add_handlers(name="recommender", on_update=self._pod_changed)
        self._client = client
        self._namespace = namespace

    async def watch_events(self) -> None:
        """Watch Evicted events until cancelled. They are watched apart from what the manager's start waits for:
        without the permission to do so, the recommender works, but does not learn from evictions."""
        events = Informer(
            self._client,
            EVENTS,
            namespace=self._namespace,
            field_selector=EVICTED_PODS,
            clock=self._clock,
        )
        events.add_handlers(name="recommender", on_add=self._event_added)
        await events.run()

    def take(self) -> Sequence[OutOfMemory]:
        """What was found since the last call, in the order in which it was found."""
        taken = tuple(self._found)
        self._found.clear()
        return taken

    def _pod_changed(self, old: ObservedPod, new: ObservedPod) -> None:
        for kill in new_kills(old, new):
            container = next((each for each in new.containers if each.name == kill.container), None)
            if container is not None and container.memory_request > 0:
                metadata = new.metadata
                at = kill.at or self._clock.now()
                self._found.append(
                    OutOfMemory(
                        metadata.namespace, metadata.name, metadata.uid, kill.container, container.memory_request, at
                    )
                )

    def _event_added(self, event: Event, initial: bool) -> None:
        """Evictions from before the watch began may be part of a checkpoint, so they do not count again."""
        if not initial:
            self._found.extend(evictions(event, self._clock.now()))


def evictions(event: Event, now: datetime) -> Sequence[OutOfMemory]:
    """The containers that needed more memory, by the kubelet's annotations of an Evicted event; none if the
    annotations are absent or cannot be read."""
    annotations, pod = event.metadata.annotations, event.involved_object
    lists = [annotations.get(each, "").split(",") for each in (_CONTAINERS, _USAGE, _RESOURCES)]
    containers, usages, resources = lists
    if len(containers) != len(usages) or len(containers) != len(resources):
        return ()
    at = event.last_timestamp or event.metadata.creation_timestamp or now
    found = []
    for container, usage, resource in zip(containers, usages, resources, strict=True):
        if resource != MEMORY or not container:
            continue
        try:
            amount = parse_quantity(usage).nanos / _NANO
        except QuantityError as error:
            logger.warning("Event %s: annotation %s: %s", event.metadata.key, _USAGE, error)
            continue
        found.append(OutOfMemory(pod.namespace, pod.name, pod.uid, container, amount, at))
    return found
