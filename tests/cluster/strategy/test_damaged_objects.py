"""Whatever a client sends, a strategy accepts it or refuses it; it never fails in another way."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError
from tests.cluster.corpus import NOW, admitted, context, in_namespace, resource_of, written

OBJECTS = [in_namespace(document) for document in written("strategy/objects.yaml")]
VALUES: list[Any] = [None, "", 0, [], {}, "x", -1, True, [None], {"a": None}, [{}], "1Gi", 1.5]


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path and path[0] not in ("apiVersion", "kind") and path != ("metadata",):
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _paths(item, (*path, key))


@st.composite
def damaged(draw: st.DrawFn) -> Document:
    document = copy.deepcopy(draw(st.sampled_from(OBJECTS)))
    for _ in range(draw(st.integers(1, 3))):
        *parents, last = draw(st.sampled_from(list(_paths(document))))
        holder: Any = document
        for key in parents:
            holder = holder[key]
        holder[last] = copy.deepcopy(draw(st.sampled_from(VALUES)))
    return document


@given(damaged())
def test_accepted_or_refused(document: Document) -> None:
    strategy = resource_of(document).strategy
    try:
        strategy.decode(document)
        admitted(document)
    except ApiError as refused:
        assert refused.code in (400, 403)  # noqa: PT017  the other outcome is no exception at all
        return
    strategy.fields(document)
    if not strategy.validate(document, None):
        assert len(strategy.row(document, NOW)) == len(strategy.columns())
    updated = copy.deepcopy(document)
    admitted(updated, document)
    strategy.prepare_status_update(copy.deepcopy(updated), document, context())
