"""A scheduler as a process: its configuration, its start until it leads and rests, its end."""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.contenders import ROOT, Contender
from benchmarks.process_usage import Usage, until_quiet, usage_of
from koordinator.api.kinds import LEASES
from koordinator.base.errors import KoordinatorError
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client
from tests.real.control_plane import ControlPlane
from tests.real.programs import RealPrograms

SCHEDULER_NAME: Final = "default-scheduler"
"""What pods that name no scheduler get: templates name none."""
_LEASE: Final = ("koord-scheduler", "koordinator-system")
_START_LIMIT: Final = 60.0
_END_LIMIT: Final = 10.0
_POLL: Final = 0.1


def configuration(kubeconfig: Path, base: Path | None) -> str:
    """The configuration of both schedulers: the default plugins, or what the test case's own file says."""
    document: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": SCHEDULER_NAME}],
        **(yaml.safe_load(base.read_text()) if base is not None else {}),
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 5000},
        "leaderElection": {
            "leaderElect": True,
            "resourceLock": "leases",
            "resourceName": _LEASE[0],
            "resourceNamespace": _LEASE[1],
            # It keeps the lease also while it is paused.
            "leaseDuration": "3600s",
            "renewDeadline": "3000s",
        },
    }
    return yaml.safe_dump(document)


class SchedulerProcess:
    """A running scheduler."""

    def __init__(self, process: Process, log: Path) -> None:
        self._process = process
        self._log = log

    def usage(self) -> Usage:
        return usage_of(self._process.pid)

    def pause(self) -> None:
        """Stop it in its tracks; what it watches is kept for it."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    async def until_ready(self, client: Client) -> None:
        """Until it leads and has taken in all that there is."""
        for _ in range(round(_START_LIMIT / _POLL)):
            if await _is_led(client):
                return await until_quiet(self._process.pid)
            await asyncio.sleep(_POLL)
        raise KoordinatorError(f"the scheduler did not lead within {_START_LIMIT:.0f} s:\n{self._tail()}")

    async def until_quiet(self, limit: float) -> None:
        """Until it rests, but ``limit`` seconds at most: some workloads never let it."""
        try:
            await until_quiet(self._process.pid, limit)
        except KoordinatorError:
            return

    async def fail_when_ended(self) -> None:
        """Raises KoordinatorError when the process ends; never returns."""
        status = await self._process.wait()
        raise KoordinatorError(f"the scheduler ended with {status}:\n{self._tail()}")

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]


@asynccontextmanager
async def started(
    contender: Contender, programs: RealPrograms, plane: ControlPlane, folder: Path, base: Path | None
) -> AsyncIterator[SchedulerProcess]:
    file, log = folder / "scheduler.yaml", folder / "scheduler.log"
    file.write_text(configuration(plane.kubeconfig, base))
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *contender.command(programs, file, plane.kubeconfig), stdout=output, stderr=output, cwd=ROOT
        )
    try:
        yield SchedulerProcess(process, log)
    finally:
        if process.returncode is None:
            # What it would do at its end is not measured, and its cluster ends with it.
            process.kill()
            await asyncio.wait_for(process.wait(), _END_LIMIT)


async def _is_led(client: Client) -> bool:
    try:
        return bool((await client.get(LEASES, *_LEASE)).spec.holder_identity)
    except ApiStatusError as error:
        if error.is_not_found:
            return False
        raise
