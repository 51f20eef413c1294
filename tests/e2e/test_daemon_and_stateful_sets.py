"""DaemonSets and StatefulSets on ``koord up``, as a person rolls them out with kubectl."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from tests.e2e.running import Kubectl, koord_up

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed here")
_WAIT = "--timeout=60s"


def _manifest(folder: Path, kind: str, **spec: object) -> str:
    """A file with a workload called web; returns its path."""
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}}
    given = {"selector": {"matchLabels": labels}, "template": template, **spec}
    document = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"}, "spec": given}
    path = folder / f"{kind}.json"
    path.write_text(json.dumps(document))
    return str(path)


async def _roll_out_and_back(kubectl: Kubectl, workload: str) -> None:
    await kubectl("rollout", "status", workload, _WAIT)
    await kubectl("set", "image", workload, "main=web:2")
    await kubectl("rollout", "status", workload, _WAIT)
    await kubectl("rollout", "undo", workload)
    await kubectl("rollout", "status", workload, _WAIT)
    images = await kubectl("get", "pods", "-o=jsonpath={.items[*].spec.containers[0].image}")
    assert set(images.split()) == {"web:1"}
    history = await kubectl("rollout", "history", workload)
    assert [line.split()[0] for line in history.splitlines()[2:] if line] == ["2", "3"]


def test_a_daemon_set_is_rolled_out_and_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with koord_up(tmp_path, "--nodes=2", "--koordlets=0") as up:
            kubectl = Kubectl(up)
            strategy = {"rollingUpdate": {"maxUnavailable": "100%"}}
            output = await kubectl("apply", "-f", _manifest(tmp_path, "DaemonSet", updateStrategy=strategy))
            assert "no controller" not in output
            await _roll_out_and_back(kubectl, "daemonset/web")
            assert (await kubectl.status("daemonset/web"))["numberAvailable"] == 2
            await kubectl("delete", "daemonset", "web", "--cascade=foreground", _WAIT)
            assert await kubectl("get", "pods,controllerrevisions", "-o=name") == ""

    asyncio.run(scenario())


def test_a_stateful_set_is_rolled_out_and_back_and_scaled(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with koord_up(tmp_path, "--nodes=2", "--koordlets=0") as up:
            kubectl = Kubectl(up)
            await kubectl("apply", "-f", _manifest(tmp_path, "StatefulSet", replicas=2, serviceName="web"))
            await _roll_out_and_back(kubectl, "statefulset/web")
            await kubectl("scale", "statefulset", "web", "--replicas=1")
            await kubectl("wait", "--for=delete", "pod/web-1", _WAIT)
            assert (await kubectl("get", "pods", "-o=name")).split() == ["pod/web-0"]
            await kubectl("delete", "statefulset", "web")
            await kubectl("wait", "--for=delete", "pod/web-0", _WAIT)

    asyncio.run(scenario())
