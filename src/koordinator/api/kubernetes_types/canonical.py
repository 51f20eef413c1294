"""Documents of built-in kinds in the form that the real server gives them.

There each object passes through a Go struct on its way in and out: wrong types are refused, quantities and times get
their one canonical text, empty optional fields disappear and required ones appear as zero. The same is done here on
the JSON document, and fields that the table does not know are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from datetime import datetime
from functools import cache
from typing import Any, Final

from koordinator.api.base64_text import Base64Error, decode_base64, encode_base64
from koordinator.api.document import Document
from koordinator.api.kubernetes_types.schema_values import check_schema
from koordinator.api.kubernetes_types.table import TYPE_META, Field, ObjectType, Shape, Type, go_names
from koordinator.api.quantity import Quantity, QuantityError
from koordinator.api.timestamps import format_micro_time, format_time
from koordinator.base.errors import KoordinatorError

_QUANTITY_RULE: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_MICRO_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_MICRO_LAYOUT: Final = "2006-01-02T15:04:05.000000Z07:00"
_SECONDS: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_MICRO_SECONDS: Final = re.compile(r"\.\d{6}(Z|[+-]\d\d:\d\d)$")
_ZERO: Final[dict[str, Any]] = {
    "string": "", "bool": False, "int32": 0, "int64": 0, "float64": 0, "Quantity": "0", "IntOrString": 0,
    "Duration": "0s", "bytes": "",
}  # fmt: skip


class WrongType(KoordinatorError):
    """A value that the field's Go type cannot hold; the text is that of Go's JSON decoder."""


class _Mismatch(Exception):
    """A JSON value of another type than its field has. Whoever holds it says where, on the way up: nothing of that is
    needed for the values that are right."""

    def __init__(self, kind: str, of: str, struct: str = "", path: str = "") -> None:
        super().__init__(kind, of)
        self.kind, self.of, self.struct, self.path = kind, of, struct, path

    def within(self, holder: ObjectType, name: str) -> None:
        """It was found in that field of the holder."""
        self.struct = self.struct or f"{holder.name.rpartition('.')[2]}."
        self.path = f"{name}.{self.path}" if self.path else name


def canonicalize(document: Document, of: ObjectType, canonical: Collection[str] = ()) -> None:
    """Change a document in place into what the real server would print. Raises WrongType.

    ``canonical`` names members that have that form already."""
    try:
        _object(document, of, canonical)
    except _Mismatch as error:
        path, name = _in_go(of, error.path, error.of)
        field = f"{error.struct}{path}"
        raise WrongType(f"json: cannot unmarshal {error.kind} into Go struct field {field} of type {name}") from error


def _in_go(of: ObjectType, path: str, name: str) -> tuple[str, str]:
    """The path with the embedded structs in it, and the name of the type that the path ends in."""
    steps: list[str] = []
    holder, field = of, None
    parts = path.split(".")
    for position, step in enumerate(parts):
        if step not in holder.fields:
            # Below the schema of a definition, whose members the table does not hold.
            return ".".join([*steps, *parts[position:]]), name
        field = holder.fields[step]
        steps += [field.embedded, step] if field.embedded else [step]
        inner = field.type
        while inner.element is not None:
            inner = inner.element
        if inner.shape is Shape.OBJECT:
            owner, holder = holder, inner.members
        else:
            owner = holder
    assert field is not None
    return ".".join(steps), _type_in_go(owner, field, name)


def _type_in_go(owner: ObjectType, field: Field, name: str) -> str:
    """Of a field, or of what it holds: whichever ``name`` is the name of."""
    recorded = (go_names().get(owner.name) or {}).get(field.name)
    if recorded is None:
        return name
    level: Type | None = field.type
    for found in recorded.split("|"):
        if level is not None and _default_name(level) == name:
            return found
        level = level.element if level is not None else None
    return name


def _default_name(of: Type) -> str:
    if of.shape is Shape.LIST:
        return f"[]{_go_name(of.of)}"
    return f"map[string]{_go_name(of.of)}" if of.shape is Shape.MAP else _go_name(of)


def _object(value: Document, of: ObjectType, canonical: Collection[str] = ()) -> None:
    # A type has far more fields than an object of it: what is given leads, not what could be.
    for name in list(value):
        if name in canonical:
            continue
        field = of.fields.get(name)
        given = value[name]
        if field is None:
            if name in TYPE_META and of.is_kind and given is not None and type(given) is not str:
                raise _mismatch(given, "string", f"{of.name.rpartition('.')[2]}.", f"TypeMeta.{name}")
            continue
        if given is None:
            del value[name]
            continue
        try:
            scalar = field.type.shape is Shape.SCALAR
            new = _SCALARS[field.type.name](given) if scalar else _value(given, field.type)
        except _Mismatch as error:
            error.within(of, name)
            raise
        if not new and _disappears(field):
            del value[name]
        elif new is not given:
            value[name] = new
    for name, zero in _printed_when_absent(of):
        if name not in value:
            value[name] = zero()


def _disappears(field: Field) -> bool:
    """Whether an empty value does; encoding/json takes no struct for empty, and raw JSON is held by one."""
    return field.omit_empty and not field.pointer and field.type.shape is not Shape.OBJECT and field.type.name != "Raw"


@cache
def _printed_when_absent(of: ObjectType) -> tuple[tuple[str, Callable[[], Any]], ...]:
    """Go prints the zero value of a field unless it is a pointer or may be omitted."""
    return tuple(
        (name, _zero_of(field.type, pointer=field.pointer)) for name, field in of.fields.items() if _prints_zero(field)
    )


def _prints_zero(field: Field) -> bool:
    if field.omit_zero:
        return False
    if field.pointer:
        return not field.omit_empty
    # encoding/json never takes a struct for empty, and these are structs in Go.
    structs = ("Time", "MicroTime", "Duration", "Quantity", "IntOrString")
    return not field.omit_empty or field.type.shape is Shape.OBJECT or field.type.name in structs


def _zero_of(of: Type, *, pointer: bool = False) -> Callable[[], Any]:
    if of.shape is Shape.OBJECT and not pointer:
        members = of.members
        return lambda: {name: zero() for name, zero in _printed_when_absent(members)}
    value = None if pointer else _ZERO.get(of.name)
    return lambda: value


def _value(value: Any, of: Type) -> Any:
    if of.shape is Shape.SCALAR:
        return _SCALARS[of.name](value)
    if of.shape is Shape.OBJECT:
        if type(value) is not dict:
            raise _mismatch(value, _go_name(of))
        _object(value, of.members)
        return value
    if of.shape is Shape.LIST:
        if type(value) is not list:
            raise _mismatch(value, _default_name(of))
        for index, item in enumerate(value):
            value[index] = _element(item, of.of)
        return value
    if type(value) is not dict:
        raise _mismatch(value, _default_name(of))
    for key, item in value.items():
        value[key] = _element(item, of.of)
    return value


def _element(item: Any, of: Type) -> Any:
    if item is not None:
        return _value(item, of)
    if of.shape is Shape.OBJECT:
        return _zero_of(of)()
    return _ZERO.get(of.name)


def _string(value: Any) -> Any:
    if type(value) is str:
        return value
    raise _mismatch(value, "string")


def _bytes(value: Any) -> Any:
    """Go decodes them and writes them anew; it takes a list of numbers, too."""
    if type(value) is list and all(type(item) is int and 0 <= item < 256 for item in value):
        return encode_base64(bytes(value))
    if type(value) is not str:
        raise _mismatch(value, "[]uint8")
    try:
        return encode_base64(decode_base64(value))
    except Base64Error as error:
        raise WrongType(str(error)) from error


def _boolean(value: Any) -> Any:
    if type(value) is bool:
        return value
    raise _mismatch(value, "bool")


def _integer(bits: int) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) is int and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            return value
        raise _mismatch(value, f"int{bits}")

    return check


def _number(value: Any) -> Any:
    if type(value) in (int, float):
        return value
    raise _mismatch(value, "float64")


def _quantity(value: Any) -> Any:
    if type(value) not in (str, int, float):
        raise WrongType(_QUANTITY_RULE)
    try:
        text = str(Quantity.parse(value))
    except QuantityError as error:
        raise WrongType(_QUANTITY_RULE) from error
    return value if text == value else text


def _int_or_string(value: Any) -> Any:
    if type(value) is str or (type(value) is int and -(2**31) <= value < 2**31):
        return value
    raise _mismatch(value, "int32")


def _time(value: Any) -> Any:
    if type(value) is str and _TIME.fullmatch(value):
        return value
    return format_time(_moment(value, "2006-01-02T15:04:05Z07:00"))


def _micro_time(value: Any) -> Any:
    if type(value) is str and _MICRO_TIME.fullmatch(value):
        return value
    # Go insists on six digits here, and on nothing but them.
    if type(value) is str and _SECONDS.match(value) and not _MICRO_SECONDS.search(value):
        raise WrongType(f'parsing time "{value}" as "{_MICRO_LAYOUT}": cannot parse "{value[19:]}" as ".000000"')
    return format_micro_time(_moment(value, _MICRO_LAYOUT))


def _moment(value: Any, layout: str) -> datetime:
    if type(value) is not str:
        raise _mismatch(value, "string")
    try:
        # Nanoseconds are legal in RFC 3339 and too fine for datetime.
        moment = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", value))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or "T" not in value:
        quoted = f'"{value}"'
        raise WrongType(f'parsing time {quoted} as "{layout}": cannot parse {quoted} as "2006"')
    return moment


def _as_given(value: Any) -> Any:
    return value


def _schema(value: Any) -> Any:
    return check_schema(value, "", "", _refuse_schema)


def _refuse_schema(value: Any, struct: str, path: str, of: str) -> _Mismatch:
    return _mismatch(value, of, struct, path.lstrip("."))


_SCALARS: Final[dict[str, Callable[[Any], Any]]] = {
    "string": _string,
    "bytes": _bytes,
    "Duration": _string,
    "bool": _boolean,
    "int32": _integer(32),
    "int64": _integer(64),
    "float64": _number,
    "Quantity": _quantity,
    "IntOrString": _int_or_string,
    "Time": _time,
    "MicroTime": _micro_time,
    "Raw": _as_given,
    "Fields": _as_given,
    "Schema": _schema,
}


def _go_name(of: Type) -> str:
    if of.shape is Shape.OBJECT:
        return ".".join(of.name.split(".")[-2:])
    return {"bytes": "[]uint8"}.get(of.name, of.name) or "interface {}"


def _mismatch(value: Any, of: str, struct: str = "", path: str = "") -> _Mismatch:
    kinds = {str: "string", bool: "bool", list: "array", dict: "object"}
    kind = kinds.get(type(value), "number")
    if kind == "number" and of.startswith(("int", "float")):
        kind = f"number {value}"
    return _Mismatch(kind, of, struct, path)
