"""Runs in a virtual machine and does what the test beside it asks: programs, files, and a way to the API server.

Requests and responses are files of the folder that both share, which take turns: ``0.request``, ``0.response``,
``1.request`` and so on. It is given a port of this machine's loopback, which is to be one of the virtual machine's too.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from itertools import count
from pathlib import Path
from typing import Any

from tests.real.namespace_relay import relay_to
from tests.real.virtual_machine import HERE

SHARED = Path("/mnt")
LOGS = Path("/run/logs")
_PAUSE = 0.05


class Commands:
    """One method for each kind of request; what it returns is the response."""

    def __init__(self) -> None:
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, command: list[str], variables: dict[str, str], seconds: float) -> dict[str, Any]:
        """To its end."""
        done = subprocess.run(
            command,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            # A program that it leaves behind must not keep the pipe open.
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
        return {"status": done.returncode, "output": done.stdout}

    def start(self, name: str, command: list[str], variables: dict[str, str]) -> None:
        """With a log of that name."""
        with (LOGS / name).open("ab") as log:
            environment = {**os.environ, **variables}
            self._started[name] = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def end(self, name: str) -> None:
        """With SIGTERM, and SIGKILL if that is of no avail."""
        process = self._started.pop(name)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def get(self, address: str) -> str:
        """What a server of the machine responds to an HTTP request."""
        with urllib.request.urlopen(address, timeout=240) as response:
            return str(response.read().decode())

    def files(self, below: list[str], names: list[str]) -> dict[str, str]:
        """Path -> content, of all files of these names in the folders and below, that can be read."""
        found = {}
        for top in below:
            for folder, _, present in os.walk(top):
                for name in set(names).intersection(present):
                    try:
                        found[f"{folder}/{name}"] = Path(folder, name).read_text(errors="replace").strip()
                    except OSError:
                        # It went meanwhile, as cgroups do, or can only be written.
                        continue
        return found


def _serve() -> None:
    commands = Commands()
    for number in count():
        request = SHARED / f"{number}.request"
        while not request.exists():
            time.sleep(_PAUSE)
        verb, arguments = json.loads(request.read_text())
        try:
            response: Any = {"result": getattr(commands, verb)(**arguments)}
        except (OSError, subprocess.SubprocessError) as error:
            response = {"error": f"{verb}: {error}"}
        written = SHARED / f"{number}.written"
        written.write_text(json.dumps(response))
        written.rename(SHARED / f"{number}.response")


async def _relay(port: int) -> None:
    async with await asyncio.start_server(relay_to(HERE, port), "127.0.0.1", port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    LOGS.mkdir()
    threading.Thread(target=asyncio.run, args=(_relay(int(sys.argv[1])),), daemon=True).start()
    _serve()
