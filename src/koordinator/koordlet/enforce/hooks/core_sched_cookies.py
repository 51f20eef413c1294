"""Assigns the cookies that CoreSched decides to the processes of the node's pods, and reports it.

SYSTEM pods and the container of the agent itself are left alone: the agent must have no cookie, or it could not take
those of others away.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from koordinator.api.nodeslo import NodeSLOSpec
from koordinator.api.qos import QoSClass
from koordinator.base.said_once import SaidOnce
from koordinator.koordlet.agent_metrics import Rows
from koordinator.koordlet.enforce.hooks.contexts import ContainerContext, PodContext
from koordinator.koordlet.enforce.hooks.core_sched import Clear, Container, Give, Plan, group_of, plan
from koordinator.koordlet.enforce.hooks.rules import Rules
from koordinator.node.core_scheduling import NO_COOKIE, CoreScheduling, CoreSchedulingError, Given
from koordinator.node.errors import FileError

logger = logging.getLogger(__name__)

COOKIE_LABELS: Final = (
    *("pod_name", "pod_namespace", "pod_uid"),
    *("container_name", "container_id", "core_sched_group", "core_sched_cookie"),
)


class CookieManager:
    """Call ``follow`` with the pods of each round of the reconciler."""

    def __init__(
        self,
        core: CoreScheduling,
        processes: Callable[[str], list[int]],
        *,
        own_process: int,
        is_enabled: bool,
        observe_only: bool = False,
        count: Callable[[str, str], None] = lambda _, __: None,
        record: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``processes`` of a cgroup; FileError if it is gone. ``count`` is called with a group and ``succeeded`` or
        ``failed``, ``record`` with everything that was done, in words."""
        self._core = core
        self._processes = processes
        self._own_process = own_process
        self._is_enabled = is_enabled
        self._observe_only = observe_only
        self._count = count
        self._record = record
        self._cookies: Mapping[str, int] = {}
        self._given: set[int] = set()
        """Cookies that processes have from the agent, as far as any still had one in the last round."""
        self._containers: Sequence[Container] = ()
        self._has_released = False
        self._said = SaidOnce(logger)

    def rows(self) -> Rows:
        """For ``container_core_sched_cookie``: the containers that have the cookie of their group."""
        for each in self._containers:
            cookie = self._cookies.get(each.group) if each.group is not None else None
            if cookie is not None and cookie in each.cookies.values():
                of_pod = each.pod.name, each.pod.namespace, each.pod.uid
                labels = (*of_pod, each.of.name, each.of.id, each.group or "", str(cookie))
                yield labels, 1.0

    def follow(self, pods: Sequence[PodContext], rules: Rules) -> None:
        """One round. What the kernel refuses is tried again in the next one."""
        if self._has_released or not rules.knows_pods:
            return
        with self._said.round():
            self._round(pods, rules)

    def _round(self, pods: Sequence[PodContext], rules: Rules) -> None:
        policy = rules.policy
        if policy is None:
            return
        if (missing := self._core.unavailable()) is not None:
            self._containers = ()
            if self._is_enabled:
                self._said.say(f"no core scheduling: {missing}")
            return
        if self._is_enabled and rules.group_identity_switch:
            self._said.say("no core scheduling while the kernel's group identity is on")
            return
        containers = [each for pod in pods if pod.qos is not QoSClass.SYSTEM for each in self._of_pod(pod, policy)]
        why = "core scheduling is off for their pods" if self._is_enabled else "the gate CoreSched is off"
        decided = plan(containers, self._cookies, self._given, why)
        present = {cookie for each in containers for cookie in each.cookies.values()}
        self._given = (self._given & present) | set(decided.cookies.values())
        self._carry_out(decided)
        self._containers = [] if self._observe_only else [self._after(each, decided) for each in containers]

    def only_observe(self, is_only: bool) -> None:
        """Whether no process gets a cookie from now on."""
        self._observe_only = is_only

    def _of_pod(self, pod: PodContext, policy: NodeSLOSpec) -> Iterator[Container]:
        group = group_of(pod, policy) if self._is_enabled else None
        for container in pod.containers:
            processes = self._processes_of(container)
            if self._own_process in processes:
                continue
            cookies = {process: cookie for process in processes if (cookie := self._core.cookie(process)) is not None}
            yield Container(container, pod, group, cookies)

    def _processes_of(self, container: ContainerContext) -> list[int]:
        try:
            return self._processes(container.cgroup) if container.cgroup else []
        except FileError:
            # Containers end all the time.
            return []

    def _after(self, container: Container, decided: Plan) -> Container:
        """As it is after the plan, of which only the containers that it has touched are looked at again."""
        touched = {process for action in decided.actions for process in action.processes}
        if not touched & container.cookies.keys():
            return container
        return replace(
            container, cookies={process: self._core.cookie(process) or NO_COOKIE for process in container.cookies}
        )

    def _carry_out(self, decided: Plan) -> None:
        self._cookies = dict(decided.cookies)
        self._has_released = not self._is_enabled and not decided.actions
        for action in decided.actions:
            what = _words(action)
            if self._observe_only:
                self._said.say(f"observe only: {what}")
                continue
            group = None if isinstance(action, Clear) else action.group
            try:
                given = self._do(action)
            except CoreSchedulingError as error:
                self._said.say(f"{what}: {error}")
                self._counted(group, "failed")
                continue
            if group is not None:
                self._cookies = {**self._cookies, group: given.cookie}
                self._given |= {given.cookie}
            self._counted(group, "failed" if given.refused else "succeeded")
            self._record(f"{what}: the cookie {given.cookie} for {len(given.processes)} processes")
            if given.refused:
                self._said.say(f"{what}: {'; '.join(dict.fromkeys(given.refused.values()))}")

    def _do(self, action: Give | Clear) -> Given:
        if isinstance(action, Clear):
            return self._core.clear(action.processes)
        if action.cookie is None:
            return self._core.create(action.processes)
        errors: list[str] = []
        for source in action.sources:
            try:
                return self._core.share(source, action.cookie, action.processes)
            except CoreSchedulingError as error:
                errors.append(str(error))
        raise CoreSchedulingError("; ".join(errors))

    def _counted(self, group: str | None, status: str) -> None:
        if group is not None:
            self._count(group, status)


def _words(action: Give | Clear) -> str:
    if isinstance(action, Clear):
        return f"cookies are taken away since {action.reason}"
    kind = "a new" if action.cookie is None else "its"
    return f"processes of the core scheduling group {action.group!r} get {kind} cookie"
