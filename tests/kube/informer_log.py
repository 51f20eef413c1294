"""An informer on a manual clock whose handlers write down what they see."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from koordinator.api.kinds import PODS
from koordinator.api.meta import Object
from koordinator.api.pod import Pod
from koordinator.base.clock import ManualClock
from koordinator.kube.informer import Informer
from koordinator.kube.interface import Malformed
from tests.kube.fake_client import ScriptedClient, as_client, metadata


def pod(name: str, version: int, uid: str = "", **more: Any) -> Pod:
    return Pod(metadata=metadata(name, version, uid, **more))


def broken(name: str, version: int, uid: str = "") -> Malformed:
    return Malformed(
        PODS, "default", name, uid or f"uid-{name}", str(version), "Expected `int`, got `str` - at `$.spec`"
    )


class EventLog:
    """Handlers that keep one short text per call: ``+a@1``, ``a@1>2``, ``-a@2``, ``!a@3``, and ``?a@3``
    for what could not be read so far; ``*`` marks initial adds."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_add(self, obj: Object, initial: bool, /) -> None:
        self.lines.append(f"+{obj.metadata.name}@{obj.metadata.resource_version}{'*' if initial else ''}")

    def on_update(self, old: Object, new: Object) -> None:
        self.lines.append(f"{new.metadata.name}@{old.metadata.resource_version}>{new.metadata.resource_version}")

    def on_delete(self, obj: Object) -> None:
        self.lines.append(f"-{obj.metadata.name}@{obj.metadata.resource_version}")

    def on_malformed(self, malformed: Malformed) -> None:
        self.lines.append(f"!{malformed.name}@{malformed.resource_version}")

    def on_readable(self, malformed: Malformed) -> None:
        self.lines.append(f"?{malformed.name}@{malformed.resource_version}")


class Bench:
    """One informer of pods over a scripted client."""

    def __init__(self, client: ScriptedClient, **options: Any) -> None:
        self.client = client
        self.clock = ManualClock()
        self.log = EventLog()
        self.informer = Informer(as_client(client), PODS, clock=self.clock, random=Random(1), **options)
        self.informer.add_handlers(
            on_add=self.log.on_add,
            on_update=self.log.on_update,
            on_delete=self.log.on_delete,
            on_malformed=self.log.on_malformed,
            on_readable=self.log.on_readable,
        )

    async def play(self, seconds: float = 3600.0) -> list[str]:
        """Run until the scripts are used up, for at most ``seconds`` of the clock; what the handlers saw."""
        running = asyncio.create_task(self.informer.run())
        try:
            passed = 0.0
            while not self.client.idle.is_set() and passed < seconds:
                await self.clock.advance(0.1)
                passed += 0.1
            await self.clock.advance(0)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        return self.log.lines


def play(client: ScriptedClient, **options: Any) -> list[str]:
    """What handlers see of the whole script."""
    return asyncio.run(Bench(client, **options).play())
