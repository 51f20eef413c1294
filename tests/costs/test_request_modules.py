"""In how many modules of the embedded API server a request runs code: as many as a reader has to open to follow it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, Final

import pytest

from koordinator.api.kinds import NODE_METRICS
from koordinator.api.manifests import custom_resource_definitions
from koordinator.cluster.http.application import Application
from tests.cluster.embedded import ApiClient, embedded_api, pod

_SERVER: Final = "koordinator.cluster."
_PODS: Final = "/api/v1/namespaces/default/pods"
_METRICS: Final = f"/apis/{NODE_METRICS.api_version}/{NODE_METRICS.plural}"
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_KUBECTL: Final = "fieldManager=kubectl-create&fieldValidation=Strict"
_MERGE: Final = "application/merge-patch+json"
Requests = Callable[[ApiClient, int], Awaitable[None]]


async def _create_pod(client: ApiClient, number: int) -> None:
    await client.post(f"{_PODS}?{_KUBECTL}", pod(f"p{number}"))


async def _patch_metric(client: ApiClient, number: int) -> None:
    body = {"spec": {"metricCollectPolicy": {"reportIntervalSeconds": number + 1}}}
    response = await client.request("PATCH", f"{_METRICS}/node?{_KUBECTL}", body, content_type=_MERGE)
    assert response.status == 200, response.body


BOUNDS: Final[dict[str, tuple[Requests, int]]] = {
    "pod create": (_create_pod, 15),
    "custom resource patch": (_patch_metric, 15),
}
"""The recorded numbers: to be lowered by who needs fewer."""


@pytest.mark.parametrize("case", BOUNDS)
def test_a_request_runs_code_in_few_modules(case: str) -> None:
    send, bound = BOUNDS[case]
    modules = asyncio.run(_modules(send))
    assert len(modules) <= bound, f"{len(modules)} instead of {bound}:\n" + "\n".join(sorted(modules))


async def _modules(send: Requests) -> set[str]:
    """Those of the second of two equal requests: what the first one makes is kept."""
    async with embedded_api() as client:
        definition = next(
            each for each in custom_resource_definitions() if each["spec"]["names"]["kind"] == NODE_METRICS.name
        )
        await client.post(_DEFINITIONS, definition)
        while (await client.request("GET", _METRICS)).status != 200:
            pass
        named = {"apiVersion": NODE_METRICS.api_version, "kind": NODE_METRICS.name, "metadata": {"name": "node"}}
        await client.post(_METRICS, {**named, "spec": {}})
        await send(client, 1)
        with _recording() as modules:
            await send(client, 2)
        return modules


@contextmanager
def _recording() -> Iterator[set[str]]:
    """The modules of the server in which functions are called on the way of a request. What follows the change behind
    it, such as the garbage collector, is not on its way."""
    met: set[CodeType] = set()
    modules: set[str] = set()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or frame.f_code in met:
            return
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(_SERVER) and _is_on_the_way(frame):
            met.add(frame.f_code)
            modules.add(module.removeprefix(_SERVER))

    sys.setprofile(profile)
    try:
        yield modules
    finally:
        sys.setprofile(None)


def _is_on_the_way(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code is Application.handle.__code__:
            return True
        frame = frame.f_back
    return False
