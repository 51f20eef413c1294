"""Literals that are sure to fail when they are evaluated: durations, timestamps and patterns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from koordinator.model.cel.checker import Checked
from koordinator.model.cel.errors import EvaluationError, Issue
from koordinator.model.cel.library.conversions import duration_of, timestamp_of
from koordinator.model.cel.library.patterns import PatternError, compiled
from koordinator.model.cel.syntax import Call, Comprehension, ListLiteral, Literal, MapLiteral, Node, Select

_PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "duration": duration_of,
    "timestamp": timestamp_of,
    "matches": compiled,
}


def literal_issues(checked: Checked) -> list[Issue]:
    return [
        Issue(arg.position, f"invalid {name} argument")
        for name, arg in _constant_arguments(checked.root)
        if not _is_valid(name, arg.value)
    ]


def _is_valid(name: str, value: Any) -> bool:
    try:
        _PARSERS[name](value)
    except (EvaluationError, PatternError):
        return False
    return True


def _constant_arguments(root: Node) -> Iterator[tuple[str, Literal]]:
    pending = [root]
    while pending:
        node = pending.pop()
        pending += below(node)
        if isinstance(node, Call) and node.function in _PARSERS and node.args:
            last = node.args[-1]
            if isinstance(last, Literal) and isinstance(last.value, str):
                yield node.function, last


def below(node: Node) -> list[Node]:
    """The nodes that a node has."""
    if isinstance(node, Select):
        return [node.operand]
    if isinstance(node, Call):
        return [*([node.target] if node.target is not None else []), *node.args]
    if isinstance(node, ListLiteral):
        return list(node.items)
    if isinstance(node, MapLiteral):
        return [part for entry in node.entries for part in (entry.key, entry.value)]
    if isinstance(node, Comprehension):
        return [node.range, node.start, node.condition, node.step, node.result]
    return []
