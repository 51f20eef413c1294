"""Sets of fields for tests: random ones, and FieldsV1 as text."""

from __future__ import annotations

from hypothesis import strategies as st

from koordinator.cluster.managed_fields.field_set import FieldSet, of_paths

_ELEMENTS = st.sampled_from(("f:a", "f:b", "f:c", 'k:{"name":"x"}', 'k:{"name":"y","port":80}', 'v:"x"', "v:1", "i:3"))
PATHS = st.lists(_ELEMENTS, min_size=1, max_size=4).map(tuple)


def sets() -> st.SearchStrategy[FieldSet]:
    return st.lists(PATHS, max_size=8).map(lambda found: of_paths(*found))
