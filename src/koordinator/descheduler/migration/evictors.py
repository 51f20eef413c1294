"""How a pod is evicted: by the Eviction API, by deletion, or by a label on which another program evicts it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from koordinator.api import annotations as annotation_keys
from koordinator.api.codec import encode, to_document
from koordinator.api.kinds import PODS
from koordinator.api.modification import EVICTED, Cause, Modification
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import DeleteOptions
from koordinator.api.timestamps import format_time
from koordinator.base.deadline import within
from koordinator.base.errors import KoordinatorError
from koordinator.base.token_bucket import TokenBucket
from koordinator.descheduler.framework import Handle
from koordinator.descheduler.metrics import EvictionMetrics
from koordinator.descheduler.migration.arguments import DELETE, SOFT_EVICTION
from koordinator.kube.errors import ApiStatusError, KubeError
from koordinator.kube.event_series import reference_to
from koordinator.kube.interface import PatchType
from koordinator.kube.pod_eviction import delete_options, evict

_DEADLINE: Final = 20.0
"""Seconds for one request: the client waits by itself where a server says for how long."""
_SOFT_TRIES: Final = 5


class EvictionRefusedError(KoordinatorError):
    """A pod was not evicted; the text says why."""


class PodEvictor:
    """Evicts pods of migration jobs, each of them by its uid, so that no successor is hit."""

    def __init__(self, handle: Handle, bucket: TokenBucket) -> None:
        self._client, self._recorder, self._clock = handle.client, handle.recorder, handle.clock
        self._bucket = bucket
        self._metrics = EvictionMetrics(handle.metrics)

    async def evict(
        self, pod: Pod, policy: str, options: DeleteOptions | None, trigger: str, reason: str, *, actor: str
    ) -> bool:
        """Evict the pod for ``actor``; False if it was on its way out already. Raises EvictionRefusedError."""
        current = await self._current(pod)
        if current is None or current.metadata.deletion_timestamp is not None:
            return False
        if policy == SOFT_EVICTION and annotation_keys.SOFT_EVICTION in current.metadata.annotations:
            return False
        if not self._bucket.take():
            raise EvictionRefusedError("TooManyEvictions")
        try:
            await within(self._clock, _DEADLINE, self._send(current, policy, options, trigger, reason))
        except (KubeError, TimeoutError) as error:
            self._metrics.count("error", trigger, pod)
            raise EvictionRefusedError(_text(error)) from error
        self._metrics.count("success", trigger, pod)
        note = f'Pod evicted from node "{pod.spec.node_name}" by the reason "{reason}"'
        record = Modification(
            action=EVICTED,
            actor=actor,
            node=pod.spec.node_name,
            cause=Cause(code=trigger or policy, text=reason),
        )
        self._recorder.event(reference_to(PODS, pod), "Normal", "Descheduled", "Migrating", note, modification=record)
        return True

    async def _current(self, pod: Pod) -> Pod | None:
        """The pod as the API server has it, which no cache of ours can be behind."""
        metadata = pod.metadata
        try:
            current = await within(self._clock, _DEADLINE, self._client.get(PODS, metadata.name, metadata.namespace))
        except (KubeError, TimeoutError) as error:
            if isinstance(error, ApiStatusError) and error.is_not_found:
                return None
            raise EvictionRefusedError(_text(error)) from error
        return current if current.metadata.uid == metadata.uid else None

    async def _send(self, pod: Pod, policy: str, options: DeleteOptions | None, trigger: str, reason: str) -> None:
        if policy == SOFT_EVICTION:
            await self._annotate(pod, _soft_eviction(self._clock.now(), options, trigger, reason))
            return
        metadata = pod.metadata
        given: dict[str, Any] = to_document(options) if options is not None else {}
        if policy == DELETE:
            body = encode(delete_options(metadata, given))
            await self._client.raw("DELETE", PODS.path(metadata.namespace, metadata.name), body)
        else:
            await evict(self._client, metadata, given)

    async def _annotate(self, pod: Pod, value: str) -> None:
        patch = {"metadata": {"uid": pod.metadata.uid, "annotations": {annotation_keys.SOFT_EVICTION: value}}}
        for tries_left in reversed(range(_SOFT_TRIES)):
            try:
                await self._client.patch(PODS, pod.metadata.name, patch, PatchType.MERGE, pod.metadata.namespace)
            except ApiStatusError as error:
                if not tries_left or not (error.is_conflict or error.is_too_many_requests):
                    raise
            else:
                return


def _soft_eviction(now: datetime, options: DeleteOptions | None, trigger: str, reason: str) -> str:
    """The value of the annotation soft-eviction."""
    members = {
        "timestamp": format_time(now),
        "deleteOptions": to_document(options) if options is not None else None,
        "initiator": trigger,
        "reason": reason,
    }
    return encode({name: value for name, value in members.items() if value}).decode()


def _text(error: Exception) -> str:
    if isinstance(error, ApiStatusError):
        return error.message or str(error)
    return str(error) or f"no response within {_DEADLINE:g}s"
