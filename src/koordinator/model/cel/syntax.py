"""The nodes of a parsed expression. Each has an id, to which the checker ties a type, and a place in the text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final


@dataclass(slots=True, eq=False)
class Node:
    id: int
    position: int


@dataclass(slots=True, eq=False)
class Literal(Node):
    value: Any


@dataclass(slots=True, eq=False)
class Ident(Node):
    name: str


@dataclass(slots=True, eq=False)
class Select(Node):
    """``operand.name``; with ``test`` what ``has()`` makes of it."""

    operand: Node
    name: str
    test: bool = False


@dataclass(slots=True, eq=False)
class Call(Node):
    """Of a function, an operator, or with ``target`` of a member function."""

    function: str
    args: list[Node]
    target: Node | None = None


@dataclass(slots=True, eq=False)
class ListLiteral(Node):
    items: list[Node]
    optional: frozenset[int] = frozenset()


@dataclass(slots=True, eq=False)
class Entry:
    key: Node
    value: Node
    optional: bool = False


@dataclass(slots=True, eq=False)
class MapLiteral(Node):
    entries: list[Entry]


@dataclass(slots=True, eq=False)
class FieldValue:
    name: str
    position: int
    value: Node
    optional: bool = False


@dataclass(slots=True, eq=False)
class StructLiteral(Node):
    """``Type{field: value}``."""

    type_name: str
    fields: list[FieldValue]


@dataclass(slots=True, eq=False)
class Comprehension(Node):
    """What the macros become: a fold over a list or a map (cel-spec, ``Comprehension``)."""

    range: Node
    variable: str
    second: str
    """The variable of values beside that of keys or indexes; empty where there is one variable."""
    accumulator: str
    start: Node
    condition: Node
    step: Node
    result: Node


ACCUMULATOR: Final = "@result"
"""The name under which folds keep what they have so far; no text can have it."""
RESERVED: Final = frozenset(
    ("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import",
     "let", "loop", "package", "namespace", "return", "var", "void", "while")
)  # fmt: skip
"""What no variable can be called."""


def qualified_name(node: Node) -> str | None:
    """``a.b.c`` of selections from a name; None for all else."""
    names: list[str] = []
    while isinstance(node, Select) and not node.test:
        names.append(node.name)
        node = node.operand
    return ".".join([node.name, *reversed(names)]) if isinstance(node, Ident) else None
