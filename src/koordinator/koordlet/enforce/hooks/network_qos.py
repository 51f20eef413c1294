"""Keeps the traffic control of the node's device, and the marking of packets, at what TCNetworkQoS decides.

Everything is read in each round, so that what others change is put back, and a restart forgets nothing. It happens in a
thread, since netlink and iptables make their callers wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Final

from koordinator.api.nodeslo import NodeSLOSpec
from koordinator.base.said_once import SaidOnce
from koordinator.koordlet.enforce.hooks.network_classes import OWNER, SETS, conflict, is_enabled, plan, removal, want
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.node import traffic_control as tc
from koordinator.node.errors import Unavailable

logger = logging.getLogger(__name__)

_SETS: Final = frozenset(SETS)


class NetworkQoS:
    """Call ``reconcile`` now and then."""

    def __init__(
        self,
        access: tc.TrafficControlAccess,
        policy: Callable[[], NodeSLOSpec | None],
        pods: Callable[[], Sequence[NodePod] | None],
        has_net_cls: Callable[[], bool],
        bandwidths: Callable[[], Mapping[str, int]] = dict,
        *,
        is_enabled: bool,
        observe_only: bool = False,
        record: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``pods`` are those that have not finished, None while the kubelet has not listed them; ``has_net_cls``:
        whether cgroups have net_cls.classid; ``bandwidths``: bits per second, by UID, that pods may send at most,
        whatever they say themselves. Not ``is_enabled``: what there is of it is taken away. ``record`` is
        called with everything that was done."""
        self._access = access
        self._policy = policy
        self._pods = pods
        self._has_net_cls = has_net_cls
        self._bandwidths = bandwidths
        self._is_enabled = is_enabled
        self._observe_only = observe_only
        self._record = record
        self.minors: Mapping[str, int] = {}
        """Of the classes of pods that have one of their own, by UID."""
        self._device = ""
        self._is_clear = False
        """Whether everything has been taken away, or there was nothing."""
        self._said = SaidOnce(logger)
        # One thread, and always the same: rounds come one after the other, also where one was given up, and memory that
        # a round has freed is there for the next.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="network QoS")

    def only_observe(self, is_only: bool) -> None:
        """Whether nothing is done from now on. What was only observed until now is done in the next round."""
        if is_only != self._observe_only:
            self._observe_only, self._is_clear = is_only, False

    async def reconcile(self) -> None:
        """One round. TrafficControlError if nothing can be read, or if something cannot be taken away."""
        policy = self._policy()
        if policy is None:
            return
        wanted = policy if self._is_enabled and is_enabled(policy) else None
        if wanted is None and (self._is_clear or self._has_never_been()):
            return
        work = partial(self._round, wanted, self._pods(), self._has_net_cls(), dict(self._bandwidths()))
        if self._access.waits:
            await asyncio.get_running_loop().run_in_executor(self._thread, work)
        else:
            work()

    def _has_never_been(self) -> bool:
        """Whether the gate is on, no NodeSLO has enabled it yet, and nothing is left of an earlier agent."""
        self._is_clear = self._is_enabled and not self._device and not self._access.has_tree()
        return self._is_clear

    def _round(
        self,
        policy: NodeSLOSpec | None,
        pods: Sequence[NodePod] | None,
        has_net_cls: bool,
        bandwidths: Mapping[str, int],
    ) -> None:
        with self._said.round():
            opened = self._access.open()
            if isinstance(opened, Unavailable):
                self._is_clear = policy is None
                if policy is not None:
                    self._said.say(f"no network QoS: {opened}")
                return
            with closing(opened) as control:
                if policy is None:
                    self._release(control)
                else:
                    self._shape(control, policy, pods, has_net_cls, bandwidths)

    def _shape(
        self,
        control: tc.TrafficControl,
        policy: NodeSLOSpec,
        pods: Sequence[NodePod] | None,
        has_net_cls: bool,
        bandwidths: Mapping[str, int],
    ) -> None:
        self._is_clear = False
        device = control.default_device()
        shaping = control.shaping(device) if device else None
        if device is None or shaping is None:
            # What there is stays: routes go away for a moment when an address is renewed.
            self._said.say("no network QoS: the node has no IPv4 default route")
            return
        if self._device and self._device != device:
            self._carry_out(control, self._device, removal(control.shaping(self._device), None))
        self._device = device
        if trouble := conflict(shaping):
            self._said.say(f"no network QoS: {trouble}")
            return
        wanted = want(policy, pods, self.minors, bandwidths, has_net_cls=has_net_cls)
        for problem in wanted.problems:
            self._said.say(f"{OWNER}: {problem}")
        if pods is not None:
            self.minors = wanted.minors
        self._carry_out(control, device, plan(wanted, shaping, self._marking(control)))

    def _release(self, control: tc.TrafficControl) -> None:
        device = self._device or control.default_device()
        shaping = control.shaping(device) if device else None
        marking = control.marking(_SETS)
        # Where there is no iptables, there is nothing of ours that packets could get a class by.
        steps = removal(shaping, marking if isinstance(marking, tc.Marking) else None)
        if self._carry_out(control, device or "", steps):
            raise tc.TrafficControlError(f"network QoS is not taken away: {self._said}")
        self.minors, self._device, self._is_clear = {}, "", True

    def _marking(self, control: tc.TrafficControl) -> tc.Marking | None:
        found: tc.Marking | Unavailable | tc.TrafficControlError
        try:
            found = control.marking(_SETS)
        except tc.TrafficControlError as error:
            found = error
        if isinstance(found, tc.Marking):
            return found
        self._said.say(f"pods are not distinguished by class, and only their own limits count: {found}")
        return None

    def _carry_out(self, control: tc.TrafficControl, device: str, steps: Iterable[tc.Step]) -> int:
        """How many of them have failed. What needs something that could not be created is not tried, nor reported."""
        failed = 0
        lost: set[str] = set()
        for step in steps:
            if _base(step.thing) in lost:
                continue
            if self._observe_only:
                self._said.say(f"observe only: {OWNER}: {step}")
                continue
            try:
                control.do(device, step)
            except tc.TrafficControlError as error:
                failed += 1
                self._said.say(f"{OWNER}: {error}")
                if step.verb == "add" and isinstance(step.thing, tc.Qdisc):
                    return failed
                if step.verb == "add" and isinstance(step.thing, tc.AddressSet):
                    lost.add(step.thing.name)
            else:
                self._record(f"{device}: {step}")
        return failed


def _base(thing: tc.Thing) -> str:
    """The set that something is of."""
    return thing.set if isinstance(thing, tc.Member | tc.Rule) else ""
