"""Which objects a list, a watch or a deletecollection is about, decided with as little decoding as possible."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.table import kind_type
from koordinator.api.names import label_key, label_value
from koordinator.cluster.errors import ApiError, bad_request
from koordinator.cluster.resource import Resource
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.verbs.target import Target, decode

# Label and field selectors of list, watch and deletecollection, in the grammar and wording of the real server.


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
        if errors := label_key(key):
            raise _unparsable(f"<nil>: Invalid value: {json.dumps(key)}: {'; '.join(errors)}")
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
        if errors := label_value(value):
            raise _unparsable(f"values[{index}][{key}]: Invalid value: {quoted}: {'; '.join(errors)}")


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
    """The server's response to a selector on a field that the kind does not index.

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


# ``metav1.LabelSelector`` as a function of labels.


def compile_selector(selector: Document | None) -> LabelMatcher | None:
    """None for a selector that matches everything."""
    selector = selector or {}
    wanted: Mapping[str, str] = selector.get("matchLabels") or {}
    requirements = [_requirement(entry) for entry in selector.get("matchExpressions") or []]
    if not wanted and not requirements:
        return None
    return lambda labels: (
        all(labels.get(key) == value for key, value in wanted.items())
        and all(requirement(labels) for requirement in requirements)
    )


def _requirement(entry: Document) -> LabelMatcher:
    key, values = entry["key"], frozenset(entry.get("values") or ())
    match entry["operator"]:
        case "In":
            return lambda labels: labels.get(key) in values
        case "NotIn":
            return lambda labels: labels.get(key) not in values
        case "Exists":
            return lambda labels: key in labels
    return lambda labels: key not in labels


_REMEMBERED = 20_000
_OF_EVERY_KIND = frozenset(("metadata.name", "metadata.namespace"))


class _Labelled(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Head(msgspec.Struct):
    metadata: _Labelled


_head = msgspec.json.Decoder(_Head).decode


class SelectorCache:
    """Labels and field labels by revision: many watchers need the same of one write."""

    def __init__(self) -> None:
        self._labels: dict[int, Mapping[str, str]] = {}
        self._fields: dict[tuple[int, str], Mapping[str, str]] = {}

    def labels(self, stored: Stored) -> Mapping[str, str]:
        found = self._labels.get(stored.revision)
        if found is None:
            if len(self._labels) >= _REMEMBERED:
                self._labels.clear()
            found = self._labels[stored.revision] = _head(stored.value).metadata.labels or {}
        return found

    def fields(self, resource: Resource, stored: Stored) -> Mapping[str, str]:
        key = (stored.revision, resource.api_version)
        found = self._fields.get(key)
        if found is None:
            if len(self._fields) >= _REMEMBERED:
                self._fields.clear()
            found = self._fields[key] = resource.strategy.fields(decode(resource, stored))
        return found


@dataclass(frozen=True, slots=True)
class Selection:
    """Label and field selector of one request, compiled."""

    resource: Resource
    selector_cache: SelectorCache
    labels: LabelMatcher | None
    fields: tuple[tuple[str, bool, str], ...]
    """(field, must be equal, value), without what ``name`` says already."""
    name: str | None
    """The one name that is selected, if ``metadata.name`` is."""

    @classmethod
    def parse(
        cls, target: Target, selector_cache: SelectorCache, label_selector: str, field_selector: str
    ) -> Selection:
        """Raises ApiError 400 for a selector that does not parse or a field that the kind does not offer."""
        name = target.name or None
        fields = []
        offered = set(_OF_EVERY_KIND)
        for field, operator, value in parse_field_selector(field_selector):
            if field == "metadata.name" and operator == "=" and name in (None, value):
                name = value
                continue
            if field not in offered:
                offered.update(target.resource.strategy.fields(_blank()))
                if field not in offered:
                    resource = target.resource
                    built_in = kind_type(resource.api_version, resource.kind) is not None
                    raise field_label_not_supported(field, only_metadata=built_in and offered == _OF_EVERY_KIND)
            fields.append((field, operator == "=", value))
        labels = parse_label_selector(label_selector) if label_selector else None
        return cls(target.resource, selector_cache, labels, tuple(fields), name)

    @property
    def everything(self) -> bool:
        return self.labels is None and not self.fields and self.name is None

    def prefix(self, target: Target) -> str:
        """The smallest part of the store that holds all that can match."""
        if self.name is not None and (target.namespace or not target.resource.namespaced):
            return Target(target.resource, target.namespace, self.name).key
        return target.prefix

    def matches(self, stored: Stored) -> bool:
        if self.name is not None and stored.key.rpartition("/")[2] != self.name:
            return False
        if self.labels is not None and not self.labels(self.selector_cache.labels(stored)):
            return False
        if not self.fields:
            return True
        values = self.selector_cache.fields(self.resource, stored)
        return all((values.get(field, "") == value) == equal for field, equal, value in self.fields)


def _blank() -> dict[str, dict[str, str]]:
    """What every stored object has; enough for a strategy to return the names of its field labels."""
    return {"metadata": {}, "spec": {}, "status": {}, "involvedObject": {}, "regarding": {}}
