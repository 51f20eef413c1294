"""On which line of a YAML file a field is, for errors that are found after it was decoded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import yaml

from koordinator.base.errors import ConfigurationError

_STEP: Final = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")
"""Of a path such as ``changes[1].drain.nodes``: an index or a key in brackets, or a key."""
_DOCUMENT: Final = re.compile(r"document (\d+)\.?")


def line_of(text: str, path: str, document: int = 0) -> int:
    """Return the line (from 1) of the deepest part of ``path`` that the ``document`` (from 0) of the text has; 0 for
    text that is not YAML, or has no such document."""
    try:
        nodes = list(yaml.compose_all(text, yaml.SafeLoader))
    except yaml.YAMLError:
        return 0
    if document >= len(nodes) or nodes[document] is None:
        return 0
    node: yaml.Node = nodes[document]
    line = node.start_mark.line
    for bracketed, key in _STEP.findall(path):
        found = _member(node, bracketed or key)
        if found is None:
            break
        line, node = found
    return line + 1


def _member(node: yaml.Node, name: str) -> tuple[int, yaml.Node] | None:
    """The line of a key and its value, or of a member of a list; None if there is none of that name."""
    if isinstance(node, yaml.SequenceNode) and name.isdecimal() and int(name) < len(node.value):
        item: yaml.Node = node.value[int(name)]
        return item.start_mark.line, item
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == name:
                return key.start_mark.line, value
    return None


@contextmanager
def naming_lines(text: str, source: str) -> Iterator[None]:
    """Add the line to each ConfigurationError about a field of ``text``, which was read from ``source``."""
    try:
        yield
    except ConfigurationError as error:
        path = error.field.removeprefix(source).removeprefix(":").strip()
        if path.startswith("line "):
            raise
        named = _DOCUMENT.match(path)
        inner = path[named.end() :] if named else path
        line = line_of(text, inner, int(named[1]) - 1 if named else 0)
        if not line:
            raise
        where = f"{source}: line {line}" + (f": {inner}" if inner else "")
        raise ConfigurationError(where, error.value, error.allowed) from error
