"""The terms of the pods on nodes: how many pods carry each of them on which row, and which may match given labels."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from koordinator.scheduler.plugins.inter_pod_affinity.terms import Term

_NOWHERE: Final[Mapping[int, int]] = MappingProxyType({})
_NONE: Final[Mapping[Term, int]] = MappingProxyType({})
_CHANGES_KEPT: Final = 1024
_NEEDED: Final = ("In", "Exists")
_ANY: Final = ""
"""The bucket of terms that ask for no label in particular; no label has an empty key."""


class ExistingTerms:
    """A term is *live* while some pod on a node carries it."""

    def __init__(self) -> None:
        self._carried: dict[str, tuple[int, tuple[Term, ...]]] = {}
        self._carriers: dict[int, set[str]] = {}
        self._on_row: dict[int, dict[Term, int]] = {}
        self._rows: dict[Term, dict[int, int]] = {}
        self._buckets: dict[Hashable, dict[Term, None]] = {}
        self._bucket_of: dict[Term, Hashable] = {}
        self._changes: list[Term] = []
        self._changes_after = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def version(self) -> int:
        """Grows whenever a term becomes live or stops being so."""
        return self._changes_after + len(self._changes)

    def is_live(self, term: Term) -> bool:
        return term in self._rows

    def rows(self, term: Term) -> Mapping[int, int]:
        """Row -> pods there that carry the term."""
        return self._rows.get(term, _NOWHERE)

    def on_row(self, row: int) -> Mapping[Term, int]:
        """Term -> pods on ``row`` that carry it."""
        return self._on_row.get(row, _NONE)

    def changes_since(self, version: int) -> Sequence[Term] | None:
        """The terms that became live or stopped being so after ``version``; None when that is too long ago."""
        first = version - self._changes_after
        return self._changes[first:] if first >= 0 else None

    def candidates(self, labels: Mapping[str, str]) -> Iterator[Term]:
        """Live terms that may match ``labels``: all that do, and some that do not."""
        keys: list[Hashable] = [_ANY, *labels, *labels.items()]
        for key in keys:
            yield from self._buckets.get(key, ())

    def set(self, row: int, uid: str, terms: tuple[Term, ...]) -> bool:
        """The pod on ``row`` carries ``terms``; returns whether it carried others there until now."""
        before = self._carried.get(uid)
        if before == (row, terms):
            return False
        self.remove(uid)
        if terms:
            self._carried[uid] = row, terms
            self._carriers.setdefault(row, set()).add(uid)
            for term in terms:
                self._count(row, term)
        return before is not None

    def remove(self, uid: str) -> None:
        """The pod is no longer on a node."""
        known = self._carried.pop(uid, None)
        if known is None:
            return
        row, terms = known
        carriers = self._carriers[row]
        carriers.discard(uid)
        if not carriers:
            del self._carriers[row]
        for term in terms:
            self._uncount(row, term)

    def clear(self, row: int) -> None:
        """No pod counts on ``row`` any more."""
        for uid in tuple(self._carriers.get(row, ())):
            self.remove(uid)

    def _count(self, row: int, term: Term) -> None:
        rows = self._rows.get(term)
        if rows is None:
            rows = self._rows[term] = {}
            self._list(term)
        rows[row] = rows.get(row, 0) + 1
        on_row = self._on_row.setdefault(row, {})
        on_row[term] = on_row.get(term, 0) + 1

    def _uncount(self, row: int, term: Term) -> None:
        rows, on_row = self._rows[term], self._on_row[row]
        rows[row] -= 1
        on_row[term] -= 1
        if not rows[row]:
            del rows[row]
            del on_row[term]
        if not on_row:
            del self._on_row[row]
        if not rows:
            del self._rows[term]
            self._unlist(term)

    def _list(self, term: Term) -> None:
        # The emptiest bucket: of several labels that the term asks for, some are on every pod.
        keys = list(needed_labels(term)) or [_ANY]
        key = min(keys, key=lambda each: len(self._buckets.get(each, ())))
        self._bucket_of[term] = key
        self._buckets.setdefault(key, {})[term] = None
        self._note(term)

    def _unlist(self, term: Term) -> None:
        key = self._bucket_of.pop(term)
        bucket = self._buckets[key]
        del bucket[term]
        if not bucket:
            del self._buckets[key]
        self._note(term)

    def _note(self, term: Term) -> None:
        self._changes.append(term)
        if len(self._changes) > _CHANGES_KEPT:
            half = len(self._changes) // 2
            del self._changes[:half]
            self._changes_after += half


def needed_labels(term: Term) -> Iterable[Hashable]:
    """What any match of the term has: labels as (key, value), or if it asks for none exactly, keys."""
    exact = tuple(term.selector.required.items())
    return exact or tuple(each.key for each in term.selector.others if each.operator in _NEEDED)
