"""Kinds that are only evaluated, such as access reviews, or computed for each request, such as pod metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from koordinator.api.document import Document
from koordinator.cluster.resource import Cause, Column, RequestContext


class NothingStored:
    """The strategy of a kind of which no object is ever kept."""

    def decode(self, obj: Document, old: Document | None = None) -> None: ...

    def prepare_create(self, obj: Document, context: RequestContext) -> None: ...

    def prepare_update(self, obj: Document, old: Document, context: RequestContext) -> None: ...

    def prepare_status_update(self, obj: Document, old: Document, context: RequestContext) -> None: ...

    def validate(self, obj: Document, old: Document | None) -> list[Cause]:
        return []

    def validate_status(self, obj: Document, old: Document) -> list[Cause]:
        return []

    def unknown_fields(self, obj: Document, old: Document | None = None) -> list[str]:
        return []

    def columns(self) -> Sequence[Column]:
        return ()

    def row(self, obj: Document, now: datetime) -> list[Any]:
        return []

    def fields(self, obj: Document) -> Mapping[str, str]:
        return {}
