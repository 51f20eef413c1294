"""Ctrl-C and SIGTERM end the real process at once, whatever state it is in: it never waits for an API server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from koordinator.api.kinds import LEASES, NAMESPACES
from koordinator.api.timestamps import format_micro_time
from koordinator.base.clock import SystemClock
from koordinator.cluster.server import EmbeddedApi, ServerOptions
from koordinator.kube.connect import ClientOptions, connect
from tests.free_ports import free_ports

AT_ONCE = 5.0
"""Seconds, on a busy machine."""
# One handler takes both signals, so not every state has to be tried with each: a process costs a second.
BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
NOWHERE = ("--metrics-addr=0", "--health-probe-addr=0", "--enable-pprof=false")
LOADED_EARLY = "koordinator.base.errors"
"""A module that is loaded long before the last."""


class Running:
    """A process and what it has said."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.said = ""

    def until(self, text: str) -> None:
        """Until it has said so."""
        assert self._process.stderr is not None
        while text not in self.said:
            line = self._process.stderr.readline()
            assert line, f"it ended before {text!r}: {self.said}"
            self.said += line

    def end(self, number: signal.Signals) -> int:
        """The exit status, once it has been asked to end."""
        self._process.send_signal(number)
        _, rest = self._process.communicate(timeout=AT_ONCE)
        self.said += rest
        return self._process.returncode


@contextmanager
def koord_manager(kubeconfig: Path, *flags: str, interpreter: tuple[str, ...] = ()) -> Iterator[Running]:
    command = [
        sys.executable,
        *interpreter,
        "-m",
        "koordinator.manager",
        f"--kubeconfig={kubeconfig}",
        *NOWHERE,
        *flags,
    ]
    variables = {
        **os.environ,
        "WEBHOOK_HOST": "127.0.0.1",
        "WEBHOOK_PORT": str(free_ports(1)[0]),
        "WEBHOOK_CERT_DIR": str(kubeconfig.parent / "certificates"),
    }
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=variables)
    try:
        yield Running(process)
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def kubeconfig_of(folder: Path, port: int) -> Path:
    path = folder / "kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    path.write_text(json.dumps(document))
    return path


@BOTH
def test_while_the_api_server_is_away(tmp_path: Path, number: signal.Signals) -> None:
    with koord_manager(kubeconfig_of(tmp_path, free_ports(1)[0])) as running:
        running.until("Connection refused")
        assert running.end(number) == 0
    assert "Traceback" not in running.said


def test_while_an_api_server_takes_connections_and_says_nothing(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        koord_manager(kubeconfig_of(tmp_path, silent.getsockname()[1])) as running,
    ):
        running.until("attempting to acquire leader lease")
        connection, _ = silent.accept()
        with connection:
            assert running.end(signal.SIGTERM) == 0
    assert "Traceback" not in running.said


def test_while_it_waits_for_the_lease(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with EmbeddedApi(ServerOptions()) as api:
            kubeconfig = tmp_path / "kubeconfig"
            api.write_kubeconfig(kubeconfig)
            client = await connect(ClientOptions(kubeconfig=str(kubeconfig)))
            await client.create(NAMESPACES, {"metadata": {"name": "koordinator-system"}})
            now = format_micro_time(SystemClock().now())
            spec = {"holderIdentity": "other", "leaseDurationSeconds": 600, "acquireTime": now, "renewTime": now}
            await client.create(
                LEASES, {"metadata": {"name": "koordinator-manager"}, "spec": spec}, "koordinator-system"
            )
            with koord_manager(kubeconfig, "--feature-gates=WebhookFramework=false") as running:
                await asyncio.to_thread(running.until, "the leader is other")
                assert await asyncio.to_thread(running.end, signal.SIGINT) == 0
            assert "Traceback" not in running.said
            lease = await client.get(LEASES, "koordinator-manager", "koordinator-system")
            assert lease.spec.holder_identity == "other"
            await client.close()

    asyncio.run(scenario())


@BOTH
def test_while_it_is_being_loaded(tmp_path: Path, number: signal.Signals) -> None:
    with koord_manager(kubeconfig_of(tmp_path, free_ports(1)[0]), interpreter=("-X", "importtime")) as running:
        running.until(LOADED_EARLY)
        assert running.end(number) == -number
    assert "Traceback" not in running.said
