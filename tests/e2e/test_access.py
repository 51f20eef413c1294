"""``koord up --authorization-mode RBAC``: every program does its work with its own rights, and people have theirs."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.running import Kubectl, Up, koord_up

MODE = ("--authorization-mode=RBAC", "--nodes=3", "--koordlets=1")


def test_all_programs_work_with_the_rights_of_their_roles_and_people_with_theirs(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with koord_up(tmp_path / "data", *MODE) as up:
            kubectl = Kubectl(up)
            await _programs_work(kubectl)
            await _people_have_their_rights(kubectl)
            await _an_application_owner_is_told_why(up, kubectl)
            refused = [line for line in (await kubectl("get", "--raw=/metrics")).splitlines() if 'code="403"' in line]
            # Bob's and the developer's, below, and of no program.
            kinds = sorted(line.split('resource="')[1].split('"')[0] for line in refused)
            of_developer = ["clustercolocationprofiles", "nodemetrics", "noderesourcetopologies", "podmigrationjobs"]
            assert kinds == [*of_developer, "pods"]

    asyncio.run(scenario())


async def _programs_work(kubectl: Kubectl) -> None:
    """Webhooks, controllers, the scheduler and the nodes have a part in a Deployment that is ready."""
    await kubectl("create", "deployment", "web", "--image=nginx", "--replicas=2")
    await kubectl("rollout", "status", "deployment/web", "--timeout=60s")


async def _people_have_their_rights(kubectl: Kubectl) -> None:
    with pytest.raises(AssertionError) as refused:
        await kubectl("get", "pods", "--as=bob")
    assert (
        'pods is forbidden: User "bob" cannot list resource "pods" in API group "" in the namespace "default"'
    ) in str(refused.value)
    await kubectl("create", "rolebinding", "bob", "--clusterrole=view", "--user=bob")
    assert "web-" in await kubectl("get", "pods", "--as=bob")
    listed = await kubectl("auth", "can-i", "--list", "--as=bob")
    assert "deployments.apps" in listed
    assert json.loads(await kubectl("auth", "whoami", "--as=bob", "-o=json"))["status"]["userInfo"] == _user("bob")
    assert (await kubectl("auth", "can-i", "get", "pods", "--as=bob")).strip() == "yes"


async def _an_application_owner_is_told_why(up: Up, kubectl: Kubectl) -> None:
    """With the token of an account that may view its namespace."""
    await kubectl("create", "serviceaccount", "developer")
    await kubectl("create", "rolebinding", "developer", "--clusterrole=view", "--serviceaccount=default:developer")
    document = yaml.safe_load(up.kubeconfig.read_text())
    document["users"][0]["user"]["token"] = (await kubectl("create", "token", "developer")).strip()
    kubeconfig = up.data / "developer.kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(document))
    name = (await kubectl("get", "pods", "-o=name", f"--kubeconfig={kubeconfig}")).split()[0]
    assert "scores" in await _explained(name, kubeconfig)
    node = (await kubectl("get", name, "-o=jsonpath={.spec.nodeName}")).strip()
    assert (
        "What koordlet has reported of the node is left out: you lack the permission to get "
        "nodemetrics.slo.koordinator.sh in the whole cluster."
    ) in await _explained(f"node/{node}", kubeconfig)


async def _explained(what: str, kubeconfig: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "koordinator.cli.main", "explain", what, f"--kubeconfig={kubeconfig}"),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return " ".join(output.decode().split())


def _user(name: str) -> dict[str, Any]:
    return {"username": name, "groups": ["system:authenticated"]}
