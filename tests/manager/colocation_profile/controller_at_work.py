"""The controller at work against the embedded API, and what tests ask of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from koordinator.api.document import Document
from koordinator.api.kinds import CLUSTER_COLOCATION_PROFILES, PODS
from koordinator.api.pod import Pod
from koordinator.kube.interface import PatchType
from koordinator.manager.colocation_profile.controller import ColocationProfileController
from koordinator.manager.colocation_profile.pod_writer import WAITING
from koordinator.manager.options import ColocationProfileOptions, Options
from tests.manager.colocation_profile.profiles import SPEC, document
from tests.manager.controller_bench import ControllerBench, controller_bench
from tests.waiting import wait_for

OWN = {"koordinator-colocation-pod": "true"}
PROFILE = "test-profile"
ROUND = 30


def run(scenario: Callable[[ControllerBench], Any], **options: Any) -> None:
    async def inside() -> None:
        made_options = Options(colocation_profile=ColocationProfileOptions(**options))
        async with asyncio.timeout(60), controller_bench(made_options) as made:
            await scenario(made)

    asyncio.run(inside())


@asynccontextmanager
async def working(made: ControllerBench) -> AsyncIterator[None]:
    async with made.working(ColocationProfileController(made.context)):
        yield


async def add_pod(made: ControllerBench, name: str, labels: dict[str, str] | None = None, **spec: Any) -> Pod:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    body: Document = {
        "metadata": {"name": name, "labels": OWN if labels is None else labels},
        "spec": {"containers": [container], **spec},
    }
    return await made.client.create(PODS, body, "default")


async def add_profile(made: ControllerBench, labels: dict[str, str] | None = None, **changes: Any) -> None:
    await made.client.create(CLUSTER_COLOCATION_PROFILES, document({**SPEC, **changes}, labels))


async def change_profile(made: ControllerBench, **changes: Any) -> None:
    await made.client.patch(CLUSTER_COLOCATION_PROFILES, PROFILE, {"spec": changes}, PatchType.MERGE)


async def labelled(made: ControllerBench, name: str, **labels: str) -> Pod:
    """The pod, as soon as it has these labels too."""
    return await made.once(
        PODS, lambda pod: pod.metadata.name == name and labels.items() <= pod.metadata.labels.items()
    )


async def next_round(made: ControllerBench, seconds: float = ROUND) -> None:
    """Let the time pass and everything that follows from it happen."""
    before = rounds(made)
    await made.clock.advance(seconds)
    await wait_for(lambda: rounds(made) > before)


async def until_waiting(made: ControllerBench, name: str, **labels: str) -> None:
    """Until the controller knows of a pod with these labels."""
    waiting = made.informers.informer(PODS, field_selector=WAITING)

    def known() -> bool:
        pod = waiting.get(f"default/{name}")
        return pod is not None and labels.items() <= pod.metadata.labels.items()

    await wait_for(known)


def rounds(made: ControllerBench) -> float:
    return sample(made, "koordinator_manager_reconcile_total", controller="colocationprofile", result="success")


def sample(made: ControllerBench, name: str, **labels: str) -> float:
    return made.metrics.registry.get_sample_value(name, labels) or 0.0


def outcome(made: ControllerBench, result: str) -> float:
    return sample(made, "koord_manager_colocation_profile_pods_total", result=result)
