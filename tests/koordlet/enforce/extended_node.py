"""A node whose koordlet has what other packages add, and entry points of such packages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib.metadata import Distribution, EntryPoint
from pathlib import Path
from typing import Any

from koordinator.base.installed import ListEntryPoints
from koordinator.koordlet.agent import Agent
from koordinator.koordlet.enforce.plugins import (
    Plugins,
    installed_plugins,
)
from tests.koordlet.suppressed_node import SuppressedNode

NAME = "example.com/ours"


def play(node: SuppressedNode, seconds: int) -> str:
    """The metrics at the end."""

    async def story(_: Agent) -> None:
        await pass_seconds(node, seconds)

    return run(node, story)


def run(node: SuppressedNode, story: Callable[[Agent], Awaitable[None]]) -> str:
    """The metrics at the end."""

    async def play() -> str:
        async with node.running() as agent:
            await story(agent)
            return agent.metrics.both.exposition()[0].decode()

    return asyncio.run(play())


async def pass_seconds(node: SuppressedNode, seconds: int) -> None:
    """As the node's own, and what controllers do on their threads takes no time."""
    for _ in range(seconds):
        await node.pass_seconds(1)
        while any(guard.thread.is_busy for _, guard in node.plugins.controllers):
            await asyncio.sleep(0)
        await node.clock.advance(0)


def is_suppressed(node: SuppressedNode) -> bool:
    """Whether best-effort pods have what CPU suppress gives them, which moves with what others use."""
    return abs(node.quota - node.wanted) < 5000


def entry(folder: Path, group: str, value: str, name: str = NAME) -> EntryPoint:
    info = folder / "ours-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Name: ours\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")
    (found,) = Distribution.at(info).entry_points
    return found


made: list[Any] = []


def take() -> Any:
    """What the test has put there."""
    return made.pop()


def loaded(folder: Path, group: str, plugin: Any) -> Plugins:
    made.append(plugin)
    found = [entry(folder, group, f"{__name__}:take")]
    return installed_plugins(only(group, found))


def only(group: str, found: list[EntryPoint]) -> Callable[[str], ListEntryPoints]:
    return lambda asked: lambda: found if asked == group else []
