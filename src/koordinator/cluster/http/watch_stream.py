"""A watch as a chunked response: a line of JSON per event."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from aiohttp import web

from koordinator.cluster.http import rendering
from koordinator.cluster.verbs.watch import WatchEvent, WatchSession

_LOG = logging.getLogger(__name__)


async def stream_watch(
    request: web.BaseRequest, session: WatchSession, render: rendering.Renderer
) -> web.StreamResponse:
    """Ends when the watch does. The headers go out before the first event: clients wait for them."""
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"})
    response.enable_chunked_encoding()
    await response.prepare(request)

    async def send(batch: Sequence[WatchEvent]) -> None:
        await response.write(rendering.events(render, batch))

    try:
        error = await session.run(send)
    except ConnectionAbortedError as aborted:
        _LOG.warning("the watch of %s is dropped: %s", request.path_qs, aborted)
        if request.transport is not None:
            request.transport.abort()  # with all that is buffered for it
        return response
    if error is not None:
        await response.write(rendering.error_event(error))
    return response
