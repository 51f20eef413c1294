"""What the recommender has learned outlives it: a ConfigMap for each Recommendation, with one key for each container.

    {"version": "v1", "cpu": {…}, "memory": {…}, "firstSampleStart": …, "lastSampleStart": …, "totalSamplesCount": 1440,
     "targetHash": "…", "lastUpdateTime": …}

The ConfigMap belongs to the Recommendation, so that it is deleted with it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from koordinator.api.codec import DecodeError, decode, encode
from koordinator.api.core import ConfigMap
from koordinator.api.kinds import CONFIG_MAPS, RECOMMENDATIONS
from koordinator.api.meta import WireStruct
from koordinator.api.recommendation import CHECKPOINT, Recommendation
from koordinator.api.timestamps import Time
from koordinator.base.clock import Clock
from koordinator.base.metrics import Metrics
from koordinator.kube.errors import ApiStatusError, KubeError
from koordinator.kube.interface import Client, PatchType
from koordinator.manager.recommender.container_model import ContainerModel, History
from koordinator.manager.recommender.options import RecommenderOptions
from koordinator.manager.recommender.tracked import Tracked
from koordinator.model.decaying_histogram import CheckpointError
from koordinator.model.kept_histograms import ahead, moved, restore
from koordinator.model.stored_histogram import StoredHistogram

logger = logging.getLogger(__name__)

_VERSION: Final = "v1"
"""Of the histograms' buckets: other buckets require another version."""
_PREFIX: Final = "koord-recommendation-"
_LONGEST_NAME: Final = 253
_HASH_DIGITS: Final = 16
_PAGE: Final = 200
_HEAVIEST: Final = 1000.0
"""In cores: no sample of CPU weighs more than its container requests, and none of memory more than 1."""
_HARMLESS: Final = timedelta(hours=1)
"""So far ahead, a sample weighs hardly more than it should."""


class _StoredModel(WireStruct):
    version: str = ""
    cpu: StoredHistogram | None = None
    memory: StoredHistogram | None = None
    first_sample_start: Time | None = None
    last_sample_start: Time | None = None
    total_samples_count: int = 0
    target_hash: str = ""
    last_update_time: Time | None = None


class Checkpoints:
    """Reads all checkpoints when this replica begins to lead, and writes those that are due."""

    def __init__(self, client: Client, options: RecommenderOptions, namespace: str, clock: Clock, metrics: Metrics):
        self._client = client
        self._options = options
        self._namespace = namespace
        self._clock = clock
        self._stored: dict[tuple[str, str], ConfigMap] | None = None
        """(namespace, name) -> the checkpoint that was read and is not restored yet; None before they were read."""
        self._are_permitted = True
        self._writes = metrics.counter(
            "koord_manager_recommender_checkpoint_writes_total",
            "Checkpoints of Recommendations that were written, by result",
            ("result",),
        )

    def begin(self) -> None:
        """This replica leads from now on: another one may have written checkpoints since it last did."""
        self._stored, self._are_permitted = None, True

    async def load(self) -> None:
        """Read all checkpoints, unless that has been done. Raises KubeError: learning anew would overwrite them.

        Without the permission to list ConfigMaps, nothing is read and nothing is written.
        """
        if self._stored is not None or not self._are_permitted:
            return
        found: dict[tuple[str, str], ConfigMap] = {}
        token = ""
        while True:
            try:
                page = await self._client.list(
                    CONFIG_MAPS,
                    self._namespace,
                    label_selector=f"{CHECKPOINT}=true",
                    limit=_PAGE,
                    continue_token=token,
                )
            except ApiStatusError as error:
                if not error.is_forbidden:
                    raise
                self._are_permitted = False
                logger.warning("recommender: no checkpoints are kept, a restart begins anew: %s", error)
                return
            found |= {(each.metadata.namespace, each.metadata.name): each for each in page.items}
            token = page.continue_token
            if not token:
                break
        self._stored = found
        logger.info("recommender: %d checkpoints read", len(found))

    def restore(self, tracked: Tracked) -> bool:
        """Fill the models of a Recommendation from its checkpoint. Returns whether it had one for this target."""
        metadata = tracked.recommendation.metadata
        if self._stored is None:
            return False
        stored = self._stored.pop((metadata.namespace, checkpoint_name(metadata.name)), None)
        if stored is None:
            return False
        tracked.stored = frozenset(stored.data)
        if all(owner.uid != metadata.uid for owner in stored.metadata.owner_references):
            return False
        for container, text in stored.data.items():
            try:
                model = _restored(text, tracked, self._options, self._clock.now())
            except (DecodeError, ValueError, OverflowError, CheckpointError) as error:
                logger.warning(
                    "recommender: ConfigMap %s, key %s cannot be used, the container is learned anew: %s",
                    *(stored.metadata.key, container, error),
                )
                continue
            tracked.models[container] = model
            if tracked.stored_at is None:
                tracked.stored_at = self._clock.monotonic()
        return bool(tracked.models)

    async def write(self, tracked: Sequence[Tracked]) -> None:
        """Write the checkpoints that are due, those that were written longest ago first, until the time is over."""
        if self._stored is None:
            return
        started = self._clock.monotonic()
        due = [each for each in tracked if self._is_due(each, started)]
        due.sort(key=lambda each: (each.stored_at is not None, each.stored_at or 0))
        for number, each in enumerate(due):
            elapsed = self._clock.monotonic() - started
            if number >= self._options.min_checkpoints and elapsed > self._options.checkpoints_timeout.total_seconds():
                logger.info("recommender: %d checkpoints wait for the next pass", len(due) - number)
                break
            await self._write(each, started)

    def _is_due(self, tracked: Tracked, now: float) -> bool:
        last = tracked.last_sample
        if last is None or tracked.is_fetching_history:
            return False
        return tracked.stored_at is None or now - tracked.stored_at >= self._options.checkpoint_interval.total_seconds()

    async def _write(self, tracked: Tracked, now: float) -> None:
        metadata = tracked.recommendation.metadata
        body = checkpoint(tracked, self._clock.now())
        try:
            await self._put(metadata.namespace, body, tracked.stored)
        except KubeError as error:
            self._writes.labels("failure").inc()
            logger.warning("recommender: the checkpoint of %s was not written: %s", metadata.key, error)
            return
        tracked.stored_at, tracked.stored = now, frozenset(body["data"])
        self._writes.labels("success").inc()

    async def _put(self, namespace: str, body: Mapping[str, Any], stored: frozenset[str]) -> None:
        """Write the ConfigMap over what is there, or create it. Keys that are only in ``stored`` are deleted."""
        name, data = body["metadata"]["name"], body["data"]
        patch = {**body, "data": {**dict.fromkeys(stored - data.keys()), **data}}
        try:
            await self._client.patch(CONFIG_MAPS, name, patch, PatchType.MERGE, namespace)
        except ApiStatusError as error:
            if not error.is_not_found:
                raise
            await self._client.create(CONFIG_MAPS, body, namespace)


