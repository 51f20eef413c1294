"""A running scheduler over a small network: what gangs get that request a place in it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from koordinator.api.duration import GoDuration
from koordinator.api.kinds import CLUSTER_NETWORK_TOPOLOGIES
from koordinator.api.pod import Pod
from koordinator.scheduler.configuration.koordinator_arguments import CoschedulingArgs
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.coscheduling.plugin import Coscheduling
from koordinator.scheduler.plugins.default_pre_bind import DefaultPreBind
from tests.scheduler.fakes import make_node, make_profile
from tests.scheduler.ground.clusters import listed
from tests.scheduler.plugins.coscheduling.gang_fakes import member
from tests.scheduler.plugins.coscheduling.network_topology.networks import cluster_network_topology, place
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi

Story = Callable[[RunningScheduler], Awaitable[None]]
FOUR_BLOCKS = {f"n{number}": f"s{number // 4}/b{number // 2}" for number in range(8)}
"""Two spines of two blocks of two nodes."""


def profile(*, aware: bool = True, followed: bool = True, **args: Any) -> Callable[[ClusterView], Profile]:
    """``aware``: the argument of the plugin; ``followed``: the flag of the program."""

    def make(view: ClusterView) -> Profile:
        view.network_topology = followed
        base = make_profile(view)
        found = CoschedulingArgs(default_timeout=GoDuration(seconds=600), aware_network_topology=aware, **args)
        own = {"Coscheduling": Coscheduling(found, view), "DefaultPreBind": DefaultPreBind(None, view)}
        return Profile(base.scheduler_name, {**base.plugins, **own}, listed(base.order, Coscheduling))

    return make


def network(slots: Mapping[str, int], places: Mapping[str, str] = FOUR_BLOCKS, *, known: bool = True) -> SchedulerApi:
    """Nodes with room for so many pods, and what says how they are connected."""
    api = SchedulerApi()
    for name, where in places.items():
        api.store(make_node(name, cpu=str(slots.get(name, 1)), memory="1000Gi", labels=place(where)))
    if known:
        api.store(cluster_network_topology(), CLUSTER_NETWORK_TOPOLOGIES)
    return api


def spec(*rules: tuple[str, str] | tuple[str, str, int]) -> str:
    """The annotation: (layer, strategy, multiple) each."""
    return json.dumps(
        {
            "gatherStrategy": [
                {"layer": layer, "strategy": strategy, **({"podCountMultiple": multiple[0]} if multiple else {})}
                for layer, strategy, *multiple in rules
            ]
        }
    )


GATHERED = spec(("BlockLayer", "MustGather"))


def members(count: int, topology: str = GATHERED, gang: str = "g", **others: Any) -> list[Pod]:
    return [member(gang, number, count, network_topology_spec=topology, **others) for number in range(count)]


def play(story: Story, api: SchedulerApi, make: Callable[[ClusterView], Profile] | None = None) -> RunningScheduler:
    return simulate(story, lambda: api, make or profile())


def placed(pods: list[Pod], api: SchedulerApi, make: Callable[[ClusterView], Profile] | None = None) -> dict[str, str]:
    """Where each of the pods is in the end."""

    async def story(fixture: RunningScheduler) -> None:
        for pod in pods:
            fixture.api.store(pod)
        await fixture.until_idle(5)

    return dict(play(story, api, make).api.placed())


def notes(fixture: RunningScheduler, name: str) -> list[str]:
    return [note for pod, reason, note in fixture.events.notes if pod == name and reason == "FailedScheduling"]
