from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_origin

import msgspec
import pytest

from koordinator.api import codec, meta
from koordinator.api.meta import Object
from koordinator.api.struct_fields import bare_type, struct_fields
from koordinator.api.validation import validate
from tests.api.sample_objects import CUSTOM_KINDS, load_sample, without_empty_structs


def _decoded(name: str) -> Object:
    decoded: Object = codec.decode(msgspec.json.encode(load_sample(name)), CUSTOM_KINDS[name].type)
    return decoded


@pytest.mark.parametrize("name", CUSTOM_KINDS)
def test_a_sample_is_encoded_to_what_it_was_decoded_from(name: str) -> None:
    sample = load_sample(name)
    assert without_empty_structs(codec.decode_any(codec.encode(_decoded(name))), sample) == sample


@pytest.mark.parametrize("name", CUSTOM_KINDS)
def test_a_sample_sets_every_field_of_its_kind(name: str) -> None:
    kind = CUSTOM_KINDS[name].type
    assert set(_fields_of(kind)) - set(_fields_set(load_sample(name), kind)) == set()


@pytest.mark.parametrize("name", CUSTOM_KINDS)
def test_a_sample_is_valid(name: str) -> None:
    assert validate(_decoded(name)) == []


@pytest.mark.parametrize("name", CUSTOM_KINDS)
def test_an_object_of_nulls_decodes_to_an_empty_one(name: str) -> None:
    kind: type[Object] = CUSTOM_KINDS[name].type
    nulls = dict.fromkeys((field.wire_name for field in struct_fields(kind)), None)
    assert codec.decode(msgspec.json.encode(nulls), kind) == kind()


def _fields_set(document: Any, hint: Any) -> Iterator[tuple[str, str]]:
    """(struct, field) for every field that a document gives a value."""
    bare, _, _ = bare_type(hint)
    if get_origin(bare) is list:
        for item in document:
            yield from _fields_set(item, get_args(bare)[0])
    elif get_origin(bare) is dict:
        for item in document.values():
            yield from _fields_set(item, get_args(bare)[1])
    elif _is_described(bare):
        for field in struct_fields(bare):
            if field.wire_name in document:
                yield bare.__name__, field.wire_name
                if not field.schema.schemaless:
                    yield from _fields_set(document[field.wire_name], field.type)


def _fields_of(hint: Any) -> Iterator[tuple[str, str]]:
    """(struct, field) for every field that the type allows, at all depths."""
    bare, _, _ = bare_type(hint)
    for argument in get_args(bare):
        yield from _fields_of(argument)
    if _is_described(bare):
        for field in struct_fields(bare):
            yield bare.__name__, field.wire_name
            if not field.schema.schemaless:
                yield from _fields_of(field.type)


def _is_described(bare: Any) -> bool:
    """Whether the fields are a custom kind's own, not those of metadata, references and selectors."""
    return isinstance(bare, type) and issubclass(bare, msgspec.Struct) and bare.__module__ != meta.__name__
