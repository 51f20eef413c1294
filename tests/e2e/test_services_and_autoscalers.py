"""Services and autoscalers on ``koord up``, as a person tries them with kubectl."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.e2e.running import Kubectl, koord_up

_WAIT = "--timeout=60s"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed here")
def test_a_deployment_is_exposed_and_autoscaled(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with koord_up(tmp_path, "--nodes=2", "--koordlets=0") as up:
            kubectl = Kubectl(up)
            await kubectl("create", "deployment", "web", "--image=nginx", "--port=8080", "--replicas=2")
            await kubectl("rollout", "status", "deployment/web", _WAIT)
            await _expose(kubectl)
            await _autoscale(kubectl)
            await _follow(kubectl)

    asyncio.run(scenario())


async def _expose(kubectl: Kubectl) -> None:
    output = await kubectl("expose", "deployment", "web", "--port=80", "--target-port=8080", "--type=NodePort")
    assert output.strip() == "service/web exposed"
    kind, address, _, ports, _ = (await kubectl("get", "service", "web", "--no-headers")).split()[1:]
    assert (kind, address.split(".")[0]) == ("NodePort", "10")
    assert ports.startswith("80:3")
    assert len(await _addresses(kubectl, 2)) == 2
    shown = (await kubectl("describe", "service", "web")).splitlines()
    (line,) = [line for line in shown if line.startswith("Endpoints:")]
    assert line.count(":8080") == 2


async def _autoscale(kubectl: Kubectl) -> None:
    output = await kubectl("autoscale", "deployment", "web", "--min=4", "--max=6", "--cpu-percent=50")
    assert output.strip() == "horizontalpodautoscaler.autoscaling/web autoscaled"
    await kubectl("wait", "--for=jsonpath={.spec.replicas}=4", "deployment/web", _WAIT)
    await kubectl("wait", "--for=jsonpath={.status.desiredReplicas}=4", "hpa/web", _WAIT)
    name, reference, _, _, least, most, _, _ = (await kubectl("get", "hpa", "web", "--no-headers")).split()
    assert (name, reference, least, most) == ("web", "Deployment/web", "4", "6")
    described = await kubectl("describe", "hpa", "web")
    assert "New size: 4; reason: Current number of replicas below Spec.MinReplicas" in described


async def _follow(kubectl: Kubectl) -> None:
    """The lists go with the pods, and with the Service."""
    await kubectl("rollout", "status", "deployment/web", _WAIT)
    assert len(await _addresses(kubectl, 4)) == 4
    await kubectl("delete", "service", "web")
    await kubectl("wait", "--for=delete", "endpointslice", "-l", "kubernetes.io/service-name=web", _WAIT)
    await kubectl("wait", "--for=delete", "endpoints/web", _WAIT)


async def _addresses(kubectl: Kubectl, count: int) -> set[str]:
    """Of the ready endpoints of the one slice, as soon as there are so many."""
    selector = ("-l", "kubernetes.io/service-name=web")
    is_ready = f"--for=jsonpath={{.endpoints[{count - 1}].conditions.ready}}=true"
    await kubectl("wait", is_ready, "endpointslice", *selector, _WAIT)
    path = "-o=jsonpath={.items[0].endpoints[?(@.conditions.ready==true)].addresses[0]}"
    return set((await kubectl("get", "endpointslice", *selector, path)).split())
