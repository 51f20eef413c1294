"""Functions of strings (cel-go, ``ext/strings.go``, version 2); positions count characters."""

from __future__ import annotations

from typing import Any, Final

from koordinator.model.cel.budget import Meter
from koordinator.model.cel.errors import EvaluationError
from koordinator.model.cel.functions import Overload, overloads

_ASCII_LOWER: Final = {code: code + 32 for code in range(65, 91)}
_ASCII_UPPER: Final = {code: code - 32 for code in range(97, 123)}
_SPACE: Final = "".join(
    map(chr, (*range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000))
)
"""What Go's strings.TrimSpace takes away."""
_QUOTED: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def _within(index: int, length: int) -> int:
    if not 0 <= index <= length:
        raise EvaluationError(f"index out of range: {index}")
    return index


def _char_at(text: str, index: int) -> str:
    return text[_within(index, len(text)) :][:1]


def _index_of(text: str, part: str, offset: int = 0) -> int:
    if not part:
        return offset
    if offset < 0:
        raise EvaluationError(f"index out of range: {offset}")
    return text.find(part, offset)


def _last_index_of(text: str, part: str) -> int:
    return text.rfind(part)


def _last_index_from(text: str, part: str, offset: int) -> int:
    if not part:
        return offset
    if offset < 0:
        raise EvaluationError(f"index out of range: {offset}")
    return -1 if offset >= len(text) else text.rfind(part, 0, offset + len(part))


def _substring(text: str, start: int) -> str:
    return text[_within(start, len(text)) :]


def _between(text: str, start: int, end: int) -> str:
    if start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    return text[_within(start, len(text)) : _within(end, len(text))]


def _replace(meter: Meter, text: str, old: str, new: str, count: int = -1) -> str:
    # Found beforehand how long it gets: a text between all characters of another is their product.
    found = len(text) + 1 if not old else text.count(old)
    found = found if count < 0 else min(found, count)
    meter.labour((len(text) + found * len(new)) >> 4)
    return text.replace(old, new, found)


def _split(meter: Meter, text: str, separator: str, limit: int = -1) -> list[str]:
    if not limit:
        return []
    parts = list(text) if not separator else text.split(separator, -1 if limit < 0 else limit - 1)
    if not separator and 0 < limit < len(parts):
        parts = [*parts[: limit - 1], "".join(parts[limit - 1 :])]
    meter.labour(len(parts))
    return parts


def _join(meter: Meter, items: list[Any], separator: str = "") -> str:
    for item in items:
        if not isinstance(item, str):
            raise EvaluationError(f"join: invalid input: {item}")
    # Charged before it is built: a long separator between many items is their product.
    meter.charge((sum(map(len, items)) + len(separator) * max(len(items) - 1, 0)) // 10)
    return separator.join(items)


def quoted(text: str) -> str:
    return '"' + "".join(_QUOTED.get(character, character) for character in text) + '"'


def _escaped_key(text: str) -> str:
    return text.replace("~", "~0").replace("/", "~1")


TEXTS: Final[list[Overload]] = [
    *overloads((
        ("string_char_at_int", "string->charAt(int): string", _char_at),
        ("string_index_of_string", "string->indexOf(string): int", _index_of),
        ("string_index_of_string_int", "string->indexOf(string, int): int", _index_of),
        ("string_last_index_of_string", "string->lastIndexOf(string): int", _last_index_of),
        ("string_last_index_of_string_int", "string->lastIndexOf(string, int): int", _last_index_from),
        ("string_lower_ascii", "string->lowerAscii(): string", lambda text: text.translate(_ASCII_LOWER)),
        ("string_upper_ascii", "string->upperAscii(): string", lambda text: text.translate(_ASCII_UPPER)),
        ("string_substring_int", "string->substring(int): string", _substring),
        ("string_substring_int_int", "string->substring(int, int): string", _between),
        ("string_trim", "string->trim(): string", lambda text: text.strip(_SPACE)),
        ("strings_quote", "strings.quote(string): string", quoted),
        ("string_jsonpatch_escapeKey_string", "jsonpatch.escapeKey(string): string", _escaped_key),
    )),
    *overloads(
        (
            ("string_replace_string_string", "string->replace(string, string): string", _replace),
            ("string_replace_string_string_int", "string->replace(string, string, int): string", _replace),
            ("string_split_string", "string->split(string): list(string)", _split),
            ("string_split_string_int", "string->split(string, int): list(string)", _split),
            ("list_join", "list(string)->join(): string", _join),
            ("list_join_string", "list(string)->join(string): string", _join),
        ),
        metered=True,
    ),
]  # fmt: skip
