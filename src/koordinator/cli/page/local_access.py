"""Who may see the page of one person: whoever opens a link that the person's own command has printed.

The page shows what its person's kubeconfig may read, so that others on the machine, and web pages that the person's
browser is lured to, must not reach it. A link is good once and for a few minutes; what it leaves behind is a cookie
that scripts and other sites cannot use. Requests for another host name are refused: a name that somebody else's DNS
lets point here would make the browser take their page for ours.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import Final

from koordinator.base.clock import Clock
from koordinator.cli.page.viewers import Viewer
from koordinator.kube.pages import PageError, Request, Response

TICKET_SECONDS: Final = 300.0
SESSION_SECONDS: Final = 12 * 3600.0
_MOST: Final = 100
"""Of tickets and of sessions; the oldest ends for another."""
_NO_LINK: Final = (
    "401: open this page with the link that `koord page` prints: it is good once, so that nobody else can use it. Run "
    "koord page again for another.\n"
)
OWN_HEADER: Final = "X-Koordinator-Page"
"""What the page's own scripts send with each change: a form of another site cannot."""


class LocalAccess:
    """Tickets for links, and the sessions that they have become."""

    def __init__(self, viewer: Viewer, clock: Clock) -> None:
        """``viewer`` is the person."""
        self._viewer = viewer
        self.key = secrets.token_urlsafe(32)
        """Whoever has it may ask for links: other commands of the same person, by a file that is the person's alone."""
        self._hosts: frozenset[str] = frozenset()
        self._cookie = ""
        self._tickets = _Keys(clock, TICKET_SECONDS)
        self._sessions = _Keys(clock, SESSION_SECONDS)

    def serve_as(self, host: str, port: int) -> None:
        """The page is served there. Browsers send a cookie to all ports of a host, so that it is named by its port."""
        self._hosts = frozenset({f"{named(host)}:{port}", f"localhost:{port}"})
        self._cookie = f"koord-page-{port}"

    def ticket(self) -> str:
        """Another one, for one link."""
        return self._tickets.issue()

    async def give_ticket(self, request: Request) -> Response:
        """For whoever shows the key. Raises PageError."""
        self.check_host(request)
        kind, _, shown = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() != "bearer" or not secrets.compare_digest(shown.strip().encode(), self.key.encode()):
            raise PageError(401)
        return Response(text=self.ticket(), headers={"Cache-Control": "no-store"})

    async def enter(self, request: Request) -> Response:
        """Respond to a link: a session for its ticket. Raises PageError."""
        self.check_host(request)
        if not self._tickets.redeem(request.query.get("ticket", "")):
            raise PageError(401, _NO_LINK)
        cookie = (
            f"{self._cookie}={self._sessions.issue()}; Path=/; HttpOnly; SameSite=Strict; Max-Age={SESSION_SECONDS:.0f}"
        )
        return Response(status=303, headers={"Location": "/", "Set-Cookie": cookie, "Cache-Control": "no-store"})

    async def viewer(self, request: Request) -> Viewer:
        """The person; raises PageError for whoever has no session, or is another site."""
        self.check_host(request)
        if not self._sessions.holds(_cookie(request, self._cookie)):
            raise PageError(401, _NO_LINK)
        if request.method not in ("GET", "HEAD") and OWN_HEADER not in request.headers:
            raise PageError(403, f"403: a change needs the header {OWN_HEADER}\n")
        return self._viewer

    def check_host(self, request: Request) -> None:
        """Raises PageError for a request to another host."""
        if request.headers.get("Host", "") not in self._hosts:
            raise PageError(421, f"421: this page is served as {', '.join(sorted(self._hosts))} alone\n")


def named(host: str) -> str:
    """An address as URLs have it."""
    return f"[{host}]" if ":" in host else host


def _cookie(request: Request, name: str) -> str:
    """The cookie of that name. Other programs on this host have cookies too, of which none need be well made: the
    library's parser stops at the first that is not."""
    for pair in request.headers.get("Cookie", "").split(";"):
        key, _, value = pair.strip().partition("=")
        if key == name:
            return value
    return ""


class _Keys:
    """Secrets that are good for a while."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._until: OrderedDict[str, float] = OrderedDict()

    def issue(self) -> str:
        if len(self._until) >= _MOST:
            self._until.popitem(last=False)
        key = secrets.token_urlsafe(32)
        self._until[key] = self._clock.monotonic() + self._seconds
        return key

    def holds(self, key: str) -> bool:
        """Whether it is good; a key is looked up by its hash, which tells nothing about how near a guess is."""
        return self._clock.monotonic() < self._until.get(key, 0.0)

    def redeem(self, key: str) -> bool:
        """The same, and it is good no more."""
        good = self.holds(key)
        self._until.pop(key, None)
        return good
