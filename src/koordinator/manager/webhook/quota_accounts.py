"""Quotas as the watch shows them, or newer where this process has written them itself; written by patches."""

from __future__ import annotations

from collections.abc import Sequence

from koordinator.api.annotations import QUOTA_CHILD_REQUEST
from koordinator.api.codec import encode
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.kinds import ELASTIC_QUOTAS
from koordinator.api.pod import ResourceList
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import Client, PatchType

_BY_NAME = "name of the quota"


class StoredAccounts:
    """``Accounts`` over an informer and a client."""

    def __init__(self, client: Client, informers: InformerSet, namespace: str) -> None:
        self._client = client
        self._quotas = informers.informer(
            ELASTIC_QUOTAS, namespace=namespace, absent_is_empty=True, indexes={_BY_NAME: _name}
        )
        self._written: dict[str, ElasticQuota] = {}
        self._quotas.add_handlers(name="quota-accounts", on_delete=self._forget)

    def named(self, name: str) -> Sequence[ElasticQuota]:
        return self._quotas.by_index(_BY_NAME, name)

    def latest(self, key: str) -> ElasticQuota | None:
        seen, written = self._quotas.get(key), self._written.get(key)
        if seen is not None and written is not None and _version(seen) < _version(written):
            return written
        self._written.pop(key, None)
        return seen

    async def write_used(self, quota: ElasticQuota, used: ResourceList) -> None:
        metadata = quota.metadata
        text = encode(dict(sorted(used.items()))).decode()
        patch = {"resourceVersion": metadata.resource_version, "annotations": {QUOTA_CHILD_REQUEST: text}}
        self._written[metadata.key] = await self._client.patch(
            ELASTIC_QUOTAS, metadata.name, {"metadata": patch}, PatchType.MERGE, metadata.namespace
        )

    async def refresh(self, key: str) -> None:
        namespace, _, name = key.rpartition("/")
        self._written[key] = await self._client.get(ELASTIC_QUOTAS, name, namespace)

    def _forget(self, quota: ElasticQuota) -> None:
        self._written.pop(quota.metadata.key, None)


def _name(quota: ElasticQuota) -> tuple[str, ...]:
    return (quota.metadata.name,)


def _version(quota: ElasticQuota) -> int:
    return int(quota.metadata.resource_version)
