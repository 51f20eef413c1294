"""A plugin at every point between the decision and the binding, and stories of one pod and one node with it."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

from koordinator.scheduler.engine.binding_points import (
    BindOutcome,
    BindPlugin,
    ClusterWriter,
    CycleState,
    PermitPlugin,
    PodChanges,
    PostBindPlugin,
    PreBindPlugin,
    ReservePlugin,
    Wait,
)
from koordinator.scheduler.engine.columns import NodeReference
from koordinator.scheduler.engine.framework import Plugin, Reason
from koordinator.scheduler.engine.framework_hooks import FailureHandler, PodPatcher
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from tests.scheduler.fakes import make_node, make_pod, make_profile
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi


class Recording(ReservePlugin, PermitPlugin, PreBindPlugin, BindPlugin, PostBindPlugin, PodPatcher, FailureHandler):
    """Does at each point what a label of that name requests, and keeps a record."""

    name = "Recording"

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self.record: list[str] = []
        self.written: dict[str, PodChanges] = {}
        self.opened = False

    def class_key(self, pod: PodInfo) -> Hashable:
        return None

    def reserve(self, state: CycleState, pod: PodInfo, node: NodeReference) -> Reason | None:
        self.record.append("reserve")
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node: NodeReference) -> None:
        self.record.append("unreserve")

    def permit(self, state: CycleState, pod: PodInfo, node: NodeReference) -> Reason | Wait | None:
        match pod.pod.metadata.labels.get("permit"):
            case "wait":
                return Wait(30)
            case "refuse":
                return Reason("the gate is shut")
        return None

    def pre_binds(self, state: CycleState, pod: PodInfo, node: NodeReference) -> bool:
        return "pre-bind" in pod.pod.metadata.labels

    async def pre_bind(
        self, state: CycleState, pod: PodInfo, node: NodeReference, changes: PodChanges, writer: ClusterWriter
    ) -> None:
        match pod.pod.metadata.labels["pre-bind"]:
            case "raise":
                raise RuntimeError("no such volume")
            case "hang":
                await asyncio.Event().wait()
            case "until":
                self.record.append(f"until {await writer.until(lambda: self.opened, 20)}")
        changes.annotations["chosen"] = node.name

    async def bind(self, state: CycleState, pod: PodInfo, node: NodeReference, writer: ClusterWriter) -> BindOutcome:
        return BindOutcome.BOUND if pod.pod.metadata.labels.get("bind") == "mine" else BindOutcome.SKIPPED

    def post_bind(self, state: CycleState, pod: PodInfo, node: NodeReference) -> None:
        self.record.append("bound")

    async def apply_changes(self, pod: PodInfo, changes: PodChanges, writer: ClusterWriter) -> bool:
        self.written[pod.pod.metadata.name] = changes
        return True

    def before_failure(self, pod: PodInfo, message: str) -> bool:
        self.record.append(f"failed: {message}")
        return "swallow" in pod.pod.metadata.labels

    def after_failure(self, pod: PodInfo, message: str) -> None:
        self.record.append(f"told: {message}")


def recording(view: ClusterView, *, preempts: bool = False) -> Profile:
    base = make_profile(view, preempts=preempts)
    name = Recording.name
    plugins: dict[str, Plugin] = {**base.plugins, name: Recording(None, view)}
    here = (name,)
    order = replace(base.order, reserve=here, permit=here, pre_bind=here, bind=here, post_bind=here)
    return Profile(base.scheduler_name, plugins, order)


def plugin_of(fixture: RunningScheduler) -> Recording:
    plugin = fixture.scheduler.engines["koord-scheduler"].profile.plugins["Recording"]
    assert isinstance(plugin, Recording)
    return plugin


def one_node() -> SchedulerApi:
    api = SchedulerApi()
    api.store(make_node("a"))
    return api


def play(*seconds: float, **labels: str) -> RunningScheduler:
    """One pod with these labels, and then so many seconds, one after the other."""

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("p", labels={key.replace("_", "-"): value for key, value in labels.items()}))
        await fixture.until_idle()
        for each in seconds:
            await fixture.until_idle(each)

    return simulate(story, one_node, recording)
