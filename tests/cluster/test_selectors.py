from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.cluster.errors import ApiError
from koordinator.cluster.verbs.selection import parse_field_selector, parse_label_selector


def _refusal(parse: Callable[[], object]) -> int | None:
    try:
        parse()
    except ApiError as refused:
        return refused.code
    return None


LABELS = {"app": "web", "tier": "front", "empty": "", "n": "5", "in": "in"}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("", True),
        ("app=web", True),
        ("app==web", True),
        ("app!=web", False),
        ("absent!=web", True),
        ("app in (web, api)", True),
        ("app in(api)", False),
        ("app notin (api)", True),
        ("absent notin (api)", True),
        ("app", True),
        ("!app", False),
        ("! absent", True),
        ("empty=", True),
        ("empty=,app=web", True),
        ("empty in (,x)", True),
        ("empty in ()", True),
        ("n>4", True),
        ("n > 5", False),
        ("n<6,app=web", True),
        ("app>1", False),
        ("in in (in)", True),
        ("app=web,tier!=front", False),
        ("  app = web ,\ttier ", True),
    ],
)
def test_label_selector(selector: str, expected: bool) -> None:
    assert parse_label_selector(selector)(LABELS) is expected


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("a=b,,c", "found ',', expected: identifier after ','"),
        ("x in", "unable to parse requirement: found '' expected: '('"),
        ("x in (a", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("=a", "found '=', expected: !, identifier, or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        (
            "x>y",
            'unable to parse requirement: values[0]: Invalid value: "y": '
            "for 'Gt', 'Lt' operators, the value must be an integer",
        ),
    ],
)
def test_label_selector_refusals_are_the_real_servers(selector: str, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_label_selector(selector)
    assert (refused.value.code, refused.value.message) == (400, message)


@given(st.text(alphabet="ab=!(),<> in\t/.-5", max_size=14))
def test_any_text_is_parsed_or_refused(selector: str) -> None:
    assert _refusal(lambda: parse_label_selector(selector)({"a": "b"})) in (None, 400)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("", []),
        ("spec.nodeName=", [("spec.nodeName", "=", "")]),
        ("a=b,c!=d,e==f", [("a", "=", "b"), ("c", "!=", "d"), ("e", "=", "f")]),
        (r"a=b\,c\=d\\", [("a", "=", "b,c=d\\")]),
    ],
)
def test_field_selector(selector: str, expected: list[tuple[str, str, str]]) -> None:
    assert parse_field_selector(selector) == expected


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
        ("a=\\b", "invalid field selector: invalid escape sequence: \\b"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
    ],
)
def test_field_selector_refusals(selector: str, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_field_selector(selector)
    assert (refused.value.code, refused.value.message) == (400, message)


@given(st.text(alphabet="ab=!\\,.", max_size=12))
def test_any_field_selector_is_parsed_or_refused(selector: str) -> None:
    assert _refusal(lambda: parse_field_selector(selector)) in (None, 400)
