"""Who may connect to whom, and `helm test`, which does."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL
from pathlib import Path

import pytest

from koordinator.manager.webhook.certificate_files import AUTHORITY, write_files
from koordinator.manager.webhook.server import WebhookServer
from tests.chart.rendered import PROGRAMS, objects, ports
from tests.chart.renderings import Document, recorded
from tests.manager.webhook.making import NOW, certificates
from tests.manager.webhook.serving import HOST, serving
from tests.waiting import PATIENCE


def network_policies(case: str = "everything") -> dict[str, Document]:
    return {name: each["spec"] for (kind, name), each in objects(case).items() if kind == "NetworkPolicy"}


def test_what_no_policy_allows_is_refused() -> None:
    assert network_policies()["koordinator-default-deny"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert [each["kind"] for each in recorded("defaults") if each["kind"] == "NetworkPolicy"] == []


@pytest.mark.parametrize("name", [name for name, kind in PROGRAMS.items() if kind == "Deployment"])
def test_a_policy_lets_prometheus_in_and_the_program_out(name: str) -> None:
    policy = network_policies()[name]
    template = objects("everything")[PROGRAMS[name], name]["spec"]["template"]
    assert policy["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    served = {each["name"]: each["containerPort"] for each in template["spec"]["containers"][0]["ports"]}
    metrics = policy["ingress"][0]
    assert metrics["ports"] == [{"port": served["metrics"]}]
    assert metrics["from"] == [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]
    assert [[each["port"] for each in rule["ports"]] for rule in policy["egress"]] == [[53, 53], [8443], [9090]]


def test_a_policy_lets_api_servers_and_the_test_reach_the_webhooks() -> None:
    (rule,) = network_policies()["koord-manager"]["ingress"][1:]
    assert rule["ports"] == [{"port": ports("everything", "koord-manager")["webhook-server"]}]
    assert rule["from"][0] == {"ipBlock": {"cidr": "10.0.0.0/28"}}
    test = objects("everything")["Pod", "koordinator-test-webhooks"]
    assert rule["from"][1]["podSelector"]["matchLabels"].items() <= test["metadata"]["labels"].items()
    (_, to_api_servers, to_manager) = network_policies()["koordinator-test"]["egress"]
    assert to_api_servers["ports"] == [{"port": 8443}]
    assert to_manager["ports"] == rule["ports"]


def test_the_test_reaches_the_webhooks_wherever_they_are() -> None:
    """A policy names pods by their labels, but none in the network of its node."""
    named, in_the_network_of_nodes = (
        network_policies(case)["koordinator-test"]["egress"][-1] for case in ("unaudited", "everything")
    )
    (peer,) = named["to"]
    manager = objects("unaudited")["Deployment", "koord-manager"]["spec"]["template"]
    assert peer["podSelector"]["matchLabels"].items() <= manager["metadata"]["labels"].items()
    assert objects("everything")["Deployment", "koord-manager"]["spec"]["template"]["spec"]["hostNetwork"]
    assert "to" not in in_the_network_of_nodes


def test_helm_test_calls_the_webhooks_and_gets_no_key(tmp_path: Path) -> None:
    pod = objects("defaults")["Pod", "koordinator-test-webhooks"]
    (container,), (volume,) = pod["spec"]["containers"], pod["spec"]["volumes"]
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert [each["key"] for each in volume["secret"]["items"]] == [AUTHORITY]
    (tmp_path / "others").mkdir()
    for folder, which in ((tmp_path, 0), (tmp_path / "others", 1)):
        write_files(folder, certificates(HOST, which=which), NOW)

    async def status(server: WebhookServer, folder: Path) -> int:
        given = {"URL": f"https://{HOST}:{server.bound_port}/healthz", "AUTHORITY": str(folder / AUTHORITY)}
        assert given.keys() == {each["name"] for each in container["env"]}
        process = await asyncio.create_subprocess_exec(
            sys.executable, *container["command"][1:], env=given, stdout=DEVNULL, stderr=DEVNULL
        )
        return await process.wait()

    async def scenario() -> tuple[int, int]:
        async with asyncio.timeout(PATIENCE), serving(tmp_path) as server:
            return await status(server, tmp_path), await status(server, tmp_path / "others")

    assert asyncio.run(scenario()) == (0, 1)