def checkpoint_name(name: str) -> str:
    """The name of the ConfigMap. A long name is cut, and ends in a hash of the whole."""
    whole = f"{_PREFIX}{name}"
    if len(whole) <= _LONGEST_NAME:
        return whole
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH_DIGITS]
    return f"{whole[: _LONGEST_NAME - len(digest) - 1].rstrip('.-')}-{digest}"


def checkpoint(tracked: Tracked, now: datetime) -> Mapping[str, Any]:
    """The ConfigMap."""
    owner: Recommendation = tracked.recommendation
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": checkpoint_name(owner.metadata.name),
            "namespace": owner.metadata.namespace,
            "labels": {CHECKPOINT: "true"},
            "ownerReferences": [
                {
                    "apiVersion": RECOMMENDATIONS.api_version,
                    "kind": RECOMMENDATIONS.name,
                    "name": owner.metadata.name,
                    "uid": owner.metadata.uid,
                }
            ],
        },
        "data": {
            name: encode(_stored(model, tracked, now)).decode()
            for name, model in sorted(tracked.models.items())
            if not model.is_empty
        },
    }


def _stored(model: ContainerModel, tracked: Tracked, now: datetime) -> _StoredModel:
    """By the wall clock, as all that is in objects."""
    back = -tracked.time.offset
    history = model.history.moved(back)
    return _StoredModel(
        version=_VERSION,
        cpu=StoredHistogram.of(moved(model.cpu.checkpoint(), back)),
        memory=StoredHistogram.of(moved(model.memory_without_open_intervals().checkpoint(), back)),
        first_sample_start=history.first,
        last_sample_start=history.last,
        total_samples_count=history.count,
        target_hash=tracked.target_hash,
        last_update_time=now,
    )


def _restored(text: str, tracked: Tracked, options: RecommenderOptions, now: datetime) -> ContainerModel:
    """Raises DecodeError, ValueError, OverflowError or CheckpointError."""
    stored = decode(text, _StoredModel)
    if stored.version != _VERSION:
        raise ValueError(f"version {stored.version!r}: {_VERSION} is expected")
    if stored.target_hash != tracked.target_hash:
        raise ValueError("it is of another target")
    if stored.cpu is None or stored.memory is None:
        raise ValueError("cpu and memory are required")
    made, last = stored.last_update_time or now, stored.last_sample_start
    if last is not None and last - made > _HARMLESS:
        raise CheckpointError(f"lastSampleStart is {last}: some of the samples are of the future")
    by = tracked.time.offset - ahead(made, now)
    model = ContainerModel(options.model)
    most = max(stored.total_samples_count, 1) * _HEAVIEST
    restore(model.cpu, stored.cpu.checkpoint(), made, by, most)
    # Peaks are dated to the end of their interval.
    restore(model.memory, stored.memory.checkpoint(), made + options.model.memory_interval, by, most)
    model.history = History(stored.first_sample_start, last, stored.total_samples_count).moved(by)
    model.restored_until = model.history.last
    model.last_sample = model.history.last or made + by
    return model
