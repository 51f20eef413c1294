"""What holds of every schema and every value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.document import Document, copied, same
from koordinator.cluster.strategy.custom import CustomSchema
from koordinator.cluster.structural_schema.explanation import Correlated, explain
from koordinator.cluster.structural_schema.node import Node, read
from koordinator.cluster.structural_schema.pruning import drop, fill, to_drop
from koordinator.cluster.structural_schema.validity import accepts, normality_of, validators_of

NAMES = st.sampled_from("abc")
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.5, 2.0, -1.5]), st.sampled_from(["", "a", "bcd"])
)
VALUES = st.recursive(
    SCALARS, lambda below: st.lists(below, max_size=3) | st.dictionaries(NAMES, below, max_size=3), max_leaves=12
)
RESTRICTIONS: st.SearchStrategy[Document] = st.fixed_dictionaries(
    {},
    optional={
        "minimum": st.sampled_from([-1, 0.5, 2]),
        "maximum": st.sampled_from([0, 1.5]),
        "exclusiveMaximum": st.booleans(),
        "multipleOf": st.sampled_from([2, 0.5]),
        "minLength": st.just(1),
        "maxLength": st.just(2),
        "pattern": st.sampled_from(["^a", "b"]),
        "enum": st.lists(SCALARS, min_size=1, max_size=3),
        "minItems": st.just(1),
        "maxItems": st.just(1),
        "maxProperties": st.just(1),
        "required": st.lists(NAMES, max_size=1),
        "format": st.sampled_from(["date", "uuid"]),
    },
)


def _schemas(below: st.SearchStrategy[Document]) -> st.SearchStrategy[Document]:
    scalar = st.sampled_from(["string", "integer", "number", "boolean"]).map(lambda kind: {"type": kind})
    either = st.just({"x-kubernetes-int-or-string": True})
    listed = below.map(lambda items: {"type": "array", "items": items})
    mapped = below.map(lambda values: {"type": "object", "additionalProperties": values})
    held = st.dictionaries(NAMES, below, max_size=3).map(
        lambda properties: {"type": "object", "properties": properties}
    )
    more: st.SearchStrategy[Document] = st.fixed_dictionaries(
        {},
        optional={
            "nullable": st.booleans(),
            "allOf": st.lists(RESTRICTIONS, min_size=1, max_size=2),
            "anyOf": st.lists(RESTRICTIONS, min_size=1, max_size=2),
            "oneOf": st.lists(RESTRICTIONS, min_size=1, max_size=2),
            "not": RESTRICTIONS,
        },
    )
    return st.tuples(scalar | either | listed | mapped | held, more, RESTRICTIONS).map(
        lambda parts: {**parts[1], **parts[2], **parts[0]}
    )


SCHEMAS = st.recursive(_schemas(st.just({"type": "string"})), _schemas, max_leaves=6)
WITH_DEFAULTS = st.recursive(
    st.one_of(
        st.sampled_from(["a", "b"]).map(lambda text: {"type": "string", "default": text}),
        st.just({"type": "integer", "nullable": True, "default": 1}),
    ),
    lambda below: st.one_of(
        st.dictionaries(NAMES, below, max_size=3).map(
            lambda fields: {"type": "object", "properties": fields, "default": {}}
        ),
        below.map(lambda items: {"type": "array", "items": items}),
        below.map(lambda values: {"type": "object", "additionalProperties": values}),
    ),
    max_leaves=6,
)


def whole(node: Node) -> Node:
    """Of a whole object, with metadata of its own."""
    return replace(node, embedded=True)


def _object(value: Any) -> Document:
    return {"metadata": {"name": "n"}, "spec": copied(value)}


@given(SCHEMAS, VALUES)
def test_the_quick_response_agrees_with_the_explanation(schema: Document, value: Any) -> None:
    node = read(schema)
    assert accepts(validators_of(node), value) == (not explain(node, value))


MORE = ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource", "additionalProperties", "nullable")


@given(SCHEMAS | WITH_DEFAULTS, st.sampled_from(("", *MORE)), VALUES)
def test_what_is_normal_is_left_as_it_is(schema: Document, more: str, value: Any) -> None:
    node = read({"type": "object", "properties": {"spec": {**schema, more: True}}})
    obj = _object(value)
    normal = copied(obj)
    drop(to_drop(whole(node), normal))
    fill(node, normal)
    accepted, is_normal = accepts(normality_of(whole(node)), obj), same(obj, normal)
    assert accepted == is_normal or (more and is_normal), "only where more is allowed it may say no to a normal object"


@given(SCHEMAS, VALUES)
def test_what_has_not_changed_passes(schema: Document, value: Any) -> None:
    node = read({"type": "object", "properties": {"spec": schema}})
    obj = {"spec": value}
    named = not to_drop(whole(node), obj)
    assert not named or not explain(node, obj, Correlated(obj, copied(obj), node))


@given(SCHEMAS, VALUES)
def test_pruning_twice_is_pruning_once(schema: Document, value: Any) -> None:
    node = whole(read({"type": "object", "properties": {"spec": schema}}))
    obj = _object(value)
    drop(to_drop(node, obj))
    assert to_drop(node, obj) == []


@given(WITH_DEFAULTS, VALUES)
def test_defaulting_twice_is_defaulting_once(schema: Document, value: Any) -> None:
    custom = CustomSchema({"type": "object", "properties": {"spec": schema}})
    obj = _object(value)
    custom.normalize(obj)
    once = copied(obj)
    custom.normalize(obj)
    assert same(obj, once)


@given(WITH_DEFAULTS, VALUES)
def test_what_was_valid_stays_valid(schema: Document, value: Any) -> None:
    custom = CustomSchema({"type": "object", "properties": {"spec": schema}})
    obj = _object(value)
    custom.normalize(obj)
    first = custom.causes(obj, None)
    again = copied(obj)
    custom.normalize(again)
    assert custom.causes(again, obj) == [] or first != []
