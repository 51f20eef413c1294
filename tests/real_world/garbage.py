"""Garbage: values that are of the wrong type, out of range, or no text of any format; and where to put it.

All of it is drawn from one ``Random``, so that a number says which garbage it was: hypothesis draws the number, the
tests of ``tests/fuzz`` count it up. What is changed is always a sound document, text or message, since a reader gets
far into one that is nearly sound.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any, Final

import yaml
from hypothesis import Phase, settings
from hypothesis import strategies as st

from koordinator.api.document import Document, copied
from tests.examples import examples

Path = tuple[str | int, ...]

QUANTITIES: Final = (
    *("-5", "abc", "NaN", "Inf", "-Infinity", "", " ", "1e30", "-1e30", "1e400", "1e-400", "0x10", "１", "1.5Mi", "٣"),
    *("9223372036854775808", "-9223372036854775809", "99999999999999999999999Ei", "1n", "0.0000000001", "5m0s"),
    *("1e99999", "-3", "0.0000000001m", "-0", "1_000", "+5", "5 ", "1Ki1", "100%", "-1%", "0"),
)
TIMES: Final = (
    *("9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "2026-13-01T00:00:00Z", "yesterday", "2026-01-01T00:00:00"),
    *("0000-00-00T00:00:00Z", "2016-12-31T23:59:60Z", "2026-01-01T00:00:00+99:99", "9999-12-31T23:59:59-23:59"),
    *("-1h", "9999999999h", "1e9s", "292y", "1h1h", "0s"),
)
CPU_LISTS: Final = ("0-999999999", "7-3", "-1", "0,,1", "0-", "0-3:2/4", "1," * 3000, "９")
SYNTAX: Final = (
    *("{", "[", "null", "{}", "[]", '"', "[" * 5000, '{"a":' * 3000, "\x00", "\x1b[2J\r\n", "a b", "true", "=", "a=b"),
    *("9" * 5000, "9" * 5000 + "%", "-" * 300, "𒀀", "\u202e\u2028", "../../etc/passwd", "x" * 20000, '{"a":1,"a":[]}'),
    *("(a+)+$", "a" * 64, "A/b/c", "max", "*", "!", "%s%n", "kubernetes.io/batch-cpu", '{"cpu":NaN}', '{"cpu":1e999}'),
)
YAML: Final = (
    *("a: 2026-13-01", "[" * 3000, "&a [*a]", "? [a]\n: b", "<<: 5", "!!timestamp x", "!!int x", "a: !!float x"),
    *("!!python/object:os.system {}", "!!binary x", "a: 0o9", "a: 1_:_", "a: 190:20:30", "\t", "%YAML 9\n---\n"),
    "--- a\n--- b",
    "a: &a [x, x, x, x, x, x, x, x]\n"
    + "".join(f"{new}: &{new} [{', '.join([f'*{old}'] * 8)}]\n" for old, new in pairwise("abcdefghij")),
    "a: " + "9" * 5000,
    "a: !!set {[]}",
)
TEXTS: Final = (*QUANTITIES, *TIMES, *CPU_LISTS, *SYNTAX)
NUMBERS: Final = (
    *(0, -1, 1, 100, 2**31 - 1, 2**31, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**30),
    *(1e308, -1e308, 1e-300, 0.5, -0.0, 1.0, 70000),
)
_KEYS: Final = ("cpu", "memory", "a", "", "kubernetes.io/batch-cpu", "koordinator.sh/gpu-core", "x" * 300, "\x00")
_REMOVED: Final = object()
_LARGEST: Final = 1e308
_MOST_COPIES: Final = 300
_DEPTH: Final = 150

FEW = settings(max_examples=examples(5), phases=(Phase.explicit, Phase.generate))
"""Not shrunk: an example takes long, and is small as it is."""


class Garbage:
    """Drawn from ``random``. ``names`` are those of other objects, that an object may refer to in any text."""

    def __init__(self, random: Random, names: Sequence[str] = ()) -> None:
        self._random = random
        self._names = names

    def document(self, document: Document) -> Document:
        """The document with one to three places changed, added to or taken away."""
        for _ in range(self._random.choice((1, 1, 2, 3))):
            among = list(places(document))
            if not among:
                break
            place = self._random.choice(among)
            value = self.instead_of(found(document, place))
            document = removed(document, place) if value is _REMOVED else replaced(document, place, value)
        return document

    def texts(self, document: Document) -> Document:
        """With other texts for texts alone: what an API server lets through of kinds whose types it knows."""
        among = [place for place in places(document) if isinstance(found(document, place), str)]
        for place in self._random.sample(among, min(len(among), self._random.choice((1, 1, 2, 3)))):
            document = replaced(document, place, self.text(found(document, place)))
        return document

    def text(self, text: str) -> str:
        """Another text instead of ``text``, which holds a number, a name or JSON perhaps."""
        choice = self._random.random()
        if text[:1] in ("{", "[") and choice < 0.6:
            return self._json(text)
        if choice < 0.75 or not text:
            return self._random.choice((*TEXTS, *self._names))
        if choice < 0.85:
            return self._characters()
        at = self._random.randrange(len(text) + 1)
        return self._random.choice((text[:at], text[:at] + self._characters() + text[at:], text + text, text[at:]))

    def value(self, depth: int = 3) -> Any:
        """Anything that JSON can say, and numbers that it should not."""
        kind = self._random.randrange(6 if depth else 4)
        if kind == 0:
            return self._random.choice((None, True, False))
        if kind == 1:
            return self._random.choice((*NUMBERS, self._random.randint(-(10**6), 10**6)))
        if kind in (2, 3):
            return self._random.choice(TEXTS)
        inner = [self.value(depth - 1) for _ in range(self._random.randrange(3))]
        return inner if kind == 4 else {self._random.choice(_KEYS): each for each in inner}

    def instead_of(self, value: Any) -> Any:
        """What stands there instead: mostly of the same type, since schemas see to that; or the place is gone."""
        choice = self._random.random()
        if choice < 0.08:
            return _REMOVED
        if choice < 0.25:
            return self.value()
        if choice < 0.27:
            return nested(self._random.choice(([], {})), _DEPTH)
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bool):
            return not value
        if isinstance(value, (int, float)):
            # JSON has no infinity.
            return self._random.choice((*NUMBERS, -value, max(-_LARGEST, min(value * 1000, _LARGEST))))
        if isinstance(value, dict):
            return self._members(value)
        return self._elements(value) if isinstance(value, list) else self.value()

    def body(self, body: bytes) -> bytes:
        """JSON that no encoder writes: cut off, not UTF-8, with a member twice, too deep, or with bytes changed."""
        at = self._random.randrange(len(body) + 1)
        deep = self._random.choice((b"[", b'{"a":')) * self._random.choice((200, 100_000))
        spoilt = self._random.choice((b"\xff", b"\xed\xa0\x80", b"\x00", b'"', b",", b"}", b"\\ud800", b"1e999999"))
        cut = self._random.randrange(len(body) + 1)
        return self._random.choice(
            (
                body[:at],
                body[:at] + spoilt + body[at:],
                body[:at] + spoilt + body[at + len(spoilt) :],
                body.replace(b'":', b'":' + deep, 1),
                body[:-1] + b"," + body[1:],
                body[: min(at, cut)] + body[max(at, cut) :],
                body + body,
                b"",
                deep,
            )
        )

    def yaml(self, text: str) -> bytes:
        """A document of a person's, changed as an object is, or as its text is, or another one."""
        choice = self._random.random()
        if choice < 0.2:
            return self._random.choice(YAML).encode()
        if choice < 0.6:
            return json.dumps(self.document(_loaded(text))).encode()
        return self.file(text)

    def json(self, text: str) -> bytes:
        """A document of a program's, likewise."""
        if self._random.random() < 0.3:
            return self.body(text.encode())
        return json.dumps(self.document(json.loads(text))).encode()

    def damaged(self, content: bytes) -> bytes:
        """Any bytes: bits flipped, a part lost, moved, doubled or made long; cut off, empty, or others."""
        if not content or self._random.random() < 0.1:
            return self._random.randbytes(self._random.choice((0, 1, 7, 300)))
        at, end = sorted(self._random.randrange(len(content) + 1) for _ in range(2))
        flipped = bytearray(content)
        flipped[self._random.randrange(len(content))] ^= 1 << self._random.randrange(8)
        largest = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
        return self._random.choice(
            (
                bytes(flipped),
                content[:at],
                content[at:],
                content[:at] + content[end:],
                content[:end] + content[at:end] + content[end:],
                content[:at] + largest + content[at:],
                content[:at] + largest[: end - at] + content[end:],
                content + self._random.randbytes(64),
            )
        )

    def file(self, content: str) -> bytes:
        """A file of the kernel's or of a tool's: lines and columns lost, doubled or spoilt, or nothing of the kind."""
        lines = content.split("\n")
        at = self._random.randrange(len(lines))
        choice = self._random.randrange(8)
        if choice == 0:
            return self._random.choice((b"", b"\n", b"max\n", b"-1\n", b"\xff\xfe\n", b"\x00" * 4096, b"9" * 100_000))
        if choice == 1:
            return self.damaged(content.encode())
        if choice == 2:
            del lines[at]
        elif choice == 3:
            lines.insert(at, lines[at])
        elif choice == 4:
            lines[at] = self.text(lines[at])
        else:
            columns = lines[at].split(" ")
            place = self._random.randrange(len(columns))
            if choice == 5:
                del columns[place]
            else:
                columns[place] = self._random.choice((self.text(columns[place]), *map(str, NUMBERS)))
            lines[at] = " ".join(columns)
        return "\n".join(lines).encode("utf-8", "surrogatepass")

    def _characters(self) -> str:
        return "".join(chr(self._random.choice((32, 48, 0x7F, 0x85, 0x301, 0xFFFD, 0x1F600))) for _ in range(3))

    def _json(self, text: str) -> str:
        """JSON in a text, changed as a document is, or no JSON any more."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            return text[: self._random.randrange(len(text))]
        if self._random.random() < 0.8 and isinstance(document, dict) and document:
            return json.dumps(self.document(document))
        changed = self.body(text.encode()).decode("utf-8", "replace")
        return self._random.choice((changed, json.dumps(self.instead_of(document), default=str)))

    def _members(self, value: dict[str, Any]) -> Any:
        key = self._random.choice((*value, *_KEYS))
        return self._random.choice(
            (
                {},
                [],
                [value],
                {**value, key: self.value()},
                {**value, self._random.choice(TEXTS): value.get(key)},
                {**value, **{f"{key}{number}": value.get(key, "1") for number in range(_MOST_COPIES)}},
            )
        )

    def _elements(self, value: list[Any]) -> Any:
        return self._random.choice(
            (
                [],
                {},
                [None],
                value * 2,
                (value * _MOST_COPIES)[:_MOST_COPIES],
                [*value, self.value()],
                [self.value(), *value],
                value[::-1],
                [value],
            )
        )


@cache
def _loaded(text: str) -> Document:
    document: Document = yaml.safe_load(text)
    return document


def garbage_of(document: Document) -> st.SearchStrategy[Document]:
    """Of a document, for hypothesis."""
    return st.integers(0, 2**32).map(lambda seed: Garbage(Random(seed)).document(document))


TEXT: Final = st.sampled_from(TEXTS) | st.text(max_size=8)


def nested(inner: Any, depth: int) -> Any:
    for _ in range(depth):
        inner = [inner] if isinstance(inner, list) else {"a": inner}
    return inner


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


def removed(document: Document, place: Path) -> Document:
    """Without what is there."""
    changed: Document = copied(document)
    del found(changed, place[:-1])[place[-1]]
    return changed
