"""Bodies in YAML as the real server reads them: what JSON can say, of bounded depth, and no larger than it was sent.

A document is read as a stream of events first, which costs no more than its own length: aliases could make a few
hundred bytes into gigabytes, and nesting could exhaust the stack of the parser.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from koordinator.base.errors import KoordinatorError
from koordinator.cluster.limits import MAX_BODY, MAX_DEPTH, TOO_DEEP

_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"
_Base: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml is ten times as fast as the parser in Python."""


class YamlError(KoordinatorError):
    """A body that is not YAML, or that exceeds a limit."""


class _Loader(_Base):  # type: ignore[misc]
    """Moments stay text, since JSON has no type for them, and single letters are booleans, as YAML 1.1 has it."""

    bool_values = {**_Base.bool_values, "y": True, "n": False}


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in _Base.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("[yYnN]$"), list("yYnN"))


def read_yaml(body: bytes) -> Any:
    """The first document, as a JSON value; None for an empty body. Raises YamlError."""
    try:
        _check(body)
        loader = _Loader(body)
        try:
            return _as_json(loader.get_data() if loader.check_data() else None)
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:
        # Values such as !!int "x" fail in whatever way their Python constructor does.
        raise YamlError(f"yaml: {_one_line(error)}") from error


class _Expansion:
    """How large the document is when each alias is replaced by what it stands for, in characters."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._open: list[tuple[str | None, int]] = []
        self._total = 0

    def scalar(self, anchor: str | None, text: str) -> None:
        self._add(len(text) + 1)
        if anchor is not None:
            self._sizes[anchor] = len(text) + 1

    def begin(self, anchor: str | None) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise YamlError(f"yaml: {TOO_DEEP}")
        if anchor is not None:
            self._sizes.pop(anchor, None)
        self._open.append((anchor, self._total))
        self._add(1)

    def end(self) -> None:
        anchor, before = self._open.pop()
        if anchor is not None:
            self._sizes[anchor] = self._total - before

    def alias(self, anchor: str) -> None:
        if any(anchor == name for name, _ in self._open):
            raise YamlError(f"yaml: anchor '{anchor}' value contains itself")
        self._add(self._sizes.get(anchor, 1))

    def _add(self, size: int) -> None:
        self._total += size
        if self._total > MAX_BODY:
            raise YamlError("yaml: document contains excessive aliasing")


def _check(body: bytes) -> None:
    expansion = _Expansion()
    for event in yaml.parse(body, Loader=_Base):
        if isinstance(event, yaml.ScalarEvent):
            expansion.scalar(event.anchor, event.value)
        elif isinstance(event, yaml.CollectionStartEvent):
            expansion.begin(event.anchor)
        elif isinstance(event, yaml.CollectionEndEvent):
            expansion.end()
        elif isinstance(event, yaml.AliasEvent):
            expansion.alias(event.anchor or "")
        elif isinstance(event, yaml.DocumentEndEvent):
            return


def _as_json(value: Any) -> Any:
    """A copy in which nothing is shared, so that changing one part changes no other."""
    if isinstance(value, dict):
        return {_key(name): _as_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(item) for item in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float) and not math.isfinite(value):
        raise YamlError(f"json: unsupported value: {value}")
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise YamlError(f"yaml: a {type(value).__name__} has no form in JSON")


def _key(name: Any) -> str:
    """Keys of other types become the text that JSON has for them."""
    if isinstance(name, str):
        return name
    if isinstance(name, bool):
        return "true" if name else "false"
    if isinstance(name, (int, float)):
        return str(name)
    raise YamlError(f"yaml: unsupported map key {name!r}: it must be text, a number or a boolean")


def _one_line(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem:
        mark = error.problem_mark
        return f"line {mark.line + 1}: {error.problem}" if mark is not None else error.problem
    return str(error).partition("\n")[0]


def repeated_keys(body: bytes) -> list[str]:
    """What the real server says of the keys that are there twice in one object, of a body that can be read."""
    node = yaml.compose(body, Loader=_Base)
    return [] if node is None else list(_repeated(node))


def _repeated(node: yaml.Node) -> Iterator[str]:
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _repeated(item)
    elif isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                yield f'line {key.start_mark.line + 1}: key "{key.value}" already set in map'
            seen.add(key.value)
            yield from _repeated(value)
