"""An object that is nested deeper than any decoder goes, as API servers let in where a schema allows any fields: it is
malformed, and the others of its list and its watch are read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.codec import NESTED, decode_any, without_nesting
from koordinator.api.kinds import CLUSTER_COLOCATION_PROFILES, PODS, RESERVATIONS, Kind
from koordinator.kube.decoding import decode_list, decode_list_in_slices
from koordinator.kube.interface import ListPage, Malformed
from koordinator.kube.watch import EventReader

_DEPTH: Final = 9000
"""Kubernetes' own decoder goes to 10,000."""
_NESTED: Final = '{"a":[' * (_DEPTH // 2) + "]}" * (_DEPTH // 2)
_CASES: Final = [
    (CLUSTER_COLOCATION_PROFILES, f'"spec":{{"patch":{_NESTED}}}'),
    (RESERVATIONS, f'"spec":{{"template":{_NESTED}}}'),
    (PODS, f'"unknown":{_NESTED}'),
]
_READERS: Final[list[Callable[..., ListPage[Any]]]] = [
    decode_list,
    lambda *given: asyncio.run(decode_list_in_slices(*given)),
]


def _object(name: str, inside: str) -> str:
    return f'{{"metadata":{{"name":"{name}","resourceVersion":"5","uid":"of-{name}"}},{inside}}}'


@pytest.mark.parametrize("read", _READERS, ids=["at once", "in slices"])
@pytest.mark.parametrize(("kind", "inside"), _CASES, ids=lambda value: value.name if isinstance(value, Kind) else "")
def test_the_others_of_a_list_are_read(kind: Kind[Any], inside: str, read: Callable[..., ListPage[Any]]) -> None:
    items = [_object("before", '"spec":{}'), _object("deep", inside), _object("after", '"spec":{}')]
    body = f'{{"metadata":{{"resourceVersion":"7"}},"items":[{",".join(items)}]}}'.encode()
    page = read(kind, body, "GET")
    assert (page.resource_version, [each.metadata.name for each in page.items]) == ("7", ["before", "after"])
    (malformed,) = page.malformed
    assert (malformed.name, malformed.uid, malformed.error) == ("deep", "of-deep", "it is nested too deep")


@pytest.mark.parametrize(("kind", "inside"), _CASES, ids=lambda value: value.name if isinstance(value, Kind) else "")
def test_the_watch_goes_on(kind: Kind[Any], inside: str) -> None:
    lines = [
        f'{{"type":"ADDED","object":{_object(name, spec)}}}\n' for name, spec in (("deep", inside), ("after", '"a":1'))
    ]
    deep, after = EventReader(kind).feed("".join(lines).encode())
    assert isinstance(deep.object, Malformed)
    assert (deep.object.name, deep.resource_version) == ("deep", "5")
    assert after.object is not None
    assert after.resource_version == "5"


@given(
    st.recursive(
        st.text(st.sampled_from('[]{}"\\a')), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_what_is_not_nested_stays_as_it_is(value: Any) -> None:
    text = json.dumps([value]).encode()
    assert without_nesting(text, 100) == text


def test_only_what_is_nested_is_cut() -> None:
    assert decode_any(without_nesting(b'[1,[2,{"[":[3]},"}"],[[4],5],6]', 2)) == [
        *(1, [2, "nested too deep", "}"]),
        *(["nested too deep", 5], 6),
    ]
    assert without_nesting(b"[[[", 2) == b"[[" + NESTED
