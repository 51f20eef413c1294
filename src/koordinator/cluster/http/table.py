"""``kubectl get``: rows of cells that the kind's strategy makes, with as much of the object as was asked for."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

import msgspec

from koordinator.api.document import Document
from koordinator.cluster.resource import Resource
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.verbs.encoding import decode
from koordinator.cluster.verbs.list import ObjectList

_encode = msgspec.json.Encoder().encode


class TableRenderer:
    """Of a watch only the first event names the columns, so one renderer serves one answer."""

    def __init__(self, resource: Resource, include_object: str, now: datetime) -> None:
        self._resource = resource
        self._include = include_object or "Metadata"
        self._now = now
        self._columns_sent = False

    def one(self, stored: Stored) -> bytes:
        return _encode(self._table({"resourceVersion": str(stored.revision)}, [self._row(stored)]))

    def many(self, found: ObjectList) -> bytes:
        return _encode(self._table(found.metadata(), [self._row(stored) for stored in found.items]))

    def event_object(self, stored: Stored) -> bytes:
        return self.one(stored)

    def bookmark(self, metadata: Document) -> bytes:
        return _encode(self._table(metadata, []))

    def _table(self, metadata: Document, rows: list[Document]) -> Document:
        columns = [] if self._columns_sent else [asdict(column) for column in self._resource.strategy.columns()]
        self._columns_sent = True
        return {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": columns,
            "rows": rows,
        }

    def _row(self, stored: Stored) -> Document:
        obj = decode(self._resource, stored)
        row: Document = {"cells": self._resource.strategy.row(obj, self._now)}
        if self._include == "Object":
            row["object"] = obj
        elif self._include == "Metadata":
            row["object"] = {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": obj["metadata"],
            }
        return row
