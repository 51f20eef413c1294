"""Informers and the event recorder against a real kube-apiserver, killed and paused under them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

from koordinator.api.core import ConfigMap
from koordinator.api.kinds import CONFIG_MAPS
from koordinator.base.clock import SystemClock
from koordinator.base.metrics import Metrics
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.event_series import EVENTS_V1, reference_to
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.informer_set import InformerSet
from tests.real.control_plane import ControlPlane
from tests.real.programs import RealPrograms


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.05)


def with_client(kubeconfig: Path, body: Callable[[KubeClient], Coroutine[Any, Any, None]]) -> None:
    async def scenario() -> None:
        client = await connect(ClientOptions(kubeconfig=str(kubeconfig), watch_stall_seconds=20))
        try:
            async with asyncio.timeout(150):
                await body(client)
        finally:
            await client.close()

    asyncio.run(scenario())


def test_informer_follows_through_a_killed_and_a_paused_server(real_programs: RealPrograms, tmp_path: Path) -> None:
    plane = ControlPlane(real_programs.kubernetes, tmp_path / "plane")
    story: list[str] = []

    def on_add(obj: ConfigMap, initial: bool, /) -> None:
        if obj.metadata.name.startswith("seen"):
            story.append(f"+{obj.metadata.name}={obj.data.get('x')}")

    def on_update(old: ConfigMap, new: ConfigMap) -> None:
        story.append(f"{new.metadata.name}={new.data.get('x')}")

    def on_delete(obj: ConfigMap) -> None:
        story.append(f"-{obj.metadata.name}")

    async def body(client: KubeClient) -> None:
        await client.create(CONFIG_MAPS, config_map("seen-a", x="1"), "default")
        informers = InformerSet(client)
        informer = informers.informer(CONFIG_MAPS, namespace="default")
        informer.add_handlers(on_add=on_add, on_update=on_update, on_delete=on_delete)
        async with informers.started(30):
            await client.create(CONFIG_MAPS, config_map("seen-b", x="1"), "default")
            await until(lambda: len(story) == 2)
            await asyncio.to_thread(plane.restart)
            await client.update(CONFIG_MAPS, config_map("seen-b", x="2"), "seen-b", "default")
            await until(lambda: len(story) == 3)
            plane.pause_api_server()
            await asyncio.sleep(1)
            plane.resume_api_server()
            await client.delete(CONFIG_MAPS, "seen-a", "default")
            await until(lambda: len(story) == 4)

    with plane:
        with_client(plane.kubeconfig, body)
    assert story == ["+seen-a=1", "+seen-b=1", "seen-b=2", "-seen-a"]


def test_events_and_their_series_are_accepted(real_cluster: Path) -> None:
    async def body(client: KubeClient) -> None:
        about = await client.create(CONFIG_MAPS, config_map("eventful"), "default")
        broadcaster = EventBroadcaster(
            client, instance="koord-test-host", clock=SystemClock(), random=Random(), metrics=Metrics()
        )
        recorder = broadcaster.recorder("koord-test")
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(broadcaster.run())
            for _ in range(3):
                note = "é" * 2000
                recorder.event(reference_to(CONFIG_MAPS, about), "Warning", "FailedScheduling", "Scheduling", note)
                await asyncio.sleep(0.2)
            assert await broadcaster.flush(20) == 0
            running.cancel()
        selector = f"regarding.uid={about.metadata.uid}"
        [event] = (await client.list(EVENTS_V1, "default", field_selector=selector)).items
        response = await client.raw("GET", EVENTS_V1.path("default", event.metadata.name))
        assert b'"count":3' in response
        await client.delete(CONFIG_MAPS, "eventful", "default")

    with_client(real_cluster, body)
