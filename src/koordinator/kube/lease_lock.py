"""The Lease that electors contend for: read whole, written with the resourceVersion that it was read at.

It is replaced (PUT), not patched, as client-go does: the roles that clusters grant for leases have ``update`` only.
"""

from __future__ import annotations

import msgspec

from koordinator.api.kinds import LEASES
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Lease, LeaseSpec
from koordinator.kube.interface import Client


class LeaseLock:
    """One Lease by name; remembers the version that was read or written last."""

    def __init__(self, client: Client, name: str, namespace: str) -> None:
        self._client = client
        self._lease = Lease(
            api_version=LEASES.api_version, kind=LEASES.name, metadata=ObjectMeta(name=name, namespace=namespace)
        )

    def __str__(self) -> str:
        return self._lease.metadata.key

    @property
    def lease(self) -> Lease:
        return self._lease

    async def read(self) -> LeaseSpec:
        """The lease as it is now. Raises ApiStatusError (not found among others) or TransportError."""
        metadata = self._lease.metadata
        self._lease = await self._client.get(LEASES, metadata.name, metadata.namespace)
        return self._lease.spec

    async def create(self, spec: LeaseSpec) -> None:
        """Make the lease. Raises ApiStatusError when somebody else was faster."""
        name, namespace = self._lease.metadata.name, self._lease.metadata.namespace
        lease = Lease(
            api_version=LEASES.api_version,
            kind=LEASES.name,
            metadata=ObjectMeta(name=name, namespace=namespace),
            spec=spec,
        )
        self._lease = await self._client.create(LEASES, lease, namespace)

    async def update(self, spec: LeaseSpec) -> None:
        """Write the lease if nobody has since it was last seen. Raises ApiStatusError (conflict among others)."""
        metadata = self._lease.metadata
        lease = msgspec.structs.replace(self._lease, api_version=LEASES.api_version, kind=LEASES.name, spec=spec)
        self._lease = await self._client.update(LEASES, lease, metadata.name, metadata.namespace)
