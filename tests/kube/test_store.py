"""The informer's store and its indexes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.meta import Object
from koordinator.kube.store import Store
from tests.kube.fake_client import metadata


def make(name: str, version: int = 1, *colors: str, namespace: str = "default") -> Object:
    return Object(metadata=metadata(name, version, namespace=namespace, labels=dict.fromkeys(colors, "")))


def by_color(obj: Object) -> tuple[str, ...]:
    return tuple(obj.metadata.labels)


def by_namespace(obj: Object) -> tuple[str, ...]:
    return (obj.metadata.namespace,)


def test_find_by_name_and_namespace() -> None:
    store: Store[Object] = Store()
    store.put("default/a", make("a"))
    assert store.find("a", "default") is store.get("default/a")


def test_index_follows_a_changed_value() -> None:
    store = Store({"color": by_color})
    store.put("default/a", make("a", 1, "red"))
    store.put("default/a", make("a", 2, "blue"))
    assert (store.by_index("color", "red"), len(store.by_index("color", "blue"))) == ([], 1)


def test_index_with_unchanged_value_returns_the_new_object() -> None:
    store = Store({"color": by_color})
    store.put("default/a", make("a", 1, "red"))
    newer = make("a", 2, "red")
    store.put("default/a", newer)
    assert store.by_index("color", "red") == [newer]


def test_index_added_late_holds_what_is_there() -> None:
    store: Store[Object] = Store()
    store.put("x/a", make("a", namespace="x"))
    store.add_index("namespace", by_namespace)
    assert len(store.by_index("namespace", "x")) == 1


def test_index_name_is_not_reused_for_another_function() -> None:
    store = Store({"color": by_color})
    with pytest.raises(ValueError, match="color"):
        store.add_index("color", by_namespace)


def test_unknown_index_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        Store[Object]().by_index("color", "red")


def test_index_function_that_raises_leaves_the_store_as_it_was() -> None:
    def picky(obj: Object) -> tuple[str, ...]:
        return (obj.metadata.labels["must"],)

    store = Store({"color": by_color, "picky": picky})
    with pytest.raises(KeyError):
        store.put("default/a", make("a", 1, "red"))
    assert (len(store), store.by_index("color", "red")) == (0, [])


operations = st.lists(
    st.tuples(st.sampled_from("abcd"), st.none() | st.frozensets(st.sampled_from(["red", "blue", "green"]))),
    max_size=30,
)


@given(operations)
def test_index_always_equals_a_scan(steps: list[tuple[str, frozenset[str] | None]]) -> None:
    store = Store({"color": by_color})
    for version, (name, colors) in enumerate(steps):
        if colors is None:
            store.remove(name)
        else:
            store.put(name, make(name, version, *sorted(colors)))
    for color in ("red", "blue", "green"):
        scanned = {obj.metadata.name for obj in store.values() if color in obj.metadata.labels}
        assert {obj.metadata.name for obj in store.by_index("color", color)} == scanned
