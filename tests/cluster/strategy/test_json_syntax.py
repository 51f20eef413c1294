"""The words for bad JSON are those of Go's decoder, which gave them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.document import repeated_fields, repeated_names
from koordinator.cluster.strategy.json_syntax import object_syntax_error

_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=4), _JSON, max_size=4))
def test_objects_are_fine(value: dict[str, object]) -> None:
    assert object_syntax_error(msgspec.json.encode(value)) == ""


@given(st.binary())
def test_any_bytes_get_a_response(text: bytes) -> None:
    assert isinstance(object_syntax_error(text), str)


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("", "unexpected end of JSON input"),
        ("null", ""),
        ("[1]", "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        ("-1", "json: cannot unmarshal number into Go value of type map[string]interface {}"),
        ("true", "json: cannot unmarshal bool into Go value of type map[string]interface {}"),
        ('{"a"}', "invalid character '}' after object key"),
        ('{"a":1 2', "invalid character '2' after object key:value pair"),
        ("[1 2", "invalid character '2' after array element"),
        ('{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        ("{'a':1}", "invalid character '\\'' looking for beginning of object key string"),
        ('{"a":.5}', "invalid character '.' looking for beginning of value"),
        ('{"a":1.}', "invalid character '}' after decimal point in numeric literal"),
        ('{"a":1e}', "invalid character '}' in exponent of numeric literal"),
        ('{"a":-', "invalid character ' ' in numeric literal"),
        ('{"a":01}', "invalid character '1' after object key:value pair"),
        ('{"a":tru', "invalid character ' ' in literal true (expecting 'e')"),
        ('{"a":nil}', "invalid character 'i' in literal null (expecting 'u')"),
        ('{"a":"\\x"}', "invalid character 'x' in string escape code"),
        ('{"a":"\\u00g0"}', "invalid character 'g' in \\u hexadecimal character escape"),
        ('{"a":"\n"}', "invalid character '\\n' in string literal"),
        ('{"a":"b', "unexpected end of JSON input"),
        ("{} {}", "invalid character '{' after top-level value"),
    ],
)
def test_error(text: str, detail: str) -> None:
    assert object_syntax_error(text.encode()) == detail


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        (b'{"a":1}', []),
        (b'{ "a" : 1, "b": {"a": 2} }', []),
        (b'{"a":1,"a":1}', ["a"]),
        (b'{"spec":{"containers":[{"name":"a"},{"name":"b","name":"c"}]}}', ["spec.containers[1].name"]),
        (b'{"x":{"a":1,"b":2,"b":3,"a":4}}', ["x.a", "x.b"]),
    ],
)
def test_members_of_one_name_are_found(text: bytes, paths: list[str]) -> None:
    assert repeated_fields(text, msgspec.json.decode(text)) == paths


class _Name(str):
    """It counts how often names are compared; equal ones are other objects, as in a decoded text."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        _Name.compared += 1
        return str(self) == str(other)


def test_names_that_repeat_are_found_with_few_comparisons() -> None:
    texts = [f"name-{number}" for number in range(500)]
    assert repeated_names([_Name(text) for text in (*texts, *texts)]) == texts
    assert 500 <= _Name.compared < 5000
