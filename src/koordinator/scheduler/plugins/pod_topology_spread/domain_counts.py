"""Matching pods by domain for one constraint, kept current row by row."""

from __future__ import annotations

from typing import Final

import numpy as np

from koordinator.scheduler.engine.columns import Ints, Mask, Rows
from koordinator.scheduler.plugins.pod_topology_spread.topologies import NO_DOMAIN

ABSENT: Final = 2**31 - 1
"""What a domain without any node that counts has in ``least``; larger than any number of pods."""


class DomainCounts:
    """A row adds its pods to its domain if its node counts. Arrays by domain have at least one place more than there
    are domains, so that a row without domain (-1) finds a neutral value at the end."""

    def __init__(self, domain: Rows, counts: Mask, pods: Ints, size: int) -> None:
        """``domain``, ``counts`` (whether the node counts) and ``pods`` by row; ``size`` of the topology."""
        self.domain = domain.copy()
        """The domain of each row."""
        self._counts = counts
        places = 2 * size + 16
        counting = np.flatnonzero(counts)
        self.nodes: Ints = np.bincount(domain[counting], minlength=places).astype(np.int64)
        """Nodes that count, by domain."""
        self.pods: Ints = np.bincount(domain[counting], weights=pods[counting], minlength=places).astype(np.int64)
        """Pods on them, by domain."""
        self._or_absent: Ints = np.where(self.nodes > 0, self.pods, ABSENT)
        self.present = int(np.count_nonzero(self.nodes))
        """Domains with a node that counts."""

    @property
    def least(self) -> int:
        """The pods of the present domain that has the fewest; ABSENT when there is none."""
        return int(self._or_absent.min())

    @property
    def emptiest(self) -> int:
        """The number of a domain that has ``least`` pods."""
        return int(self._or_absent.argmin())

    def add(self, row: int, pods: int) -> int | None:
        """The row has so many pods more; returns the domain that this changes."""
        if not self._counts.item(row):
            return None
        domain = self.domain.item(row)
        self._add(domain, 0, pods)
        return domain

    def move(self, row: int, domain: int, counts: bool, pods: int) -> list[int]:
        """The row, on which ``pods`` are, is in this domain now and counts or not; returns the domains that this
        changes."""
        before, counted = self.domain.item(row), self._counts.item(row)
        if before == domain and counted == counts:
            return []
        if domain >= self.nodes.shape[0] - 1:
            self._grow(domain)
        self.domain[row] = domain
        self._counts[row] = counts
        if counted:
            self._add(before, -1, -pods)
        if counts:
            self._add(domain, 1, pods)
        return [number for number, involved in ((before, counted), (domain, counts)) if involved]

    def _add(self, domain: int, nodes: int, pods: int) -> None:
        had, now = self.nodes.item(domain), self.nodes.item(domain) + nodes
        self.nodes[domain] = now
        self.pods[domain] += pods
        self._or_absent[domain] = self.pods[domain] if now else ABSENT
        self.present += (now > 0) - (had > 0)

    def _grow(self, domain: int) -> None:
        more = np.zeros(domain + 16, dtype=np.int64)
        self.nodes = np.concatenate([self.nodes, more])
        self.pods = np.concatenate([self.pods, more])
        self._or_absent = np.concatenate([self._or_absent, np.full_like(more, ABSENT)])

    def widen(self, capacity: int) -> None:
        """Make room for rows."""
        more = capacity - self.domain.shape[0]
        self.domain = np.concatenate([self.domain, np.full(more, NO_DOMAIN, dtype=np.intp)])
        self._counts = np.concatenate([self._counts, np.zeros(more, dtype=np.bool_)])
