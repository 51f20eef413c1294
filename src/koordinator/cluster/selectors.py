"""Label and field selectors of list, watch and deletecollection, in the grammar and wording of the real server."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from koordinator.api.names import label_key, label_value
from koordinator.cluster.errors import ApiError, bad_request

LabelMatcher = Callable[[Mapping[str, str]], bool]

_SPECIAL: Final = "=!(),><"
_TOKEN: Final = re.compile(rf"\s*([{_SPECIAL}]+|[^{_SPECIAL}\s]+|$)")
_OPERATORS: Final = ("==", "!=", "=", "!", "(", ")", ",", ">", "<")
_BINARY: Final = "in, notin, =, ==, !=, gt, lt"
_INT64: Final = re.compile(r"[+-]?[0-9]+")
_LONGEST_INT64: Final = 63
"""Characters; no label is longer, zeros in front included."""


@dataclass(frozen=True, slots=True)
class _Requirement:
    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "exists":
                return value is not None
            case "!":
                return value is None
            case "in" | "=" | "==":
                return value in self.values
            case "notin" | "!=":
                return value not in self.values
            case _:
                return value is not None and self._compares(value)

    def _compares(self, value: str) -> bool:
        if not _is_int64(value):
            return False
        bound = int(next(iter(self.values)))
        return int(value) > bound if self.operator == ">" else int(value) < bound


def parse_label_selector(text: str) -> LabelMatcher:
    """Compile ``a=b,c in (d,e),!f,g>1``; an empty text matches everything. Raises ApiError 400."""
    requirements = _Parser(text).parse()
    if not requirements:
        return lambda labels: True
    if len(requirements) == 1:
        return requirements[0].matches
    return lambda labels: all(requirement.matches(labels) for requirement in requirements)


class _Parser:
    """Recursive descent over the tokens; ``in`` and ``notin`` are operators only after a key."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokenize(text)
        self._position = 0

    def parse(self) -> list[_Requirement]:
        requirements: list[_Requirement] = []
        while self._peek():
            if not _is_identifier(self._peek()) and self._peek() != "!":
                raise bad_request(f"found '{self._peek()}', expected: !, identifier, or 'end of string'")
            requirements.append(self._requirement())
            following = self._take()
            if not following:
                break
            if following != ",":
                raise bad_request(f"found '{following}', expected: ',' or 'end of string'")
            if not _is_identifier(self._peek()) and self._peek() != "!":
                raise bad_request(f"found '{self._peek()}', expected: identifier after ','")
        return requirements

    def _peek(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._position += 1
        return token

    def _requirement(self) -> _Requirement:
        absent = self._peek() == "!"
        if absent:
            self._take()
        key = self._take()
        if not _is_identifier(key):
            raise _unparsable(f"found '{key}', expected: identifier")
        if complaints := label_key(key):
            raise _unparsable(f"<nil>: Invalid value: {json.dumps(key)}: {'; '.join(complaints)}")
        if absent or self._peek() in ("", ","):
            return _Requirement(key, "!" if absent else "exists")
        operator = self._take()
        if operator not in ("in", "notin", "=", "==", "!=", ">", "<"):
            raise _unparsable(f"found '{operator}', expected: {_BINARY}")
        values = self._value_set() if operator in ("in", "notin") else {self._exact_value()}
        _check_values(key, operator, sorted(values))
        return _Requirement(key, operator, frozenset(values))

    def _exact_value(self) -> str:
        if self._peek() in ("", ","):
            return ""
        value = self._take()
        if not _is_identifier(value):
            raise _unparsable(f"found '{value}', expected: identifier")
        return value

    def _value_set(self) -> set[str]:
        opening = self._take()
        if opening != "(":
            raise _unparsable(f"found '{opening}' expected: '('")
        values: set[str] = set()
        value = ""
        while (part := self._take()) != ")":
            if part == ",":
                values.add(value)
                value = ""
            elif not _is_identifier(part):
                raise _unparsable(f"found '{part}', expected: ',', or identifier")
            elif self._peek() not in (",", ")"):
                raise _unparsable(f"found '{self._peek()}', expected: ',' or ')'")
            else:
                value = part
        return {*values, value}


def _tokenize(text: str) -> list[str]:
    tokens = []
    for match in _TOKEN.finditer(text):
        run = match.group(1)
        while run:
            token = next((o for o in _OPERATORS if run.startswith(o)), run) if run[0] in _SPECIAL else run
            tokens.append(token)
            run = run[len(token) :]
    return tokens


def _is_identifier(token: str) -> bool:
    return bool(token) and token[0] not in _SPECIAL


def _is_int64(text: str) -> bool:
    return len(text) <= _LONGEST_INT64 and bool(_INT64.fullmatch(text)) and -(2**63) <= int(text) < 2**63


def _check_values(key: str, operator: str, values: list[str]) -> None:
    for index, value in enumerate(values):
        quoted = json.dumps(value, ensure_ascii=False)
        if operator in (">", "<") and not _is_int64(value):
            why = "for 'Gt', 'Lt' operators, the value must be an integer"
            raise _unparsable(f"values[{index}]: Invalid value: {quoted}: {why}")
        if complaints := label_value(value):
            raise _unparsable(f"values[{index}][{key}]: Invalid value: {quoted}: {'; '.join(complaints)}")


def _unparsable(why: str) -> ApiError:
    return bad_request(f"unable to parse requirement: {why}")


def parse_field_selector(text: str) -> list[tuple[str, str, str]]:
    """``spec.nodeName=,status.phase!=Running`` as (field, ``=`` or ``!=``, value). Raises ApiError 400."""
    terms = []
    for term in filter(None, _split_terms(text)):
        match = re.match(r"([^!=]*(?:!(?!=)[^!=]*)*)(!=|==|=)(.*)", term, re.DOTALL)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        field, operator, value = match.groups()
        terms.append((field, "!=" if operator == "!=" else "=", _unescape(value)))
    return terms


def field_label_not_supported(field: str, *, only_metadata: bool = False) -> ApiError:
    """What the server answers to a selector on a field that the kind does not index.

    ``only_metadata``: the kind is built in and indexes nothing but what every kind does.
    """
    if only_metadata:
        return bad_request(f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"')
    return bad_request(f"field label not supported: {field}")


def _split_terms(text: str) -> list[str]:
    return re.findall(r"(?:\\.|[^,\\]|\\$)+", text, re.DOTALL)


def _unescape(value: str) -> str:
    result = []
    characters = iter(value)
    for character in characters:
        if character == "\\":
            escaped = next(characters, "")
            if escaped not in ("\\", ",", "="):
                raise bad_request(f"invalid field selector: invalid escape sequence: \\{escaped}")
            result.append(escaped)
        elif character in ",=":
            raise bad_request(f"invalid field selector: unescaped character in value: {ord(character)}")
        else:
            result.append(character)
    return "".join(result)
