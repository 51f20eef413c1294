"""A hook server as a process of its own: gives containers CPU shares and a variable, and logs what it receives.

usage: python -m tests.real.hook_server_process SOCKET LOG
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from tests.runtime_proxy.fake_servers import FakeHookServer, never, serving

SHARES = 777
VARIABLE = "INJECTED"


async def main(socket: Path, log: Path) -> None:
    """Serve until the process ends."""

    def change(request: Any, response: Any) -> None:
        with log.open("a") as lines:
            lines.write(f"{type(request).__name__} {request.pod_meta.name}\n")
        if hasattr(response, "container_resources"):
            response.container_resources.cpu_shares = SHARES
            response.container_envs[VARIABLE] = "yes"

    async with serving(FakeHookServer(change), socket):
        await never()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
