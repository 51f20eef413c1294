"""Whether a value fits its schema, and whether it is normal: what pruning and defaulting would leave as it is. Both
are closures that return yes or no, made once for each schema.

A compiled schema is a mapping from the type of a value to a validator (None: every value is valid). Who holds the
value looks the validator up, so that a scalar without keywords, which most are, costs no call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from koordinator.cluster.resource import Cause
from koordinator.cluster.structural_schema.failure import go_json, shown
from koordinator.cluster.structural_schema.keywords import (
    Keyword,
    in_enum,
    is_whole,
    of_format,
    of_lists,
    of_numbers,
    of_objects,
    of_strings,
)
from koordinator.cluster.structural_schema.node import META_FIELDS, NOTHING, Node

Validator = Callable[[Any], object]
Validators = Mapping[type, Validator | None]
KINDS: Final[Mapping[type, str]] = {
    bool: "boolean",
    str: "string",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
}
_SCALARS: Final[Validators] = dict.fromkeys((bool, str, int, float, type(None)))
_ANYTHING: Final[Validators] = dict.fromkeys((*KINDS, type(None)))


def rejects_all(value: Any) -> bool:
    return False


def accepts(validators: Validators, value: Any) -> bool:
    """Whether one value is valid."""
    validator = validators.get(type(value), rejects_all)
    return validator is None or bool(validator(value))


def validators_of(node: Node) -> Validators:
    """Compile a schema."""
    compiled: dict[type, Validator | None] = {}
    if takes_null(node) and not node.enum:
        compiled[type(None)] = None
    junctors = {id(part): validators_of(part) for part in node.junctors}
    for kind in KINDS:
        if (typed := type_validator(node, kind)) is not rejects_all:
            validator = _all([typed, *_of_kind(node, kind), *_junctors(node, kind, junctors)])
            if validator is not rejects_all:
                compiled[kind] = validator
    return compiled


def takes_null(node: Node) -> bool:
    return node.nullable or not node.types


def type_validator(node: Node, kind: type) -> Validator | None:
    """Whether values of a Python type fit the schema's: None for all, ``never`` for none."""
    name = KINDS[kind]
    if (not node.types and not node.format) or name in node.types or (kind is int and "number" in node.types):
        return None
    # A format says that texts and lists fit, whatever the type; so the real server has it.
    numeric = "number" in node.types or "integer" in node.types
    if node.format and not numeric and kind in (str, list):
        return None
    return is_whole if kind is float and "integer" in node.types else rejects_all


def _of_kind(node: Node, kind: type) -> list[Validator]:
    if kind is str:
        return _holding([*of_strings(node), *of_format(node)])
    if kind in (int, float):
        return _holding(of_numbers(node, whole=kind is int))
    if kind is list:
        return [*_items(node), *_holding(of_lists(node))]
    if kind is dict:
        return [*_holding(of_objects(node)), *_members(node)]
    return []


def _holding(keywords: list[Keyword]) -> list[Validator]:
    return [keyword.holds for keyword in keywords]


def _items(node: Node) -> list[Validator]:
    if node.items is None:
        return []
    validator = _items_fit(validators_of(node.items))
    return [] if validator is None else [validator]


def _items_fit(compiled: Validators) -> Validator | None:
    if all(compiled.get(kind, rejects_all) is None for kind in (*KINDS, type(None))):
        return None

    def fit(items: list[Any]) -> bool:
        for item in items:
            validator = compiled.get(type(item), rejects_all)
            if validator is not None and not validator(item):
                return False
        return True

    return fit


def _members(node: Node) -> list[Validator]:
    known = {name: validators_of(part) for name, part in node.properties.items()}
    rest: Validators | None = None
    if node.additional is False:
        rest = {}
    elif (additional := node.additional_node) is not None:
        rest = validators_of(additional)
    validators: list[Validator] = []
    if node.required:
        required = frozenset(node.required)
        validators.append(lambda obj: required <= obj.keys())
    if known or rest is not None:
        validators.append(_members_fit(known, rest))
    return validators


def _members_fit(known: Mapping[str, Validators], rest: Validators | None) -> Validator:
    def fit(obj: dict[str, Any]) -> bool:
        for name, value in obj.items():
            compiled = known.get(name, rest)
            if compiled is not None:
                validator = compiled.get(type(value), rejects_all)
                if validator is not None and not validator(value):
                    return False
        return True

    return fit


def _junctors(node: Node, kind: type, compiled: Mapping[int, Validators]) -> list[Validator | None]:
    """What ``allOf``, ``anyOf``, ``oneOf`` and ``not`` require of values of one type; most of it is known beforehand.

    ``compiled`` holds the validators of each of their schemas.
    """

    def of(parts: Sequence[Node]) -> list[Validator | None]:
        return [compiled[id(part)].get(kind, rejects_all) for part in parts]

    validators = of(node.all_of)
    if node.any_of:
        validators.append(_any(of(node.any_of)))
    if node.one_of:
        validators.append(_one(of(node.one_of)))
    if node.negated is not None:
        validators.append(_not(of((node.negated,))[0]))
    if node.enum:
        validators.append(lambda value: in_enum(node, value))
    return validators


