"""Whether an expression fits together: the type of each node, and which overloads each call may mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from koordinator.model.cel.budget import take
from koordinator.model.cel.errors import CompileError, Issue
from koordinator.model.cel.functions import Functions, Overload
from koordinator.model.cel.syntax import (
    Call,
    Comprehension,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    Select,
    StructLiteral,
    qualified_name,
)
from koordinator.model.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    ERROR,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    Substitutions,
    Type,
    has_parameters,
    less_specific,
    list_of,
    map_of,
    object_type,
    optional_of,
    type_of,
)
from koordinator.model.cel.values import UInt

Fields = Callable[[str], Mapping[str, Type] | None]
"""Name of an object type -> its fields; None for one that is not known."""
_LITERALS: Final[Mapping[type, Type]] = {
    bool: BOOL, int: INT, UInt: UINT, float: DOUBLE, str: STRING, bytes: BYTES, type(None): NULL,
}  # fmt: skip
OBJECT_TYPES: Final = tuple(f"kubernetes.{name}" for name in ("Quantity", "URL", "Semver", "NamedFormat"))
_TYPE_NAMES: Final[Mapping[str, Type]] = {
    **{kind.name: type_of(kind) for kind in (BOOL, INT, UINT, DOUBLE, STRING, BYTES, DYN)},
    "list": type_of(list_of(DYN)),
    "map": type_of(map_of(DYN, DYN)),
    "null_type": type_of(NULL),
    "type": type_of(Type("type", "type")),
    "optional_type": type_of(optional_of(DYN)),
    "google.protobuf.Timestamp": type_of(TIMESTAMP),
    "google.protobuf.Duration": type_of(DURATION),
    **{name: type_of(Type("opaque", name)) for name in ("net.IP", "net.CIDR")},
    **{name: type_of(object_type(name)) for name in OBJECT_TYPES},
}  # fmt: skip


@dataclass(slots=True)
class Checked:
    """What the checker has found out, by the id of the node."""

    root: Node
    types: dict[int, Type]
    overloads: dict[int, tuple[Overload, ...]]
    constants: dict[int, str]
    """Nodes that are the name of a type."""
    dotted: dict[int, str]
    """Selections that are the name of a variable with dots."""
    variables: set[str] = field(default_factory=set)
    """Those of the environment that are used."""

    @property
    def type(self) -> Type:
        return self.types[self.root.id]


def check(source: str, root: Node, variables: Mapping[str, Type], functions: Functions, fields: Fields) -> Checked:
    """Raises CompileError."""
    checker = _Checker(variables, functions, fields)
    try:
        checker.check(root)
    except RecursionError as error:
        raise CompileError(source, [Issue(0, "expression recursion limit exceeded: 250")]) from error
    if checker.issues:
        raise CompileError(source, checker.issues)
    return checker.result(root)


class _Checker:
    def __init__(self, variables: Mapping[str, Type], functions: Functions, fields: Fields) -> None:
        self._scopes: list[dict[str, Type]] = []
        self._variables = variables
        self._functions = functions
        self._fields = fields
        self._types: dict[int, Type] = {}
        self._overloads: dict[int, tuple[Overload, ...]] = {}
        self._constants: dict[int, str] = {}
        self._dotted: dict[int, str] = {}
        self._used: set[str] = set()
        self._mixed = 0
        """Above zero: in the arguments of ``format``, the only lists that may hold values of several types."""
        self._known = Substitutions()
        self.issues: list[Issue] = []

    def result(self, root: Node) -> Checked:
        types = {key: self._known.substitute(of, to_dyn=True) for key, of in self._types.items()}
        return Checked(root, types, self._overloads, self._constants, self._dotted, self._used)

    def check(self, node: Node) -> Type:
        take(1)
        found = self._types[node.id] = _CHECKS[type(node)](self, node)
        return found

    def _error(self, position: int, message: str) -> Type:
        self.issues.append(Issue(position, message))
        return ERROR

    def _resolved(self, name: str, node: Node) -> Type | None:
        """The type of a name: a variable, or that of types."""
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        if name in self._variables:
            self._used.add(name)
            return self._variables[name]
        found = _TYPE_NAMES.get(name)
        if found is not None:
            self._constants[node.id] = name
        return found

    def literal(self, node: Literal) -> Type:
        return _LITERALS[type(node.value)]

    def ident(self, node: Ident) -> Type:
        found = self._resolved(node.name.removeprefix("."), node)
        return found if found is not None else self._undeclared(node, node.name)

    def _undeclared(self, node: Node, name: str) -> Type:
        return self._error(node.position, f"undeclared reference to '{name}' (in container '')")

    def select(self, node: Select) -> Type:
        name = qualified_name(node)
        if name is not None and name in _TYPE_NAMES:
            self._constants[node.id] = name
            return _TYPE_NAMES[name]
        if name is not None and name in self._variables:
            self._used.add(name)
            self._dotted[node.id] = name
            return self._variables[name]
        found = self._field(node, node.operand, node.name)
        return BOOL if node.test else self._known.substitute(found)

    def _field(self, node: Node, operand: Node, name: str, *, optional: bool = False) -> Type:
        of = self._known.substitute(self.check(operand))
        unwrapped = of.params[0] if of.name == "optional_type" and of.params else of
        found = self._field_of(node, unwrapped, name)
        return optional_of(found) if optional or unwrapped is not of else found

    def _field_of(self, node: Node, of: Type, name: str) -> Type:
        if of.kind == "map":
            return of.params[1]
        if of.kind == "struct":
            return self._member(node, self._fields(of.name) or {}, name)
        if of.kind == "param":
            self._known.assignable([(DYN, of)])
        elif not of.is_dyn:
            self._error(node.position, f"type '{of}' does not support field selection")
        return DYN

    def _member(self, node: Node, fields: Mapping[str, Type], name: str) -> Type:
        if name in fields:
            return fields[name]
        escaped = f"__{name}__"
        if escaped not in fields:
            return self._error(node.position, f"undefined field '{name}'")
        # A word of the language is a name after a dot, too.
        if isinstance(node, Select):
            node.name = escaped
        elif isinstance(node, Call) and isinstance(node.args[1], Literal):
            node.args[1].value = escaped
        return fields[escaped]

    def call(self, node: Call) -> Type:
        if node.function == "_?._":
            name = node.args[1]
            assert isinstance(name, Literal)
            self._types[name.id] = STRING
            return self._known.substitute(self._field(node, node.args[0], name.value, optional=True))
        self._mixed += node.function == "format"
        args = [self.check(arg) for arg in node.args]
        self._mixed -= node.function == "format"
        if node.target is None:
            return self._resolve(node, node.function.removeprefix("."), args)
        prefix = qualified_name(node.target)
        if prefix is not None and f"{prefix}.{node.function}" in self._functions:
            # A function with a dot in its name.
            node.function, node.target = f"{prefix}.{node.function}", None
            return self._resolve(node, node.function, args)
        return self._resolve(node, node.function, [self.check(node.target), *args])

    def _resolve(self, node: Call, name: str, args: list[Type]) -> Type:
        candidates = self._functions.get(name)
        if candidates is None:
            return self._undeclared(node, name)
        if name in ("_&&_", "_||_"):
            return self._logical(node, args)
        take(len(candidates) >> 2)
        found: list[Overload] = []
        result: Type | None = None
        for overload in candidates:
            if overload.member != (node.target is not None) or len(overload.params) != len(args):
                continue
            *params, outcome = self._instance(overload)
            if not self._known.assignable(list(zip(args, params, strict=True))):
                continue
            found.append(overload)
            outcome = self._known.substitute(outcome)
            result = outcome if result is None or result == outcome else DYN
        if result is None:
            shown = [str(self._known.substitute(arg, to_dyn=True)) for arg in args]
            applied = f"{shown[0]}.({', '.join(shown[1:])})" if node.target is not None else f"({', '.join(shown)})"
            return self._error(node.position, f"found no matching overload for '{name}' applied to '{applied}'")
        self._overloads[node.id] = tuple(found)
        return result

    def _instance(self, overload: Overload) -> tuple[Type, ...]:
        """The types of an overload, with type parameters of their own."""
        whole = (*overload.params, overload.result)
        if not any(has_parameters(part) for part in whole):
            return whole
        fresh = Substitutions({name: self._known.fresh() for name in _parameters(whole)})
        return tuple(fresh.substitute(part) for part in whole)

    def _logical(self, node: Call, args: list[Type]) -> Type:
        for arg, of in zip(node.args, args, strict=True):
            if not self._known.assignable([(of, BOOL)]):
                self._mismatch(arg, BOOL, of)
        self._overloads[node.id] = self._functions[node.function]
        return BOOL

    def _mismatch(self, node: Node, expected: Type, found: Type) -> Type:
        return self._error(node.position, f"expected type '{expected}' but found '{found}'")

    def _joined(self, node: Node, before: Type | None, of: Type) -> Type:
        """The one type of the elements of a list or a map."""
        if before is None:
            return of
        if self._known.assignable([(before, of)]):
            return before if less_specific(before, of) else of
        if self._mixed:
            return DYN
        return self._mismatch(node, before, of)

    def _unwrapped(self, node: Node, of: Type) -> Type:
        """The type of an optional element."""
        if of.name == "optional_type":
            return of.params[0]
        if not of.is_dyn:
            self._mismatch(node, optional_of(of), of)
        return of

    def list_literal(self, node: ListLiteral) -> Type:
        joined: Type | None = None
        for index, item in enumerate(node.items):
            of = self.check(item)
            joined = self._joined(item, joined, self._unwrapped(item, of) if index in node.optional else of)
        return list_of(joined if joined is not None else self._known.fresh())

    def map_literal(self, node: MapLiteral) -> Type:
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            key = self._joined(entry.key, key, self.check(entry.key))
            of = self.check(entry.value)
            value = self._joined(entry.value, value, self._unwrapped(entry.value, of) if entry.optional else of)
        return map_of(key or self._known.fresh(), value or self._known.fresh())

    def struct(self, node: StructLiteral) -> Type:
        """No type of Kubernetes can be made so."""
        for part in node.fields:
            self.check(part.value)
        name = node.type_name
        if name in _TYPE_NAMES:
            return self._error(node.position, f"'{name}' is not a message type")
        return self._undeclared(node, name)

    def comprehension(self, node: Comprehension) -> Type:
        over = self._known.substitute(self.check(node.range))
        accumulated = self.check(node.start)
        self._scopes.append({node.accumulator: accumulated})
        self._scopes.append(dict(zip((node.variable, node.second), self._elements(node, over), strict=True)))
        self._assert(node.condition, BOOL)
        self._assert(node.step, accumulated)
        self._scopes.pop()
        result = self.check(node.result)
        self._scopes.pop()
        return self._known.substitute(result)

    def _elements(self, node: Comprehension, over: Type) -> tuple[Type, Type]:
        """The types of the two variables."""
        if over.kind == "list":
            return (INT, over.params[0]) if node.second else (over.params[0], over.params[0])
        if over.kind == "map":
            return over.params[0], over.params[1]
        if over.kind == "param":
            self._known.assignable([(DYN, over)])
        elif not over.is_dyn:
            why = f"expression of type '{over}' cannot be range of a comprehension (must be list, map, or dynamic)"
            self._error(node.range.position, why)
            return ERROR, ERROR
        return DYN, DYN

    def _assert(self, node: Node, expected: Type) -> None:
        of = self.check(node)
        if not self._known.assignable([(expected, of)]):
            self._mismatch(node, self._known.substitute(expected), of)


_CHECKS: Final[Mapping[type[Node], Callable[[_Checker, Any], Type]]] = {
    Literal: _Checker.literal,
    Ident: _Checker.ident,
    Select: _Checker.select,
    Call: _Checker.call,
    ListLiteral: _Checker.list_literal,
    MapLiteral: _Checker.map_literal,
    StructLiteral: _Checker.struct,
    Comprehension: _Checker.comprehension,
}


def _parameters(types: tuple[Type, ...]) -> set[str]:
    names: set[str] = set()
    for of in types:
        names |= {of.name} if of.kind == "param" else _parameters(of.params)
    return names
