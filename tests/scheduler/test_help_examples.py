"""The examples of ``koord-scheduler --help`` do what they say, as they are printed."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from koordinator.api.kinds import PODS
from koordinator.cluster.server import EmbeddedApi, ServerOptions
from koordinator.kube.connect import ClientOptions, connect
from koordinator.scheduler.main import main
from tests.free_ports import free_ports

PROGRAMS = {"koord-scheduler": "koordinator.scheduler", "koord": "koordinator.cli.main"}


def examples(text: str) -> list[str]:
    """The commands below *Examples*: one blank line ends them, what they do stands below each."""
    block = text.partition("Examples:\n")[2].partition("\n\n")[0]
    return [line.strip() for line in block.splitlines() if line.startswith("  koord")]


@pytest.fixture
def commands(capsys: pytest.CaptureFixture[str]) -> list[str]:
    with pytest.raises(SystemExit):
        main(["--help"])
    return examples(capsys.readouterr().out)


@asynccontextmanager
async def started(command: str, home: Path, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command in a shell, with what is in the file system of somebody who has a cluster; the port of the example is
    another one, as it may be taken."""
    name, _, rest = command.partition(" ")
    serving = f" --port={port}" if name == "koord-scheduler" else ""
    process = await asyncio.create_subprocess_shell(
        f"exec {sys.executable} -m {PROGRAMS[name]} {rest.replace('10251', str(port))}{serving}",
        cwd=home,
        env={**os.environ, "HOME": str(home)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def until_said(process: asyncio.subprocess.Process, text: str) -> None:
    assert process.stderr is not None
    said = ""
    while text not in said:
        line = (await process.stderr.readline()).decode()
        assert line, said
        said += line


async def finished(command: str, home: Path, port: int) -> str:
    async with started(command, home, port) as process:
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return out.decode()


async def play(commands: list[str], home: Path) -> None:
    write, elected, alone, show, explain = commands
    (port,) = free_ports(1)
    async with EmbeddedApi(ServerOptions()) as api:
        (home / ".kube").mkdir()
        api.write_kubeconfig(home / ".kube/config")
        client = await connect(ClientOptions(kubeconfig=str(home / ".kube/config")))
        container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
        await client.create(PODS, {"metadata": {"name": "web"}, "spec": {"containers": [container]}}, "default")
        await client.close()
        await finished(write, home, port)
        assert yaml.safe_load((home / "scheduler.yaml").read_text())["kind"] == "KubeSchedulerConfiguration"
        assert yaml.safe_load(await finished(show, home, port))["kind"] == "KubeSchedulerConfiguration"
        async with started(elected, home, port) as process:
            await until_said(process, "acquired lease")
        async with started(alone, home, port) as process:
            await until_said(process, "in sync")
            assert "web" in await finished(explain, home, port)


def test_the_examples_work_as_printed(commands: list[str], tmp_path: Path) -> None:
    assert len(commands) == 5
    asyncio.run(play(commands, tmp_path))
