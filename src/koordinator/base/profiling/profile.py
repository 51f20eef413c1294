"""A profile, and its encoding as pprof's ``profile.proto`` (gzip), which pprof, Grafana and speedscope read.

The numbers of fields are those of https://github.com/google/pprof/blob/main/proto/profile.proto.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import CodeType, FrameType
from typing import Final, NamedTuple

MOST_FRAMES: Final = 128
"""Of one stack; deeper ones lose what called the rest."""


class Frame(NamedTuple):
    """A place in the code that was running, or waiting."""

    function: str
    file: str
    line: int
    first_line: int
    """Where the function begins."""


Stack = tuple[Frame, ...]
"""Innermost first, at most MOST_FRAMES."""


class Place(NamedTuple):
    """What makes a Frame, at hardly any cost for who looks often."""

    module: str
    code: CodeType
    line: int | None
    """0 or None between two lines of code."""

    @property
    def frame(self) -> Frame:
        module, code, line = self
        # Tools leave out what stands between < and >, and show a name that is nothing else as unknown.
        function = f"{module}.{code.co_qualname}" if code.co_name != "<module>" else f"{module} (module)"
        return Frame(function, code.co_filename, line or code.co_firstlineno, code.co_firstlineno)


def place_of(frame: FrameType) -> Place:
    return Place(frame.f_globals.get("__name__", ""), frame.f_code, frame.f_lineno)


def places_from(frame: FrameType | None) -> tuple[Place, ...]:
    """``frame`` and what called it, innermost first, at most MOST_FRAMES."""
    places: list[Place] = []
    while frame is not None and len(places) < MOST_FRAMES:
        places.append(place_of(frame))
        frame = frame.f_back
    return tuple(places)


class Unit(NamedTuple):
    """What a value of each sample tells: ``("cpu", "nanoseconds")``."""

    kind: str
    unit: str


@dataclass(frozen=True, slots=True)
class Profile:
    """``samples`` has one value for each of ``units``; ``period`` is how far apart samples were, in ``period_unit``."""

    units: Sequence[Unit]
    samples: Mapping[Stack, Sequence[int]]
    taken_at: datetime
    seconds: float = 0.0
    period_unit: Unit | None = None
    period: int = 0

    def encode(self) -> bytes:
        """The file that a tool is given."""
        tables = _Tables()
        parts = [_message(1, tables.unit(unit)) for unit in self.units]
        for stack, values in self.samples.items():
            locations = [tables.location(frame) for frame in stack]
            parts.append(_message(2, _packed(1, locations) + _packed(2, values)))
        if self.period_unit is not None:
            parts += [_message(11, tables.unit(self.period_unit)), _number(12, self.period)]
        parts.append(_number(9, int(self.taken_at.timestamp() * 1e9)))
        parts.append(_number(10, int(self.seconds * 1e9)))
        return gzip.compress(b"".join([*parts, *tables.encoded()]), mtime=0)


class _Tables:
    """What is written once and referred to by number: texts from 0 on, of which the first is empty; others from 1."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {"": 0}
        self._functions: dict[tuple[str, str, int], int] = {}
        self._locations: dict[Frame, int] = {}

    def unit(self, unit: Unit) -> bytes:
        return _number(1, self._text(unit.kind)) + _number(2, self._text(unit.unit))

    def location(self, frame: Frame) -> int:
        self._functions.setdefault((frame.function, frame.file, frame.first_line), len(self._functions) + 1)
        return self._locations.setdefault(frame, len(self._locations) + 1)

    def encoded(self) -> Iterable[bytes]:
        for frame, number in self._locations.items():
            function = self._functions[frame.function, frame.file, frame.first_line]
            yield _message(4, _number(1, number) + _message(4, _number(1, function) + _number(2, frame.line)))
        for (name, file, first_line), number in self._functions.items():
            named = _number(2, self._text(name)) + _number(3, self._text(name)) + _number(4, self._text(file))
            yield _message(5, _number(1, number) + named + _number(5, first_line))
        for text in self._texts:
            yield _message(6, text.encode("utf-8", "replace"))

    def _text(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _message(field: int, body: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(body)) + body


def _packed(field: int, values: Iterable[int]) -> bytes:
    return _message(field, b"".join(map(_varint, values)))
