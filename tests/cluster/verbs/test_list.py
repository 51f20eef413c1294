from __future__ import annotations

import asyncio

import pytest

from koordinator.cluster.errors import ApiError
from koordinator.cluster.storage.watch_cache import HistoryLimits
from koordinator.cluster.verbs.options import ListOptions
from koordinator.cluster.verbs.read import ObjectList, list_objects
from tests.cluster.embedded import Verbs, config_map, pod


def _filled(limits: HistoryLimits | None = None) -> Verbs:
    """Config maps a to e; a, c and e carry the label odd."""
    verbs = Verbs(limits=limits or HistoryLimits())

    async def main() -> None:
        for index, name in enumerate("abcde"):
            await verbs.create("configmaps", config_map(name, labels={} if index % 2 else {"odd": "yes"}))

    asyncio.run(main())
    return verbs


def _list(verbs: Verbs, plural: str = "configmaps", **query: str) -> ObjectList:
    return list_objects(verbs.environment, verbs.target(plural), ListOptions.parse(query))


def _names(found: ObjectList) -> str:
    return "".join(stored.key[-1] for stored in found.items)


def test_pages_continue_where_they_ended() -> None:
    verbs = _filled()
    first = _list(verbs, limit="2")
    second = _list(verbs, limit="2", **{"continue": first.continue_token})
    assert (_names(first), first.remaining, _names(second), second.remaining) == ("ab", 3, "cd", 1)


def test_pages_with_a_selector_are_full_and_count_nothing() -> None:
    verbs = _filled()
    first = _list(verbs, limit="2", labelSelector="odd")
    second = _list(verbs, limit="2", labelSelector="odd", **{"continue": first.continue_token})
    assert (_names(first), first.remaining, _names(second), second.continue_token) == ("ac", None, "e", "")


def test_a_later_page_shows_the_first_ones_revision() -> None:
    verbs = _filled()
    first = _list(verbs, limit="2")
    asyncio.run(verbs.create("configmaps", config_map("f")))
    rest = _list(verbs, **{"continue": first.continue_token})
    assert (_names(rest), rest.revision) == ("cde", 5)


def test_a_token_whose_revision_is_gone_has_expired() -> None:
    verbs = _filled(HistoryLimits(changes=2))
    token = _list(verbs, limit="2").continue_token
    for name in "xyz":
        asyncio.run(verbs.create("configmaps", config_map(name)))
    with pytest.raises(ApiError) as refused:
        _list(verbs, **{"continue": token})
    assert (refused.value.code, refused.value.reason) == (410, "Expired")


def test_a_list_that_has_expired_goes_on_with_the_newest_state() -> None:
    verbs = _filled(HistoryLimits(changes=2))
    first = _list(verbs, limit="2")
    for name in "xyz":
        asyncio.run(verbs.create("configmaps", config_map(name)))
    with pytest.raises(ApiError) as refused:
        _list(verbs, **{"continue": first.continue_token})
    token = refused.value.status()["metadata"]["continue"]
    second = _list(verbs, limit="4", **{"continue": token})
    rest = _list(verbs, **{"continue": second.continue_token})
    assert (_names(first), _names(second), _names(rest)) == ("ab", "cdex", "yz")
    assert (second.revision, rest.revision) == (8, 8)


@pytest.mark.parametrize("token", ["nonsense!", "e30", "eyJydiI6MSwic3RhcnQiOiIvY29yZS9wb2RzLyJ9"])
def test_a_foreign_token_is_refused(token: str) -> None:
    with pytest.raises(ApiError, match="continue key is not valid"):
        _list(_filled(), **{"continue": token})


def test_an_exact_revision_shows_the_past() -> None:
    found = _list(_filled(), resourceVersion="3", resourceVersionMatch="Exact")
    assert (_names(found), found.revision) == ("abc", 3)


def test_not_older_than_shows_the_present() -> None:
    assert _list(_filled(), resourceVersion="3", resourceVersionMatch="NotOlderThan").revision == 5


def test_a_revision_in_the_future_times_out() -> None:
    with pytest.raises(ApiError) as refused:
        _list(_filled(), resourceVersion="99")
    status = refused.value.status()
    assert (status["code"], status["details"]["causes"][0]["reason"]) == (504, "ResourceVersionTooLarge")


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"resourceVersionMatch": "Exact"}, 422),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, 422),
        ({"resourceVersionMatch": "Newest", "resourceVersion": "1"}, 422),
        ({"resourceVersion": "x"}, 400),
        ({"limit": "x"}, 400),
        ({"sendInitialEvents": "true"}, 422),
    ],
)
def test_meaningless_options_are_refused(query: dict[str, str], code: int) -> None:
    with pytest.raises(ApiError) as refused:
        _list(_filled(), **query)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("metadata.name=b", "b"),
        ("metadata.name!=b", "acde"),
        ("metadata.name=b,metadata.name=c", ""),
        ("metadata.name=missing", ""),
        ("metadata.namespace=default,metadata.name=d", "d"),
    ],
)
def test_field_selectors(selector: str, names: str) -> None:
    assert _names(_list(_filled(), fieldSelector=selector)) == names


def test_field_labels_of_the_kind_select() -> None:
    verbs = Verbs()

    async def main() -> None:
        await verbs.create("pods", pod("a", nodeName="n"))
        await verbs.create("pods", pod("b"))

    asyncio.run(main())
    assert _names(_list(verbs, "pods", fieldSelector="spec.nodeName=")) == "b"


def test_an_unknown_field_label_is_refused() -> None:
    with pytest.raises(ApiError, match="is not a known field selector"):
        _list(_filled(), fieldSelector="spec.x=1")
