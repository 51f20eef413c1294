"""Large answers to clients that do not read them."""

from __future__ import annotations

import logging
from typing import Final

from aiohttp import web

from koordinator.base.clock import Clock
from koordinator.base.deadline import within

_LARGE: Final = 1 << 20
"""Bytes. What is smaller fits into the buffers, and to watch over it would cost every request."""
_SECONDS: Final = 30.0
_BYTES_PER_SECOND: Final = 1 << 20
_LOG = logging.getLogger(__name__)


async def deliver(clock: Clock, request: web.BaseRequest, response: web.StreamResponse) -> web.StreamResponse:
    """Send a large answer within its time, half a minute and a second for each MiB, or drop the connection.

    The answer to a list holds the list. A client that stops reading in its middle would hold it for ever.
    """
    size = response.content_length or 0
    if size < _LARGE or response.prepared:
        return response
    try:
        await within(clock, _SECONDS + size / _BYTES_PER_SECOND, _send(request, response))
    except TimeoutError:
        _LOG.warning("%s %s is dropped: the client does not read the answer", request.method, request.path_qs)
        if request.transport is not None:
            request.transport.abort()
    return response


async def _send(request: web.BaseRequest, response: web.StreamResponse) -> None:
    try:
        await response.prepare(request)
        await response.write_eof()
    except ConnectionError:
        return  # the client went away; there is nobody to tell
