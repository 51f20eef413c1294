"""The place in a creation where quotas are asked, last of all: what is counted must be what is stored."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from koordinator.api.document import Document
from koordinator.cluster.verbs.target import Target


class Quotas(Protocol):
    """Whoever keeps the quotas."""

    def taken(self, target: Target, obj: Document, *, dry_run: bool) -> AbstractContextManager[None]:
        """Holds what ``obj`` counts while it is stored. Entering raises ApiError 403 when a quota has not enough."""
        ...


class NoQuotas:
    """Of a server that enforces none."""

    def taken(self, target: Target, obj: Document, *, dry_run: bool) -> AbstractContextManager[None]:
        return nullcontext()
