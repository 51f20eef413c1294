"""How much of each quota is used: read from the watch, written in batches, and served at ``/elasticQuota``.

Pods that arrive together are counted together, in one write for all that wait for the same quota. The first of them
counts and writes; those that come during that write are in the next batch, which the first of these counts. So there is
one write at a time for each quota, and no task beside the requests themselves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Protocol

from koordinator.api.annotations import QUOTA_CHILD_REQUEST
from koordinator.api.codec import encode, to_document
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.kinds import ELASTIC_QUOTAS
from koordinator.api.pod import ResourceList
from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.base.errors import KoordinatorError
from koordinator.kube.errors import ApiStatusError, KubeError
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import Client, PatchType
from koordinator.kube.pages import Handler, Request, Response, json_response
from koordinator.manager.options import QuotaUpdateOptions
from koordinator.manager.webhook.elastic_quota.account import Account
from koordinator.manager.webhook.elastic_quota.assume_cache import QuotaAssumeCache
from koordinator.manager.webhook.elastic_quota.settings import QuotaRefused
from koordinator.model.quota_tree.quota import Quota
from koordinator.model.quota_tree.tree import QuotaTree

_BY_NAME = "name of the quota"

logger = logging.getLogger(__name__)

WAIT_SECONDS: Final = 10.0
_FEWEST_RETRIES: Final = 3
PATH: Final = "/elasticQuota"


class StoredAccounts:
    """``Accounts`` over an informer and a client."""

    def __init__(self, client: Client, informers: InformerSet, namespace: str) -> None:
        self._client = client
        self._quotas = informers.informer(
            ELASTIC_QUOTAS, namespace=namespace, absent_is_empty=True, indexes={_BY_NAME: _name}
        )

    def named(self, name: str) -> Sequence[ElasticQuota]:
        return self._quotas.by_index(_BY_NAME, name)

    def latest(self, key: str) -> ElasticQuota | None:
        return self._quotas.get(key)

    async def write_used(self, quota: ElasticQuota, used: ResourceList) -> None:
        metadata = quota.metadata
        text = encode(dict(sorted(used.items()))).decode()
        patch = {"resourceVersion": metadata.resource_version, "annotations": {QUOTA_CHILD_REQUEST: text}}
        await self._client.patch(
            ELASTIC_QUOTAS, metadata.name, {"metadata": patch}, PatchType.MERGE, metadata.namespace
        )

    async def refresh(self, key: str) -> None:
        namespace, _, name = key.rpartition("/")
        await self._client.get(ELASTIC_QUOTAS, name, namespace)


def _name(quota: ElasticQuota) -> tuple[str, ...]:
    return (quota.metadata.name,)


class Accounts(Protocol):
    """Where quotas are read and written."""

    def latest(self, key: str) -> ElasticQuota | None:
        """As last seen or written; None when there is none."""
        ...

    async def write_used(self, quota: ElasticQuota, used: ResourceList) -> None:
        """Raises KubeError, also when the quota has changed since it was read."""
        ...

    async def refresh(self, key: str) -> None:
        """Make ``latest`` what the API server has now. Raises KubeError."""
        ...


@dataclass(eq=False, slots=True)
class _Waiter:
    usage: ResourceList
    decided: bool = False
    refusal: KoordinatorError | None = None

    def decide(self, refusal: KoordinatorError | None = None) -> None:
        self.decided, self.refusal = True, refusal


@dataclass(slots=True)
class _Line:
    """All who wait for one quota."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    uncounted: list[_Waiter] = field(default_factory=list)
    users: int = 0


