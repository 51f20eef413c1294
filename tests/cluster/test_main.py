"""The program: how it starts, why it does not, and what is left after kill -9."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from koordinator.cluster.main import main
from tests.cluster.embedded import config_map


@contextmanager
def _server(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A running server; it is ready when the line on stderr is there."""
    command = [sys.executable, "-m", "koordinator.cluster", f"--data={folder}", f"--kubeconfig={folder}/kubeconfig"]
    with subprocess.Popen([*command, *arguments], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert "ready on https://127.0.0.1:" in process.stderr.readline()
            yield process
        finally:
            process.kill()


def test_a_controller_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--controllers=*,-other"])
    assert "known are garbage-collector-controller, disruption-controller" in capsys.readouterr().err


@pytest.fixture(scope="module")
def stopped_server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of a server that has run and ended; to be copied by whoever changes it."""
    folder = tmp_path_factory.mktemp("stopped")
    with _server(folder) as process:
        process.terminate()
        process.wait(10)
    return folder


@pytest.fixture
def data_folder(stopped_server: Path, tmp_path: Path) -> Path:
    """Of a server that has run and ended."""
    return Path(shutil.copytree(stopped_server, tmp_path / "data"))


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What the program says on stderr that ends with status 1; in this process, since one of its own costs a second."""

    def run(*arguments: str) -> str:
        assert main(arguments) == 1
        return capsys.readouterr().err

    return run


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with _server(tmp_path) as process:
        process.send_signal(number)
        assert process.wait(10) == 0


def test_a_folder_that_is_in_use_is_refused_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "koordinator.cluster", f"--data={tmp_path}"]
    with _server(tmp_path):
        ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stderr) == (
        1,
        f"koordinator.cluster: data folder {tmp_path} is in use by another process\n",
    )


def test_a_port_that_is_taken_is_refused_in_one_line(refusal: Callable[..., str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = refusal(f"--port={port}")
    assert text.startswith(f"koordinator.cluster: cannot listen on 127.0.0.1 port {port}: it is taken by process ")
    assert text.endswith("; choose another with --port\n")


def test_the_kubeconfig_is_private_and_survives_a_restart(data_folder: Path) -> None:
    first = yaml.safe_load((data_folder / "kubeconfig").read_text())
    mode = (data_folder / "kubeconfig").stat().st_mode & 0o777
    with _server(data_folder):
        second = yaml.safe_load((data_folder / "kubeconfig").read_text())
    assert (mode, first["users"]) == (0o600, second["users"])


class _Client:
    def __init__(self, folder: Path) -> None:
        self._config = yaml.safe_load((folder / "kubeconfig").read_text())
        self._authority = str(folder / "pki" / "ca.crt")

    def session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=self._authority))
        token = self._config["users"][0]["user"]["token"]
        server = self._config["clusters"][0]["cluster"]["server"]
        return aiohttp.ClientSession(server, connector=connector, headers={"Authorization": f"Bearer {token}"})


async def _create_until_killed(client: _Client, process: subprocess.Popen[str], enough: int) -> dict[str, str]:
    """Eight writers at once; the uids of what was acknowledged."""
    created: dict[str, str] = {}

    async def write(session: aiohttp.ClientSession, writer: int) -> None:
        for number in range(10_000):
            try:
                obj: Any = config_map(f"c-{writer}-{number}")
                async with session.post("/api/v1/namespaces/default/configmaps", json=obj) as response:
                    body = await response.json()
            except aiohttp.ClientError:
                return
            created[body["metadata"]["name"]] = body["metadata"]["uid"]
            if len(created) == enough:
                os.kill(process.pid, signal.SIGKILL)

    async with client.session() as session, asyncio.TaskGroup() as group:
        for writer in range(8):
            group.create_task(write(session, writer))
    return created


async def _list(client: _Client) -> dict[str, str]:
    async with client.session() as session, session.get("/api/v1/namespaces/default/configmaps") as response:
        items = (await response.json())["items"]
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in items}


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    with _server(tmp_path) as process:
        created = asyncio.run(_create_until_killed(_Client(tmp_path), process, 200))
    with _server(tmp_path):
        found = asyncio.run(_list(_Client(tmp_path)))
    assert created.items() <= found.items()


def test_a_damaged_database_is_refused_in_one_line_with_the_ways_out(
    data_folder: Path, refusal: Callable[..., str]
) -> None:
    (data_folder / "cluster.db").write_bytes(b"rubbish" * 1000)
    text = refusal(f"--data={data_folder}")
    assert text.count("\n") == 1
    assert text.startswith(f"koordinator.cluster: {data_folder}/cluster.db cannot be used as the cluster's store: ")
    assert ".recover" in text


@pytest.mark.parametrize("name", ["token", "pki/ca.key", "pki/server.crt"])
def test_a_secret_that_cannot_be_read_is_reported_in_one_line(
    data_folder: Path, name: str, refusal: Callable[..., str]
) -> None:
    (data_folder / name).unlink()
    (data_folder / name).mkdir()
    text = refusal(f"--data={data_folder}")
    assert (text.count("\n"), str(data_folder / name) in text) == (1, True)


def test_a_folder_of_somebody_else_is_refused_in_one_line(tmp_path: Path, refusal: Callable[..., str]) -> None:
    (tmp_path / "thesis.tex").write_text("")
    text = refusal(f"--data={tmp_path}")
    assert (text.count("\n"), "'thesis.tex'" in text) == (1, True)


def test_a_foreign_kubeconfig_is_refused_in_one_line_and_kept(tmp_path: Path, refusal: Callable[..., str]) -> None:
    (tmp_path / "config").write_text("# mine\n")
    text = refusal(f"--data={tmp_path / 'data'}", f"--kubeconfig={tmp_path / 'config'}")
    assert (text.count("\n"), "left as it is" in text) == (1, True)
    assert (tmp_path / "config").read_text() == "# mine\n"
