"""A Deployment on ``koord up``, with the commands that a person types."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from tests.e2e.running import Up, koord_up

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")
_IMAGE = "jsonpath={.spec.template.spec.containers[0].image}"
_ROLLED_OUT = 'deployment "web" successfully rolled out'


def test_a_deployment_is_rolled_out_changed_undone_scaled_and_deleted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with koord_up(tmp_path, "--nodes=3", "--koordlets=0") as up:
            created = await _kubectl(up, "create deployment web --image=nginx:1 --replicas=3")
            assert created == "deployment.apps/web created"
            assert (await _status(up)).endswith(_ROLLED_OUT)
            await _kubectl(up, "set image deployment/web nginx=nginx:2")
            assert (await _status(up)).endswith(_ROLLED_OUT)
            await _kubectl(up, "rollout undo deployment/web")
            assert (await _status(up)).endswith(_ROLLED_OUT)
            assert await _kubectl(up, "get deployment web -o", _IMAGE) == "nginx:1"
            history = await _kubectl(up, "rollout history deployment/web")
            assert [line.split()[0] for line in history.splitlines()[2:]] == ["2", "3"]
            await _kubectl(up, "scale deployment web --replicas=5")
            assert (await _status(up)).endswith(_ROLLED_OUT)
            await _kubectl(up, "wait deployment/web --for=condition=Available --timeout=60s")
            assert await _kubectl(up, "get deployment web -o", "jsonpath={.status.availableReplicas}") == "5"
            await _kubectl(up, "delete deployment web --cascade=foreground --wait=true --timeout=60s")
            assert await _kubectl(up, "get replicasets,deployments -o name") == ""

    asyncio.run(scenario())


async def _status(up: Up) -> str:
    return await _kubectl(up, "rollout status deployment/web --timeout=60s")


async def _kubectl(up: Up, command: str, *more: str) -> str:
    """What it writes, errors and warnings included."""
    process = await asyncio.create_subprocess_exec(
        "kubectl",
        *command.split(),
        *more,
        env={**os.environ, "KUBECONFIG": str(up.kubeconfig)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode().strip()
