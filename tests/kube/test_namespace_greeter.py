"""What base and kube offer suffices for a program: a leader-elected controller, a configuration file, servers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from koordinator.api.kinds import CONFIG_MAPS, LEASES, NAMESPACES
from koordinator.cluster.server import EmbeddedApi, ServerOptions
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connected
from tests.free_ports import free_ports
from tests.kube.namespace_greeter import main
from tests.waiting import once

_CONFIGURATION = """\
apiVersion: greeter/v1
kind: GreeterConfiguration
greeting: hello
clientConnection: {{kubeconfig: {kubeconfig}}}
leaderElection: {{leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 500ms}}
metricsBindAddress: 127.0.0.1:{metrics}
healthBindAddress: 127.0.0.1:{health}
"""


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[KubeClient]:
    async with EmbeddedApi(ServerOptions()) as api:
        api.write_kubeconfig(folder / "kubeconfig")
        async with connected(ClientOptions(kubeconfig=str(folder / "kubeconfig"))) as client:
            yield client


async def started(folder: Path, metrics: int, health: int) -> asyncio.subprocess.Process:
    config = folder / f"{health}.yaml"
    config.write_text(_CONFIGURATION.format(kubeconfig=folder / "kubeconfig", metrics=metrics, health=health))
    command = (sys.executable, "-m", "tests.kube.namespace_greeter", f"--config={config}")
    return await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)


async def greeting(client: KubeClient, namespace: str) -> str:
    """Once it is there."""
    found = await once(client, CONFIG_MAPS, lambda each: each.metadata.name == "greeting", namespace)
    return found.data["text"]


async def got(port: int, path: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
        assert response.status == 200
        return await response.text()


def test_from_start_to_stop(tmp_path: Path) -> None:
    async def scenario() -> None:
        metrics, health = free_ports(2)
        async with asyncio.timeout(60), cluster(tmp_path) as client:
            process = await started(tmp_path, metrics, health)
            assert await greeting(client, "default") == "hello"
            await client.create(NAMESPACES, {"metadata": {"name": "later"}})
            assert await greeting(client, "later") == "hello"
            assert await got(health, "/readyz/informer-sync") == "ok"
            exposed = await got(metrics, "/metrics")
            assert 'namespace_greeter_reconcile_total{controller="greeter",result="success"}' in exposed
            assert 'loop_last_success_timestamp_seconds{loop="controller greeter"}' in exposed
            assert 'informer_seconds_since_contact{kind="namespaces",selection="namespaces"}' in exposed
            assert 'leader_election_master_status{name="namespace-greeter"} 1.0' in exposed
            process.terminate()
            _, said = await process.communicate()
            assert process.returncode == 0, said.decode()
            assert not (await client.get(LEASES, "namespace-greeter", "default")).spec.holder_identity

    asyncio.run(scenario())


def test_the_other_instance_goes_on_where_the_leader_is_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(60), cluster(tmp_path) as client:
            first = await started(tmp_path, *free_ports(2))
            assert await greeting(client, "default") == "hello"
            second = await started(tmp_path, *free_ports(2))
            assert second.stderr is not None
            while b"the leader is" not in await second.stderr.readline():
                pass
            first.kill()
            await client.create(NAMESPACES, {"metadata": {"name": "later"}})
            assert await greeting(client, "later") == "hello"
            second.terminate()
            await asyncio.gather(first.communicate(), second.communicate())
            assert second.returncode == 0

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("greetings: hello", "greetings: 'hello' is not usable: no such field"),
        ("greeting: [1]", "greeting: [1] is not usable"),
        ("leaderElection: {leaseDuration: 1s}", "leaderElection.leaseDuration: '1s' is not usable"),
        ("metricsBindAddress: nowhere", "metricsBindAddress: 'nowhere' is not usable: write HOST:PORT"),
    ],
)
def test_a_mistake_in_the_file_is_one_line_that_names_the_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    config = tmp_path / "config.yaml"
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "{clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], current-context: c, "
        "contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: t}}]}"
    )
    greets = "" if line.startswith("greeting:") else "greeting: hello\n"
    config.write_text(
        f"apiVersion: greeter/v1\nkind: GreeterConfiguration\n{greets}{line}\n"
        f"clientConnection: {{kubeconfig: {kubeconfig}}}\n"
    )
    assert main([f"--config={config}"]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("namespace-greeter: ")
    assert said in last
