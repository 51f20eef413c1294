"""Our elector and the Go original's koord-scheduler contend for one Lease on a real API server."""

from __future__ import annotations

import asyncio
import re
import signal
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import yaml

from koordinator.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, LEASES, NAMESPACES
from koordinator.api.node import LeaseSpec
from koordinator.base.clock import SystemClock
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.leader_election import LeaderElector
from koordinator.kube.leader_election_config import LeaderElectionConfig
from tests.real.programs import RealPrograms
from tests.real.scheduler_configuration import write_configuration

_LEASE = "koord-scheduler"
_OURS = "ours"
_LEASE_SECONDS, _RENEW_SECONDS, _RETRY_SECONDS = 6, 4, 1
_DEFINITIONS = Path(__file__).resolve().parents[2] / "config/crd"


class Original:
    """The Go original's scheduler as a contender."""

    def __init__(self, programs: RealPrograms, kubeconfig: Path, namespace: str, folder: Path) -> None:
        self._programs = programs
        self._kubeconfig = kubeconfig
        self._log = folder / "original.log"
        self._configuration = write_configuration(
            folder / "original.yaml",
            kubeconfig=kubeconfig,
            leader_election={
                "leaderElect": True,
                "resourceLock": "leases",
                "resourceName": _LEASE,
                "resourceNamespace": namespace,
                "leaseDuration": f"{_LEASE_SECONDS}s",
                "renewDeadline": f"{_RENEW_SECONDS}s",
                "retryPeriod": f"{_RETRY_SECONDS}s",
            },
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.subprocess.Process]:
        with self._log.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                str(self._programs.original / "koord-scheduler"),
                f"--config={self._configuration}",
                f"--authentication-kubeconfig={self._kubeconfig}",
                f"--authorization-kubeconfig={self._kubeconfig}",
                "--secure-port=0",
                "--port=0",
                stdout=log,
                stderr=log,
            )
            try:
                yield process
            finally:
                if process.returncode is None:
                    process.kill()
                await process.wait()

    def said(self, pattern: str) -> bool:
        return re.search(pattern, self._log.read_text(errors="replace"), re.IGNORECASE) is not None

    async def wait_until_it_says(self, pattern: str) -> None:
        async with asyncio.timeout(60):
            while not self.said(pattern):
                await asyncio.sleep(0.1)

    @property
    def leads(self) -> bool:
        return self.said("successfully acquired lease")


class Ours:
    """Our elector; ``leading`` says whether its work runs."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        config = LeaderElectionConfig(
            _LEASE, namespace, _OURS, _LEASE_SECONDS, _RENEW_SECONDS, _RETRY_SECONDS, release_on_cancel=True
        )
        self._elector = LeaderElector(client, config, clock=SystemClock(), random=Random())
        self.leading = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        async def work() -> None:
            self.leading.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.leading.clear()

        task = asyncio.create_task(self._elector.run(work))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def contest(kubeconfig: Path) -> AsyncIterator[tuple[KubeClient, str]]:
    """A client, and a namespace of its own in a cluster with all CRDs, without which the original waits for ever."""
    client = await connect(ClientOptions(kubeconfig=str(kubeconfig)))
    namespace = f"election-{uuid.uuid4().hex[:8]}"
    try:
        for path in sorted(_DEFINITIONS.glob("*.yaml")):
            for document in yaml.safe_load_all(path.read_text()):
                try:
                    await client.create(CUSTOM_RESOURCE_DEFINITIONS, document)
                except ApiStatusError as error:
                    if not error.is_already_exists:
                        raise
        await client.create(NAMESPACES, {"metadata": {"name": namespace}})
        yield client, namespace
        await client.delete(NAMESPACES, namespace)
    finally:
        await client.close()


async def holder(client: KubeClient, namespace: str) -> LeaseSpec:
    return (await client.get(LEASES, _LEASE, namespace)).spec


async def for_a_lease_and_more() -> AsyncIterator[None]:
    """Often, for longer than a lease that nobody renews would last."""
    end = time.monotonic() + _LEASE_SECONDS + 3
    while time.monotonic() < end:
        yield
        await asyncio.sleep(0.2)


def test_one_leads_at_a_time_and_hand_over_works_both_ways(
    real_programs: RealPrograms, real_cluster: Path, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(150), contest(real_cluster) as (client, namespace):
            ours, original = Ours(client, namespace), Original(real_programs, real_cluster, namespace, tmp_path)
            async with ours.running() as running:
                await asyncio.wait_for(ours.leading.wait(), 10)
                async with original.running() as process:
                    await original.wait_until_it_says("attempting to acquire leader lease")
                    async for _ in for_a_lease_and_more():
                        assert ours.leading.is_set()
                        assert not original.leads

                    running.cancel()
                    await asyncio.gather(running, return_exceptions=True)
                    await original.wait_until_it_says("successfully acquired lease")
                    spec = await holder(client, namespace)
                    assert spec.holder_identity not in ("", _OURS)
                    assert spec.lease_transitions == 1

                    again = Ours(client, namespace)
                    async with again.running():
                        async for _ in for_a_lease_and_more():
                            assert not again.leading.is_set()
                            assert process.returncode is None
                        process.send_signal(signal.SIGKILL)
                        killed = time.monotonic()
                        await process.wait()
                        await asyncio.wait_for(again.leading.wait(), 30)
                        assert time.monotonic() - killed > _RENEW_SECONDS
                        spec = await holder(client, namespace)
                        assert (spec.holder_identity, spec.lease_transitions) == (_OURS, 2)

    asyncio.run(scenario())
