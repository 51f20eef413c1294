"""A server that runs for long: new connections get a certificate that the clock agrees with."""

from __future__ import annotations

import asyncio
import ssl
from datetime import timedelta
from pathlib import Path

from koordinator.base.clock import ManualClock
from koordinator.cluster.server import EmbeddedApi, ServerOptions


async def _certificate(api: EmbeddedApi) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the clock of this test is not the machine's
    host, port = api.url.removeprefix("https://").split(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    served: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return served


def test_the_certificate_is_renewed_while_the_server_runs(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with EmbeddedApi(ServerOptions(data=tmp_path / "data", clock=clock)) as api:
            first = await _certificate(api)
            await clock.advance(61)
            assert await _certificate(api) == first
            clock.set_wall(clock.now() + timedelta(days=340))
            await clock.advance(61)
            assert await _certificate(api) != first

    asyncio.run(main())
