"""Garbage: values that are of the wrong type, out of range, or no text of any format; and where to put it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st

from koordinator.api.document import Document, copied
from tests.examples import examples

Path = tuple[str | int, ...]

QUANTITIES = (
    *("-5", "abc", "NaN", "Inf", "-Infinity", "", " ", "1e30", "-1e30", "1e400", "1e-400", "0x10", "１", "1.5Mi", "٣"),
    *("9223372036854775808", "-9223372036854775809", "99999999999999999999999Ei", "1n", "0.0000000001", "5m0s"),
)
TIMES = ("9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "2026-13-01T00:00:00Z", "yesterday", "2026-01-01T00:00:00")
TEXTS = (
    *QUANTITIES,
    *TIMES,
    "{",
    "[",
    "null",
    "{}",
    "[]",
    '"',
    "[" * 5000,
    "\x00",
    "a b",
    "true",
    "9" * 5000,
    "9" * 5000 + "%",
    "-" * 300,
    "𒀀",
)
NUMBERS = (0, -1, 2**31, 2**63, -(2**63) - 1, 10**30, 1e308, -1e308, 1e-300, 0.5)
LEAVES = st.sampled_from((None, True, False, *NUMBERS, *TEXTS)) | st.integers() | st.text(max_size=8)
TEXT = st.sampled_from(TEXTS) | st.text(max_size=8)
GARBAGE = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["cpu", "memory", "a"]), inner),
    max_leaves=5,
)
FEW = settings(max_examples=examples(5), phases=(Phase.explicit, Phase.generate))
"""Not shrunk: an example takes long, and is small as it is."""


def broken(document: Document, changes: list[tuple[Path, Any]]) -> Document:
    for place, value in changes:
        document = replaced(document, place, value)
    return document


def changes_of(document: Document) -> st.SearchStrategy[list[tuple[Path, Any]]]:
    """Texts mostly give way to other texts, since API servers see to it that they are texts."""

    def at(place: Path) -> st.SearchStrategy[tuple[Path, Any]]:
        is_text = isinstance(found(document, place), str)
        return st.tuples(st.just(place), st.one_of(TEXT, TEXT, TEXT, GARBAGE) if is_text else GARBAGE)

    return st.lists(st.sampled_from(list(places(document))).flatmap(at), min_size=1, max_size=3)


def typed_changes_of(document: Document) -> st.SearchStrategy[list[tuple[Path, Any]]]:
    """What an API server lets through of kinds whose types it knows: texts for texts and nothing else."""
    texts = [place for place in places(document) if isinstance(found(document, place), str)]
    return st.lists(st.tuples(st.sampled_from(texts), TEXT), min_size=1, max_size=3)


def spec_changes_of(document: Document) -> st.SearchStrategy[list[tuple[Path, Any]]]:
    """What it lets through where a schema knows nothing of the spec: anything in it, and texts in metadata."""
    in_spec = st.tuples(
        st.sampled_from([place for place in places(document) if place[0] == "spec" and place[1:]]), GARBAGE
    )
    return st.lists(in_spec, min_size=1, max_size=3) | typed_changes_of(document)


def places(document: Any, at: Path = ()) -> Iterator[Path]:
    """Every place of a document, but those that say which object it is."""
    if at and at not in (("metadata",), ("metadata", "name"), ("metadata", "namespace")):
        yield at
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in items:
        yield from places(value, (*at, key))


def found(document: Document, place: Path) -> Any:
    inner: Any = document
    for key in place:
        inner = inner[key]
    return inner


def replaced(document: Document, place: Path, value: Any) -> Document:
    """With ``value`` there, if the place is still there."""
    changed: Document = copied(document)
    try:
        found(changed, place[:-1])[place[-1]] = value
    except (TypeError, KeyError, IndexError, AttributeError):
        return document
    return changed
