from __future__ import annotations

import asyncio
from typing import Any

from benchmarks.scheduler_perf.operations import UpdateAny
from benchmarks.scheduler_perf.templates import Template
from benchmarks.scheduler_perf.updates import update_any
from koordinator.api.kinds import Kind
from tests.kube.fake_client import as_client

POD = Template("{apiVersion: v1, kind: Pod, metadata: {name: 'pod-{{.Index}}'}}", "inline")


class Recorder:
    """Keeps what is done, the waits between included."""

    def __init__(self) -> None:
        self.log: list[str] = []

    async def sleep(self, seconds: float) -> None:
        self.log.append(f"{seconds:g} s")

    async def update(
        self, kind: Kind[Any], body: Any, name: str, namespace: str = "", *, subresource: str = ""
    ) -> None:
        self.log.append(f"{kind.plural} {namespace}/{name} {subresource}".strip())


def updated(operation: UpdateAny) -> list[str]:
    recorder = Recorder()
    asyncio.run(update_any(as_client(recorder), operation, POD, recorder.sleep))
    return recorder.log


def test_objects_and_then_their_status_are_replaced() -> None:
    assert updated(UpdateAny(template_path="pod", namespace="ns", count=2)) == [
        "pods ns/pod-0",
        "pods ns/pod-0 status",
        "pods ns/pod-1",
        "pods ns/pod-1 status",
    ]


def test_a_subresource_takes_the_place_of_the_object() -> None:
    operation = UpdateAny(template_path="pod", namespace="ns", subresources=["resize"])
    assert updated(operation) == ["pods ns/pod-0 resize", "pods ns/pod-0 status"]


def test_updates_keep_to_their_rate() -> None:
    log = updated(UpdateAny(template_path="pod", namespace="ns", count=2, update_per_second=50))
    assert [entry for entry in log if entry.endswith(" s")] == ["0.02 s", "0.02 s"]
