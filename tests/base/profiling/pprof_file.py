"""Reads pprof files by the format's description, independently of what writes them."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ReadProfile:
    units: list[tuple[str, str]]
    samples: dict[tuple[str, ...], list[int]]
    """By "function file:line (first line)", innermost first."""
    period_unit: tuple[str, str] | None
    period: int
    time_nanos: int
    duration_nanos: int


def read_pprof(data: bytes) -> ReadProfile:
    fields = list(_fields(gzip.decompress(data)))
    texts = [value.decode() for number, value in fields if number == 6]
    assert texts[0] == ""
    functions = {}
    for body in _bodies(fields, 5):
        function = dict(_fields(body))
        assert function[2] == function[3]
        functions[function[1]] = texts[function[2]], texts[function[4]], function[5]
    places = {}
    for body in _bodies(fields, 4):
        location = dict(_fields(body))
        line = dict(_fields(location[4]))
        name, file, first = functions[line[1]]
        places[location[1]] = f"{name} {file}:{line[2]} ({first})"
    samples = {}
    for body in _bodies(fields, 2):
        sample = dict(_fields(body))
        samples[tuple(places[number] for number in _numbers(sample[1]))] = list(_numbers(sample[2]))

    single = {number: value for number, value in fields if isinstance(value, int)}
    periods = _units(fields, 11)
    return ReadProfile(
        _units(fields, 1),
        samples,
        periods[0] if periods else None,
        single.get(12, 0),
        single[9],
        single[10],
    )


def read_units(data: bytes) -> list[tuple[str, str]]:
    """What each value of a sample tells, of any profile."""
    return _units(list(_fields(gzip.decompress(data))), 1)


def _units(fields: list[tuple[int, Any]], wanted: int) -> list[tuple[str, str]]:
    texts = [value.decode() for number, value in fields if number == 6]
    found = [dict(_fields(body)) for body in _bodies(fields, wanted)]
    return [(texts[unit[1]], texts[unit[2]]) for unit in found]


def _bodies(fields: list[tuple[int, Any]], wanted: int) -> Iterator[bytes]:
    return (value for number, value in fields if number == wanted)


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        if key & 7 == 0:
            value, position = _varint(data, position)
            yield key >> 3, value
        else:
            assert key & 7 == 2, "only numbers and lengths are used"
            length, position = _varint(data, position)
            yield key >> 3, data[position : position + length]
            position += length
    assert position == len(data)


def _numbers(data: bytes) -> Iterator[int]:
    position = 0
    while position < len(data):
        value, position = _varint(data, position)
        yield value


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position
