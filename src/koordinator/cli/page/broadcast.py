"""The turns of the board, to all who watch it, as server-sent events.

Whoever comes, or has fallen behind by more turns than are kept, gets the whole board; then what changes, once a second.
A viewer that does not read costs its own connection alone: nothing is queued for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Final, NoReturn

from koordinator.base.clock import Clock
from koordinator.cli.page.board import Board, SightOf, Turn
from koordinator.cli.page.viewers import Viewer

TURN_SECONDS: Final = 1.0
_KEPT_TURNS: Final = 30
_QUIET_TURNS: Final = 5
"""After so many turns without news a viewer is told that the page's server is still there."""


class Broadcast:
    """``refresh`` brings the board up to date before each turn."""

    def __init__(self, board: Board, refresh: Callable[[], None], clock: Clock) -> None:
        self.board = board
        self._refresh = refresh
        self._clock = clock
        self._turns: deque[Turn] = deque(maxlen=_KEPT_TURNS)
        self._beats = 0
        self._beat = asyncio.Event()

    async def run(self) -> NoReturn:
        """Turn until cancelled."""
        while True:
            self.turn()
            await self._clock.sleep(TURN_SECONDS)

    def turn(self) -> None:
        """One turn: what has changed becomes one message."""
        self._refresh()
        turn = self.board.turn()
        if turn is not None:
            self._turns.append(turn)
        self._beats += 1
        beat, self._beat = self._beat, asyncio.Event()
        beat.set()

    async def events(self, viewer: Viewer) -> AsyncGenerator[bytes, None]:
        """Server-sent events for one viewer, for as long as it is admitted. Its rights may change meanwhile."""
        viewer.watches += 1
        try:
            before: SightOf | None = None
            number, quiet = 0, 0
            while viewer.is_admitted():
                sees = viewer.sight_of
                turns = self._since(number) if sees == before else None
                before = sees
                for turn in [self.board.whole()] if turns is None else turns:
                    number, quiet = turn.number, 0
                    yield _event(turn.encoded(sees))
                await self._beat.wait()
                quiet += 1
                if quiet >= _QUIET_TURNS:
                    quiet = 0
                    yield b": still here\n\n"
        finally:
            viewer.watches -= 1

    def _since(self, number: int) -> list[Turn] | None:
        """The turns after that one; None if they are not kept any more."""
        newer = [turn for turn in self._turns if turn.number > number]
        if newer and newer[0].number > number + 1:
            return None
        return newer


def _event(data: bytes) -> bytes:
    return b"data: %b\n\n" % data
