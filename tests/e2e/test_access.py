"""``koord up --authorization-mode RBAC``: every program does its work with its own rights, and people have theirs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.running import Kubectl, koord_up

MODE = ("--authorization-mode=RBAC", "--nodes=3", "--koordlets=1")


def test_all_programs_work_with_the_rights_of_their_roles_and_people_with_theirs(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with koord_up(tmp_path / "data", *MODE) as up:
            kubectl = Kubectl(up)
            await _programs_work(kubectl)
            await _people_have_their_rights(kubectl)
            refused = [line for line in (await kubectl("get", "--raw=/metrics")).splitlines() if 'code="403"' in line]
            # Bob's, below, and of no program.
            assert len(refused) == 1, refused
            assert 'resource="pods"' in refused[0]

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


def _user(name: str) -> dict[str, Any]:
    return {"username": name, "groups": ["system:authenticated"]}