def _any(validators: list[Validator | None]) -> Validator | None:
    compiled = [validator for validator in validators if validator is not rejects_all]
    if None in compiled:
        return None
    if len(compiled) < 2:
        return compiled[0] if compiled else rejects_all
    return lambda value: any(validator(value) for validator in compiled if validator is not None)


def _one(validators: list[Validator | None]) -> Validator | None:
    certain = validators.count(None)
    compiled = [validator for validator in validators if validator is not None and validator is not rejects_all]
    if not compiled:
        return None if certain == 1 else rejects_all
    return lambda value: certain + sum(bool(validator(value)) for validator in compiled) == 1


def _not(validator: Validator | None) -> Validator | None:
    if validator is None:
        return rejects_all
    return None if validator is rejects_all else lambda value: not validator(value)


def _all(validators: list[Validator | None]) -> Validator | None:
    compiled = [validator for validator in validators if validator is not None]
    if rejects_all in compiled:
        return rejects_all
    if len(compiled) < 2:
        return compiled[0] if compiled else None
    if len(compiled) == 2:
        first, second = compiled
        return lambda value: first(value) and second(value)
    return lambda value: all(validator(value) for validator in compiled)


# Normal objects: nearly all are, and then neither ``pruning`` nor defaulting has to walk through them.


def normality_of(node: Node) -> Validators:
    """Compile what tells normal values of a schema, valid or not. A few are not recognized, where more than the schema
    names is allowed; these are pruned in vain."""
    # Nothing is pruned of the metadata of a whole object, whatever the schema says of it.
    kept = META_FIELDS if node.embedded else ()
    known: dict[str, Validators] = {}
    for name in (*node.properties, *kept):
        of = node.properties.get(name) or node.additional_node or NOTHING
        known[name] = _held(of, _ANYTHING if name in kept and not of.any("default") else normality_of(of))
    members: list[Validator | None] = [_members_fit(known, _rest(node))]
    if defaulted := frozenset(name for name, part in node.properties.items() if part.default is not None):
        members.append(lambda obj: defaulted <= obj.keys())
    if node.items is not None:
        items = _held(node.items, normality_of(node.items))
    else:
        items = _ANYTHING if node.preserves_unknown else _SCALARS
    return {**_SCALARS, dict: _all(members), list: _items_fit(items)}


def _held(node: Node, compiled: Validators) -> Validators:
    """A null that is not taken is dropped, or gives way to the default."""
    return compiled if node.nullable else {kind: compiled[kind] for kind in KINDS if kind in compiled}


def _rest(node: Node) -> Validators | None:
    """Of members that ``properties`` does not name."""
    if (additional := node.additional_node) is not None:
        return _held(additional, normality_of(additional))
    if node.additional is not None:
        return _SCALARS
    return None if node.preserves_unknown else {}


# Lists of type ``set`` and ``map``: no item, and no combination of keys, twice.


Check = Callable[[Any, str], list[Cause]]
"""(value, path) -> causes."""


def checker(node: Node) -> Check | None:
    """None where nothing below is such a list."""
    members = {name: found for name, part in node.properties.items() if (found := checker(part)) is not None}
    additional = checker(node.additional_node) if node.additional_node is not None else None
    items = checker(node.items) if node.items is not None else None
    own = {"set": _set, "map": _map}.get(node.list_type)
    if not (members or additional or items or own):
        return None

    def check(value: Any, path: str) -> list[Cause]:
        causes: list[Cause] = []
        if isinstance(value, list):
            causes += own(node, value, path) if own is not None else []
            for index, item in enumerate(value if items is not None else ()):
                causes += items(item, f"{path}[{index}]") if items is not None else []
        elif isinstance(value, dict):
            for name, item in value.items() if additional is not None else ():
                causes += additional(item, f"{path}[{name}]") if additional is not None else []
            for name, deeper in members.items():
                if name in value:
                    causes += deeper(value[name], f"{path}.{name}" if path else name)
        return causes

    return check


def _set(node: Node, items: list[Any], path: str) -> list[Cause]:
    return [_duplicate(f"{path}[{index}]", items[index]) for index in _repeated(items)]


def _map(node: Node, items: list[Any], path: str) -> list[Cause]:
    for index, item in enumerate(items):
        if item is not None and not isinstance(item, dict):
            message = f"Invalid value: {shown(item)}: must be an object for an array of list-type map"
            return [Cause("FieldValueInvalid", f"{path}[{index}]", message)]
    keys = [{name: item[name] for name in node.list_map_keys if name in item} if item else {} for item in items]
    return [_duplicate(f"{path}[{index}]", keys[index]) for index in _repeated(keys)]


def _repeated(items: Iterable[Any]) -> list[int]:
    """Where something comes for the second time; the third is not reported again."""
    seen: dict[tuple[type, Any], int] = {}
    repeated = []
    for index, item in enumerate(items):
        key = (type(item), go_json(item) if isinstance(item, (dict, list)) else item)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] == 2:
            repeated.append(index)
    return repeated


def _duplicate(path: str, value: Any) -> Cause:
    return Cause("FieldValueDuplicate", path, f"Duplicate value: {shown(value)}")
