"""Addresses of simulated pods: one /24 for each node out of 10.128.0.0/9."""

from __future__ import annotations

import ipaddress
from typing import Final

_POD_NETWORK: Final = int(ipaddress.IPv4Address("10.128.0.0"))
_FIRST, _LAST = 1, 254


class PodAddresses:
    """Which address each pod has. Addresses that pods of an earlier run have are known by ``adopt``."""

    def __init__(self) -> None:
        self._of_pod: dict[str, str] = {}
        self._taken: set[str] = set()
        self._next: dict[int, int] = {}

    def adopt(self, uid: str, address: str) -> None:
        """The API shows the pod with this address."""
        if address and uid not in self._of_pod:
            self._of_pod[uid] = address
            self._taken.add(address)

    def take(self, uid: str, node_ordinal: int) -> str:
        """The pod's address: the one that it has, or else one that has been free for longest."""
        if uid in self._of_pod:
            return self._of_pod[uid]
        base = _POD_NETWORK + node_ordinal * 256
        position = self._next.get(node_ordinal, _FIRST)
        for _ in range(_FIRST, _LAST + 1):
            address = str(ipaddress.IPv4Address(base + position))
            position = _FIRST if position == _LAST else position + 1
            if address not in self._taken:
                break
        self._next[node_ordinal] = position
        self.adopt(uid, address)
        return address

    def release(self, uid: str) -> None:
        address = self._of_pod.pop(uid, None)
        if address is not None:
            self._taken.discard(address)
