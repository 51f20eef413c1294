"""Who may see the page of one person."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from multidict import CIMultiDict

from koordinator.base.clock import ManualClock
from koordinator.cli.page.board import sees_all
from koordinator.cli.page.local_access import OWN_HEADER, SESSION_SECONDS, TICKET_SECONDS, LocalAccess
from koordinator.cli.page.viewers import Viewer
from koordinator.kube.pages import PageError, Request

NOBODY: Any = None
PERSON = Viewer(sees_all, NOBODY, NOBODY, lambda folder: ())


def access(clock: ManualClock | None = None) -> LocalAccess:
    found = LocalAccess(PERSON, clock or ManualClock())
    found.serve_as("127.0.0.1", 6480)
    return found


def to(target: str, cookie: str = "", host: str = "127.0.0.1:6480", method: str = "GET", **headers: str) -> Request:
    return Request.to(method, target, CIMultiDict({"Host": host, "Cookie": cookie, **headers}))


def entered(found: LocalAccess) -> str:
    """The cookie of a session."""
    cookie = enter(found, to(f"/open?ticket={found.ticket()}"))
    return cookie.partition(";")[0]


def enter(found: LocalAccess, request: Request) -> str:
    return asyncio.run(found.enter(request)).headers["Set-Cookie"]


def admit(found: LocalAccess, request: Request) -> None:
    assert asyncio.run(found.viewer(request)) is PERSON


def status(found: LocalAccess, request: Request) -> int:
    with pytest.raises(PageError) as refusal:
        admit(found, request)
    return refusal.value.response.status


def test_a_link_opens_the_page_for_one_browser() -> None:
    found = access()
    link = to(f"/open?ticket={found.ticket()}")
    cookie = enter(found, link)
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    admit(found, to("/api/pods", cookie.partition(";")[0]))
    with pytest.raises(PageError) as again:
        enter(found, link)
    assert again.value.response.status == 401


@pytest.mark.parametrize(
    "cookie", ["", "koord-page-6480=", "koord-page-6480=guess", "koord-page-6481=x", "\x00=;;=\x01"]
)
def test_without_a_session_nothing_is_shown(cookie: str) -> None:
    assert status(access(), to("/api/pods", cookie)) == 401


@pytest.mark.parametrize("others", ['a={"x":1}', "x=a b", "weird", "café=1", "koord-page-6481=other"])
def test_cookies_of_other_programs_on_the_host_do_not_lock_anybody_out(others: str) -> None:
    found = access()
    admit(found, to("/api/pods", f"{others}; {entered(found)}"))


def test_an_address_of_ipv6_is_named_as_browsers_name_it() -> None:
    found = LocalAccess(PERSON, ManualClock())
    found.serve_as("::1", 6480)
    found.check_host(to("/", host="[::1]:6480"))


def test_a_link_and_a_session_end() -> None:
    clock = ManualClock()
    found = access(clock)
    ticket, cookie = found.ticket(), entered(found)
    asyncio.run(clock.advance(TICKET_SECONDS))
    with pytest.raises(PageError):
        enter(found, to(f"/open?ticket={ticket}"))
    admit(found, to("/api/pods", cookie))
    asyncio.run(clock.advance(SESSION_SECONDS))
    assert status(found, to("/api/pods", cookie)) == 401


def test_another_host_name_is_refused() -> None:
    """A name that somebody else's DNS lets point here."""
    found = access()
    assert status(found, to("/api/pods", entered(found), host="evil.example:6480")) == 421
    admit(found, to("/api/pods", entered(found), host="localhost:6480"))


def test_a_form_of_another_site_changes_nothing() -> None:
    found = access()
    cookie = entered(found)
    assert status(found, to("/api/what-if", cookie, method="POST")) == 403
    admit(found, to("/api/what-if", cookie, method="POST", **{OWN_HEADER: "1"}))


def test_tickets_do_not_pile_up() -> None:
    found = access()
    first = found.ticket()
    for _ in range(100):
        found.ticket()
    with pytest.raises(PageError):
        enter(found, to(f"/open?ticket={first}"))
