"""``koord up`` from start to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from pathlib import Path

from koordinator.api.kinds import PODS
from tests.e2e.running import eventually, koord_up, plain_pod


def test_a_pod_is_placed_and_runs_and_survives_a_restart(tmp_path: Path) -> None:
    async def scenario() -> tuple[str, str, int | None]:
        async with koord_up(tmp_path, "--nodes=3") as up:
            client = await up.client()
            try:
                await client.create(PODS, plain_pod("web"), "default")
                first = await eventually(client, "web", lambda pod: pod.status.phase == "Running", "running")
            finally:
                await client.close()
        status = up.process.returncode
        async with koord_up(tmp_path, "--nodes=3") as up:
            client = await up.client()
            try:
                again = await eventually(client, "web", lambda pod: pod.status.phase == "Running", "running")
            finally:
                await client.close()
        return first.spec.node_name, again.spec.node_name, status

    first, again, status = asyncio.run(scenario())
    assert first
    assert (again, status) == (first, 0)


def test_the_kubeconfig_is_for_its_owner_only(tmp_path: Path) -> None:
    async def scenario() -> int:
        async with koord_up(tmp_path, "--only=apiserver") as up:
            return stat.S_IMODE(up.kubeconfig.stat().st_mode)

    assert asyncio.run(scenario()) == 0o600


def test_a_second_one_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    async def scenario() -> tuple[int | None, str]:
        async with koord_up(tmp_path, "--only=apiserver"):
            second = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "koordinator.cli.main", "up", f"--data={tmp_path}"),
                stderr=asyncio.subprocess.PIPE,
            )
            _, error = await second.communicate()
            return second.returncode, error.decode()

    status, error = asyncio.run(scenario())
    assert status == 1
    assert "is used by another koord" in error


def test_a_killed_scheduler_comes_back_and_schedules(tmp_path: Path) -> None:
    async def scenario() -> str:
        async with koord_up(tmp_path, "--nodes=2") as up:
            client = await up.client()
            try:
                _kill_scheduler_of(up.process.pid)
                await client.create(PODS, plain_pod("late"), "default")
                return (await eventually(client, "late", lambda pod: bool(pod.spec.node_name), "bound")).spec.node_name
            finally:
                await client.close()

    assert asyncio.run(scenario())


def _kill_scheduler_of(parent: int) -> None:
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            command = (folder / "cmdline").read_bytes()
            ancestor = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if ancestor == parent and b"koordinator.scheduler" in command:
            os.kill(int(folder.name), signal.SIGKILL)
            return
    raise AssertionError("no scheduler found")
