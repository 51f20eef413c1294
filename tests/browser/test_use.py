"""How the page is used: by keyboard, on a telephone, in the dark, and with what users write into their objects."""

from __future__ import annotations

from typing import Final

import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser.chromium import Chromium, Scheme, has_axe
from tests.browser.shop import HOSTILE

PLACES: Final = {
    "overview": "Who has what",
    "nodes": "node-2",
    "pending": "shop/odd",
    "tenants": "at most 8 cores",
    "interference": "cpi is 2",
    "moves": "2 Waiting",
    "devices": "gpu 1",
    "pods": "shop/train",
    "what-if": "Like the node",
    "explain/pod/shop/odd": "In full",
    "explain/node/node-1": "In full",
}
"""Each with a text of what belongs there."""


def visit(window: Chromium, place: str) -> None:
    window.go(place)
    window.shows(PLACES[place])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("place", PLACES)
def test_everybody_can_use_it(shown: Chromium, place: str, scheme: Scheme) -> None:
    if not has_axe():
        pytest.skip("needs axe-core: make check-page")
    shown.scheme(scheme)
    visit(shown, place)
    assert "\n".join(shown.violations()) == ""


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_window(shown: Chromium, width: int) -> None:
    shown.size(width)
    for place in PLACES:
        visit(shown, place)
        assert shown.overflow() == 0, place


def test_colours_are_those_that_the_viewer_prefers(shown: Chromium) -> None:
    found = []
    for scheme in ("light", "dark"):
        shown.scheme(scheme)
        found.append(shown.run("return getComputedStyle(document.body).backgroundColor"))
    assert found == ["rgb(246, 247, 249)", "rgb(18, 22, 28)"]


def test_what_users_write_is_text(shown: Chromium) -> None:
    visit(shown, "pending")
    assert HOSTILE in shown.text(".groups")
    visit(shown, "interference")
    assert HOSTILE in shown.text(".finding")
    visit(shown, "explain/pod/shop/odd")
    assert HOSTILE in " ".join(shown.text(".drawer").split())
    assert shown.count("#page script, #page [onerror]") == 0
    assert "taken" not in shown.run("return document.title")


def test_it_asks_nobody_else_and_has_nothing_to_complain_of(shown: Chromium) -> None:
    for place in PLACES:
        visit(shown, place)
    assert shown.complaints() == []
    assert shown.hosts() == {shown.run("return location.host")}


def test_times_are_those_of_where_the_viewer_is(shown: Chromium) -> None:
    shown.zone("Asia/Tokyo")
    try:
        shown.go("devices")
        visit(shown, "interference")
        assert "1:00:00" in shown.text(".finding")
    finally:
        shown.zone("UTC")


def test_with_the_keyboard_alone(shown: Chromium) -> None:
    shown.driver.refresh()
    shown.shows("Who has what")
    shown.press(Keys.TAB)
    assert shown.focused() == "a Skip to the content"
    shown.press(Keys.TAB, Keys.TAB)
    assert shown.focused() == "a Nodes"
    shown.press(Keys.ENTER)
    shown.shows("node-2")
    for _ in range(20):
        shown.press(Keys.TAB)
        if shown.focused().startswith("application CPU in use"):
            break
    shown.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    shown.shows("node-2: ", "#heat-chosen")
    shown.press(Keys.ENTER)
    shown.shows("node node-2", ".drawer h2")
    assert shown.focused().startswith("dialog node node-2")
    shown.press(Keys.ESCAPE)
    shown.until(lambda: shown.count(".drawer") == 0)
    assert shown.focused().startswith("application CPU in use")


def test_a_link_leads_to_what_was_chosen(shown: Chromium) -> None:
    shown.go("nodes?show=memory&name=node-2")
    shown.shows("1 node; on 0 of them, “Memory in use” is above 80 %.")
    shown.go("pods?name=train")
    shown.until(lambda: "shop/train" in shown.text(".rows") and "shop/web" not in shown.text(".rows"))
    shown.go("pending?reason=Insufficient cpu")
    shown.until(lambda: "shop/big" in shown.text(".rows") and "shop/odd" not in shown.text(".rows"))
