"""``/metrics``: to render it takes tens of milliseconds where there are thousands of series, and whoever reaches the
port may request it as often as it likes."""

from __future__ import annotations

import asyncio
from typing import Final

from koordinator.base.clock import Clock
from koordinator.base.metrics import Metrics
from koordinator.kube.pages import Request, Response

_PAUSE: Final = 3
"""How many times as long as it took the next rendering is put off, so that a quarter of the time is spent at most."""


class MetricsPage:
    """The page of one registry. Those who request it while it waits for its turn share one rendering."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._next: dict[str, asyncio.Task[bytes]] = {}
        """The renderings that have not begun, by content type."""
        self._not_before = 0.0

    async def handle(self, request: Request) -> Response:
        body, content_type = await self.rendered(request.headers.get("Accept", ""))
        return Response(body=body, content_type=content_type)

    async def rendered(self, accept: str) -> tuple[bytes, str]:
        """The page as it is now or later, and its content type."""
        content_type = self._metrics.content_type(accept)
        if content_type not in self._next:
            rendering = self._render(accept, content_type)
            self._next[content_type] = asyncio.create_task(rendering, name="render metrics")
        return await asyncio.shield(self._next[content_type]), content_type

    async def _render(self, accept: str, content_type: str) -> bytes:
        while (wait := self._not_before - self._clock.monotonic()) > 0:
            await self._clock.sleep(wait)
        del self._next[content_type]
        begun = self._clock.monotonic()
        try:
            return self._metrics.exposition(accept)[0]
        finally:
            ended = self._clock.monotonic()
            self._not_before = ended + _PAUSE * (ended - begun)
