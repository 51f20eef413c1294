"""How far the programs have come, as their page ``/debug/progress`` says it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import msgspec

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object
from koordinator.kube.object_cache import is_older
from koordinator.kube.progress import PATH
from koordinator.kube.reflector import Selection

_RESPONSE_SECONDS: Final = 10.0
"""Of one request; a program that is only slow is asked again."""


class Page(msgspec.Struct, rename="camel"):
    """What a program says."""

    seen: dict[str, str]
    in_hand: dict[str, int]
    done: dict[str, int]


ReadPage = Callable[[], Awaitable[Page | str]]
"""The page, or why there is none."""


def page_at(session: aiohttp.ClientSession, port: int) -> ReadPage:
    """Read the page of the program that serves at ``port``."""
    timeout = aiohttp.ClientTimeout(_RESPONSE_SECONDS)

    async def read() -> Page | str:
        try:
            async with session.get(f"http://127.0.0.1:{port}{PATH}", timeout=timeout) as response:
                return msgspec.json.decode(await response.read(), type=Page)
        except TimeoutError:
            return f"no response within {_RESPONSE_SECONDS:g} s"
        except (aiohttp.ClientError, OSError, msgspec.DecodeError) as error:
            return f"{type(error).__name__}: {error}"

    return read


@dataclass(frozen=True, slots=True)
class Program:
    """One program that the day waits for."""

    name: str
    read: ReadPage
    log: str
    """The name of its log."""

    async def lags(self, versions: Mapping[Kind[Any], str]) -> str:
        """What it has not read yet of the changes up to these versions, or has in hand; empty when nothing."""
        page = await self.read()
        if isinstance(page, str):
            return f"{self.name} does not respond: {page}"
        in_hand = [f"{count} {what}" for what, count in page.in_hand.items() if count]
        return self.unread(page, versions) or (f"{self.name} works on {' and '.join(in_hand)}" if in_hand else "")

    def unread(self, page: Page, versions: Mapping[Kind[Any], str]) -> str:
        """What it has not read yet of the changes up to these versions; empty when nothing."""
        kinds = [
            kind.name
            for kind, version in versions.items()
            if is_older(page.seen.get(str(Selection(kind))) or "0", version)
        ]
        return f"{self.name} has not read the last {' and '.join(kinds)}" if kinds else ""


@dataclass(slots=True)
class Round:
    """Whether a program has done something from its begin to its end since it read what it should have read."""

    program: Program
    what: str
    versions: Mapping[Kind[Any], str]
    _wanted: int | None = None

    async def missing(self) -> str:
        page = await self.program.read()
        if isinstance(page, str):
            return f"{self.program.name} does not respond: {page}"
        done = page.done.get(self.what, 0)
        if self._wanted is None:
            if unread := self.program.unread(page, self.versions):
                return unread
            # One that runs now may have begun before it was read.
            self._wanted = done + page.in_hand.get(self.what, 0) + 1
        return "" if done >= self._wanted else f"it has ended {done} {self.what}, {self._wanted} are needed"


def newest(items: Iterable[Object]) -> str:
    """The resourceVersion of the last change of some objects."""
    versions: Sequence[str] = [item.metadata.resource_version for item in items]
    return max(versions, key=int, default="0")
