"""The types that the checker works with, and whether one fits another (cel-go, ``checker/types.go``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Type:
    """``kind`` is what the rules distinguish; ``name`` is what is printed."""

    kind: str
    name: str
    params: tuple[Type, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(str(param) for param in self.params)})" if self.params else self.name

    @property
    def is_dyn(self) -> bool:
        return self.kind in ("dyn", "error")


BOOL: Final = Type("bool", "bool")
INT: Final = Type("int", "int")
UINT: Final = Type("uint", "uint")
DOUBLE: Final = Type("double", "double")
STRING: Final = Type("string", "string")
BYTES: Final = Type("bytes", "bytes")
NULL: Final = Type("null", "null")
DYN: Final = Type("dyn", "dyn")
ERROR: Final = Type("error", "!error!")
TIMESTAMP: Final = Type("timestamp", "timestamp")
DURATION: Final = Type("duration", "duration")
TYPE: Final = Type("type", "type")
SCALARS: Final = frozenset(("bool", "double", "duration", "int", "timestamp", "uint"))
_NAMED: Final[Mapping[str, Type]] = {
    **{kind.name: kind for kind in (BOOL, INT, UINT, DOUBLE, STRING, BYTES, DYN, TIMESTAMP, DURATION, TYPE)},
    "null_type": NULL,
    "google.protobuf.Timestamp": TIMESTAMP,
    "google.protobuf.Duration": DURATION,
}
_OPAQUE: Final = ("net.IP", "net.CIDR")


def list_of(item: Type) -> Type:
    return Type("list", "list", (item,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", "map", (key, value))


def optional_of(value: Type) -> Type:
    return Type("opaque", "optional_type", (value,))


def type_of(value: Type) -> Type:
    return Type("type", "type", (value,))


def object_type(name: str) -> Type:
    return Type("struct", name)


def named(text: str) -> Type:
    """A type as the table of functions writes it: ``list(A)``; a single capital letter is any type."""
    head, _, rest = text.partition("(")
    params = tuple(named(part) for part in _split(rest[:-1])) if rest else ()
    if head == "optional":
        return optional_of(params[0])
    if params:
        return Type(head, head, params)
    if len(head) == 1:
        return Type("param", head)
    found = _NAMED.get(head)
    return found if found is not None else Type("opaque" if head in _OPAQUE else "struct", head)


def _split(text: str) -> list[str]:
    """At the commas that are in no bracket."""
    parts, depth, start = [], 0, 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            parts.append(text[start:index].strip())
            start = index + 1
    return [*parts, text[start:].strip()] if text.strip() else []


split_parameters: Final[Callable[[str], list[str]]] = _split


def has_parameters(of: Type) -> bool:
    return of.kind == "param" or any(has_parameters(param) for param in of.params)


@dataclass(slots=True)
class Substitutions:
    """What stands for the type parameters so far; what is tried and does not fit is undone."""

    known: dict[str, Type] = field(default_factory=dict)
    _undo: list[tuple[str, Type | None]] = field(default_factory=list)
    _fresh: int = 0

    def fresh(self) -> Type:
        self._fresh += 1
        return Type("param", f"_var{self._fresh - 1}")

    def assignable(self, pairs: list[tuple[Type, Type]]) -> bool:
        """Whether each first type fits the second one; what stands for parameters is remembered if all do."""
        self._undo.clear()
        if all(self._fits(left, right) for left, right in pairs):
            return True
        for name, before in reversed(self._undo):
            if before is None:
                del self.known[name]
            else:
                self.known[name] = before
        return False

    def substitute(self, of: Type, *, to_dyn: bool = False) -> Type:
        if of.kind == "param":
            known = self.known.get(of.name)
            if known is not None:
                return self.substitute(known, to_dyn=to_dyn)
            return DYN if to_dyn else of
        if not of.params:
            return of
        return Type(of.kind, of.name, tuple(self.substitute(param, to_dyn=to_dyn) for param in of.params))

    def _add(self, name: str, of: Type) -> None:
        self._undo.append((name, self.known.get(name)))
        self.known[name] = of

    def _fits(self, left: Type, right: Type) -> bool:
        if right.kind == "param":
            valid, known = self._stands_for(left, right)
            if valid or known:
                return valid
        if left.kind == "param":
            return self._stands_for(right, left)[0]
        if left.is_dyn or right.is_dyn:
            return True
        if left.kind == "null" or right.kind == "null":
            other = right if left.kind == "null" else left
            return other.kind in ("null", "opaque", "struct", "duration", "timestamp")
        if left.kind == "type":
            return right.kind == "type"
        if left.kind != right.kind or left.name != right.name or len(left.params) != len(right.params):
            return False
        return all(self._fits(one, other) for one, other in zip(left.params, right.params, strict=True))

    def _stands_for(self, of: Type, parameter: Type) -> tuple[bool, bool]:
        """Whether the parameter may be this type, and whether it was something before."""
        if of == parameter:
            return True, True
        known = self.known.get(parameter.name)
        if known is None:
            if not self._free_of(parameter, of):
                return False, False
            self._add(parameter.name, of)
            return True, False
        if of == known:
            return True, True
        if not self._fits(of, known):
            return False, True
        general = of if less_specific(of, known) else known
        if self._free_of(parameter, general):
            self._add(parameter.name, general)
        return True, True

    def _free_of(self, parameter: Type, within: Type) -> bool:
        """Whether the parameter does not occur in a type."""
        if parameter == within:
            return False
        if within.kind == "param":
            known = self.known.get(within.name)
            return known is None or self._free_of(parameter, known)
        return all(self._free_of(parameter, param) for param in within.params)


def less_specific(left: Type, right: Type) -> bool:
    """Whether the first type is the same or has ``dyn`` where the second one has more."""
    if left.kind in ("dyn", "param"):
        return True
    if right.kind in ("dyn", "param") or left.kind != right.kind:
        return False
    if left.kind == "type":
        return True
    if left.name != right.name or len(left.params) != len(right.params):
        return False
    return all(less_specific(one, other) for one, other in zip(left.params, right.params, strict=True))