class QuotaBatches:
    """Counts pods against their quotas, in memory of nothing but who waits."""

    def __init__(self, accounts: Accounts, options: QuotaUpdateOptions, clock: Clock, random: Random) -> None:
        self._accounts = accounts
        self._options = options
        self._clock = clock
        self._random = random
        self._lines: dict[str, _Line] = {}

    async def count(self, key: str, usage: ResourceList) -> None:
        """Returns when the pod is counted and that is stored. Raises QuotaRefused or the error of the API server."""
        line, waiter = self._lines.setdefault(key, _Line()), _Waiter(usage)
        line.uncounted.append(waiter)
        line.users += 1
        try:
            await within(self._clock, WAIT_SECONDS, self._until_decided(key, line, waiter))
        except TimeoutError:
            raise QuotaRefused("Internal error occurred: elastic quota evaluation timed out") from None
        finally:
            line.users -= 1
            # No request waits for it any more: it is not to be counted by others.
            waiter.decided = True
            if waiter in line.uncounted:
                line.uncounted.remove(waiter)
            if not line.users:
                self._lines.pop(key, None)
        if waiter.refusal is not None:
            raise waiter.refusal

    async def _until_decided(self, key: str, line: _Line, waiter: _Waiter) -> None:
        async with line.turn:
            if waiter.decided:
                return
            batch, line.uncounted = line.uncounted, []
            try:
                await self._decide(key, batch)
            finally:
                # A request that gave up does not end the others.
                line.uncounted[:0] = [each for each in batch if not each.decided and each is not waiter]

    async def _decide(self, key: str, batch: Sequence[_Waiter]) -> None:
        retries = max(_FEWEST_RETRIES, self._options.max_retries)
        pauses, failure = _Pauses(self._options, self._random), None
        while True:
            quota = self._accounts.latest(key)
            if quota is None:
                _decide_all(batch, failure or QuotaRefused(f"elastic quota {key} not found"))
                return
            changed, used = _count(quota, batch)
            if not changed:
                return
            retries = min(retries, retries_for(changed, self._options.max_retries))
            try:
                await self._accounts.write_used(quota, used)
            except KubeError as error:
                if retries <= 0:
                    _decide_all(batch, error)
                    return
                failure = error
                await self._before_retry(key, error, pauses)
                retries -= 1
            else:
                _decide_all(batch)
                return

    async def _before_retry(self, key: str, error: KubeError, pauses: _Pauses) -> None:
        if not isinstance(error, ApiStatusError) or not error.is_conflict:
            return
        if seconds := pauses.next():
            await self._clock.sleep(seconds)
        if self._options.conflict_fresh_get:
            try:
                await self._accounts.refresh(key)
            except KubeError as refresh_error:
                logger.warning("elastic quota %s could not be read after a conflict: %s", key, refresh_error)


class _Pauses:
    """Spread the retries of several replicas, within a total for each batch."""

    def __init__(self, options: QuotaUpdateOptions, random: Random) -> None:
        self._longest = options.retry_jitter.total_seconds()
        self._left = options.max_total_jitter.total_seconds()
        self._random = random

    def next(self) -> float:
        if self._longest <= 0 or self._longest > self._left:
            return 0.0
        self._left -= self._longest
        return self._longest / 2 * (1 + self._random.random())


def retries_for(pods: int, most: int) -> int:
    """One more for every doubling of the pods that a write is for."""
    if pods <= 1:
        return _FEWEST_RETRIES
    return min(max(_FEWEST_RETRIES, most), _FEWEST_RETRIES + pods.bit_length() - 1)


def _count(quota: ElasticQuota, batch: Sequence[_Waiter]) -> tuple[int, ResourceList]:
    """How many of the batch change what is used, and what is used then; decides on all others."""
    undecided = [waiter for waiter in batch if not waiter.decided]
    try:
        account = Account.of(quota)
    except QuotaRefused as refused:
        _decide_all(undecided, refused)
        return 0, {}
    changed = 0
    for waiter in undecided:
        try:
            after = account.with_pod(waiter.usage)
        except QuotaRefused as refused:
            waiter.decide(refused)
            continue
        if after is account:
            waiter.decide()
        else:
            account = after
            changed += 1
    return changed, account.used


def _decide_all(batch: Sequence[_Waiter], refusal: KoordinatorError | None = None) -> None:
    for waiter in batch:
        if not waiter.decided:
            waiter.decide(refusal)


def quota_page(quotas: QuotaAssumeCache) -> Handler:
    async def handle(_: Request) -> Response:
        return json_response(quota_summary(quotas.tree()))

    return handle


def quota_summary(tree: QuotaTree) -> dict[str, Any]:
    """Under the names of the original."""
    return {
        "quotaInfoMap": {quota.name: _summary(quota) for quota in tree},
        "quotaHierarchyInfo": tree.hierarchy(),
    }


def _summary(quota: Quota) -> dict[str, Any]:
    return {
        "name": quota.name,
        "parentName": quota.parent,
        "isParent": quota.is_parent,
        "allowLentResource": quota.allows_lending,
        "max": to_document(quota.max),
        "min": to_document(quota.min),
    }
