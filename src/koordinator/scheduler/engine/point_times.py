"""How long extension points take. The engine has no clock: whoever wants to know brings one."""

from __future__ import annotations

from typing import Final, Protocol


class PointTimes(Protocol):
    """``begin`` before the plugins of a point run, ``end`` afterwards, with the status ``Error`` if one has raised."""

    def begin(self) -> float: ...

    def end(self, point: str, begun: float, status: str = "Success") -> None: ...


class _Untimed:
    def begin(self) -> float:
        return 0.0

    def end(self, point: str, begun: float, status: str = "Success") -> None:
        return


UNTIMED: Final[PointTimes] = _Untimed()
