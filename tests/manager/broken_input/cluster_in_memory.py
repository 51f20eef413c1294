"""What an API server remembers, without the server: it stores any garbage, goes away and comes back on command.

``client_in_memory`` has the client of it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Literal, NamedTuple

from koordinator.api.document import copied
from koordinator.api.kinds import Kind

Document = dict[str, Any]
Change = Literal["ADDED", "MODIFIED", "DELETED"]


class Happened(NamedTuple):
    """One change, for watches."""

    version: int
    plural: str
    change: Change
    document: Document


class ClusterInMemory:
    """``away``: nobody answers, and open watches break. ``writes`` counts what clients changed, by verb and plural."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Document] = {}
        self.history: list[Happened] = []
        self.writes: Counter[tuple[str, str]] = Counter()
        self.requests = 0
        self.away = False
        self.version = 0
        self.changed = asyncio.Event()
        """Set, and replaced, at each change and when the server goes away."""

    def put(self, kind: Kind[Any], document: Document) -> Document:
        """Store a whole document, whatever is in it. Of metadata what a server gives is filled in."""
        metadata = document["metadata"]
        key = (kind.plural, metadata.get("namespace", ""), metadata["name"])
        known = self.objects.get(key)
        self.version += 1
        given = known["metadata"]["uid"] if known else f"uid-{metadata['name']}-{self.version}"
        stored: Document = {
            **document,
            "metadata": {
                "uid": given,
                **metadata,
                "generation": self.version,
                "resourceVersion": str(self.version),
            },
        }
        self.objects[key] = stored
        self._tell(kind.plural, "MODIFIED" if known else "ADDED", stored)
        return stored

    def remove(self, kind: Kind[Any], name: str, namespace: str = "") -> None:
        gone = copied(self.objects.pop((kind.plural, namespace, name)))
        self.version += 1
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._tell(kind.plural, "DELETED", gone)

    def found(self, kind: Kind[Any], name: str, namespace: str = "") -> Document | None:
        return self.objects.get((kind.plural, namespace, name))

    def all(self, kind: Kind[Any], namespace: str = "", field_selector: str = "") -> list[Document]:
        return [
            document
            for (plural, _, _), document in self.objects.items()
            if plural == kind.plural and is_selected(document, namespace, field_selector)
        ]

    def go_away(self) -> None:
        self.away = True
        self._wake()

    def come_back(self) -> None:
        self.away = False

    def _tell(self, plural: str, change: Change, document: Document) -> None:
        self.history.append(Happened(self.version, plural, change, copied(document)))
        self._wake()

    def _wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


def is_selected(document: Document, namespace: str, field_selector: str) -> bool:
    """``field_selector``: terms ``path=value``."""
    if namespace and document["metadata"].get("namespace") != namespace:
        return False
    return all(_is_equal(document, term) for term in field_selector.split(",") if term)


def _is_equal(document: Document, term: str) -> bool:
    path, _, wanted = term.partition("=")
    value: Any = document
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return (value or "") == wanted
