"""Keeps running pods at what the hooks return, through the executor, however they were started.

It goes over all pods when the kubelet has listed them, when a rule has changed, and every few seconds; a pod that is
about to start is handled as soon as a runtime reports it, before the kubelet (pkg/koordlet/runtimehooks/reconciler).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from koordinator.api.host_application import HostApplicationSpec
from koordinator.api.qos import KubernetesQoS
from koordinator.base.clock import Clock
from koordinator.koordlet.enforce.decision_report import DecisionReport
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting
from koordinator.koordlet.enforce.hooks.contexts import Change, ContainerContext, HookError, PodContext, running_pod
from koordinator.koordlet.enforce.hooks.registry import Hook, Hooks
from koordinator.koordlet.enforce.hooks.rules import Rules
from koordinator.koordlet.enforce.node_snapshot import SnapshotSources, tasks_of
from koordinator.koordlet.enforce.strategies.snapshot import Problem, pod_reference
from koordinator.koordlet.pods.kubelet_bandwidths import Bandwidth
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.node.cgroup_layout import UnknownCgroupError
from koordinator.node.errors import FileError
from koordinator.node.host import list_subfolders
from koordinator.node.kernel_files import (
    CPU_BVT,
    CPU_IDLE,
    CPU_QUOTA,
    CPU_SHARES,
    CPUSET,
    MEMORY_LIMIT,
    NET_CLASS,
    OOM_SCORE_ADJ,
    RESCTRL_TASKS,
    KernelFile,
    Target,
    Value,
)

logger = logging.getLogger(__name__)

_STARTING_SECONDS: Final = 60.0
"""For so long a pod is remembered that a runtime starts and that the kubelet does not list."""
_DECIDED_IN_A_STEP: Final = 16
"""Pods: some milliseconds."""

Observe = Callable[[str, str, str, float], None]
"""Called after each call of a hook with the level, the kind of file, ``success`` or ``failed``, and seconds."""

Follower = Callable[[Sequence[PodContext], Rules], None]
"""Does what is no writing of files, for the pods and rules that were gone over."""


_Problems = list[tuple[str, Problem]]
"""Of a hook by name."""


@dataclass(frozen=True, slots=True)
class _Decided:
    """What the hooks desire for one pod, and what that followed from."""

    pod: PodContext
    settings: dict[str, Sequence[DesiredSetting]]
    """By hook."""
    problems: _Problems
    listed: NodePod | None = None
    """None for a pod that a runtime starts, ``until`` the kubelet lists it or the time is over."""
    bandwidths: Mapping[str, Bandwidth] | None = None
    until: float = 0.0


class Reconciler:
    """Part of each enforcing pass in which it is due; ``start`` is called for a pod that a runtime starts, also between
    the steps of a pass."""

    def __init__(
        self,
        hooks: Hooks,
        sources: SnapshotSources,
        rules: Callable[[], Rules],
        report: DecisionReport,
        clock: Clock,
        observe: Observe,
        followers: Sequence[Follower] = (),
    ) -> None:
        """``followers`` are called when what the hooks desire was applied."""
        # What is of processes comes last, right before it is applied: their numbers mean others a moment later.
        self._hooks = tuple(sorted(hooks.reconciled, key=lambda hook: hook.is_of_processes))
        self._sources = sources
        self._get_rules = rules
        self._report = report
        self._clock = clock
        self._observe = observe
        self._followers = followers
        self._starting: dict[str, _Decided] = {}
        self._decided: dict[str, _Decided] = {}
        """By UID, by these rules."""
        self._rules = Rules()
        self.oom_scores: dict[tuple[str, str, str, str], int] = {}
        """What the containers' processes got, by namespace, name and UID of the pod and name of the container."""
        self._new_scores = self.oom_scores
        """Of the pass that is under way."""
        self._submitted: tuple[Sequence[PodContext], Rules] | None = None

    def start(self, pod: PodContext, rules: Rules) -> None:
        """A runtime is about to run the pod, whose cgroup is there. The runtime waits, and with it others that start:
        what is done now is done for this pod alone."""
        executor = self._sources.executor
        # Its folder may have been written as soon as it was there, before kubelet wrote what it gives.
        targets = executor.look_again(pod.cgroup)
        if all(each.uid != pod.uid for each in self._sources.states.pods):
            until = self._clock.monotonic() + _STARTING_SECONDS
            self._starting[pod.uid] = decided = _Decided(pod, *self._decide(pod, rules), until=until)
            for hook in self._hooks:
                if _is_kept(hook):
                    targets |= executor.add(hook.name, decided.settings.get(hook.name, ()))
                elif not hook.is_of_processes:
                    # What is wrong with it is said by the next pass.
                    targets |= executor.add(hook.name, self._of_pod(hook, pod, rules, []))
        executor.apply(targets)

    def submit(self) -> Iterator[None]:
        """What the hooks desire now of all pods and of the node, to the executor, in steps between which others may
        have their turn. What they have decided of a pod holds until the pod, what the kubelet gives it, or a rule is
        another."""
        rules = self._get_rules()
        listed = yield from self._listed(rules)
        problems = _Problems()
        found = listed
        self._new_scores = {}
        for hook in self._hooks:
            if not hook.is_of_processes:
                yield
            # Also those that have begun to start since the last step.
            found = [*listed, *self._starting.values()]
            pods = [each.pod for each in found]
            desired = [setting for each in found for setting in each.settings.get(hook.name, ())]
            if not _is_kept(hook):
                desired += [each for pod in pods for each in self._of_pod(hook, pod, rules, problems)]
            self._sources.executor.submit(hook.name, [*desired, *self._of_node(hook, pods, rules, problems)])
            self._submitted = pods, rules
        self.oom_scores = self._new_scores
        problems += [problem for each in found for problem in each.problems]
        for hook in self._hooks:
            self._report.report(hook.name, [problem for name, problem in problems if name == hook.name])

    def after_apply(self) -> None:
        for hook in self._hooks:
            if hook.is_of_processes:
                # A process that ends leaves its number to another one, which must not get what was meant for it.
                self._sources.executor.submit(hook.name, ())
        if self._submitted is not None:
            for follow in self._followers:
                follow(*self._submitted)

    def _listed(self, rules: Rules) -> Generator[None, None, list[_Decided]]:
        """Of all pods that the kubelet lists and that have not finished; of those that start, anew by other rules."""
        pods = [pod for pod in self._sources.states.pods if not pod.has_finished]
        if rules != self._rules:
            self._decided, self._rules = {}, rules
            for uid, each in self._starting.items():
                self._starting[uid] = _Decided(each.pod, *self._decide(each.pod, rules), until=each.until)
        found, decided = dict[str, _Decided](), 0
        for pod, bandwidths in zip(pods, self._sources.bandwidths.of_each(pods), strict=True):
            known = self._decided.get(pod.uid)
            if known is None or known.listed is not pod or known.bandwidths is not bandwidths:
                running = running_pod(pod, bandwidths)
                known = _Decided(running, *self._decide(running, rules), pod, bandwidths)
                decided += 1
                if decided % _DECIDED_IN_A_STEP == 0:
                    yield
            found[pod.uid] = known
        self._decided = found
        now = self._clock.monotonic()
        for uid, starting in list(self._starting.items()):
            if uid in found or now >= starting.until:
                del self._starting[uid]
        return list(found.values())

    def _decide(self, pod: PodContext, rules: Rules) -> tuple[dict[str, Sequence[DesiredSetting]], _Problems]:
        """What the hooks desire for a pod whose decisions are kept, by hook, and what they cannot do."""
        problems, hooks = _Problems(), filter(_is_kept, self._hooks)
        settings = {hook.name: tuple(self._of_pod(hook, pod, rules, problems)) for hook in hooks}
        return {name: desired for name, desired in settings.items() if desired}, problems

    def _of_pod(self, hook: Hook, pod: PodContext, rules: Rules, problems: _Problems) -> Iterator[DesiredSetting]:
        try:
            if hook.pod is not None:
                change = self._timed("pod", hook, partial(hook.pod, pod, rules))
                yield from _settings(hook.name, pod.cgroup, change)
            if hook.of_pod is not None:
                yield from hook.of_pod(pod, rules)
            yield from self._of_tasks(hook, pod, rules)
            if hook.container is None:
                return
            for container in pod.containers:
                level = "sandbox" if container.is_sandbox else "container"
                change = self._timed(level, hook, partial(hook.container, pod, container, rules))
                yield from _settings(hook.name, container.cgroup, change)
                yield from self._oom_scores(hook, pod, container, change)
        except HookError as error:
            problems.append((hook.name, Problem(str(error), pod_reference(pod.namespace, pod.name, pod.uid))))

    def _of_tasks(self, hook: Hook, pod: PodContext, rules: Rules) -> Iterator[DesiredSetting]:
        group = hook.task_group(pod, rules) if hook.task_group is not None else None
        if group is None:
            return
        tasks = tasks_of(self._sources.reader, (container.cgroup for container in pod.containers))
        if tasks:
            yield DesiredSetting(hook.name, Target(RESCTRL_TASKS, group), tasks, f"tasks of the pod {pod.key}")

    def _oom_scores(
        self, hook: Hook, pod: PodContext, container: ContainerContext, change: Change | None
    ) -> Iterator[DesiredSetting]:
        if change is None or change.oom_score_adj is None or not container.cgroup:
            return
        try:
            processes = self._sources.reader.processes(container.cgroup)
        except FileError:
            # Containers end all the time.
            return
        if processes:
            self._new_scores[pod.namespace, pod.name, pod.uid, container.name] = change.oom_score_adj
        for process in processes:
            target = Target(OOM_SCORE_ADJ, str(process))
            yield DesiredSetting(hook.name, target, change.oom_score_adj, change.reason, change.priority)

    def _of_node(
        self, hook: Hook, pods: Sequence[PodContext], rules: Rules, problems: _Problems
    ) -> Iterator[DesiredSetting]:
        if hook.node is not None:
            yield from hook.node(rules)
        if hook.of_pods is not None:
            yield from hook.of_pods(pods, rules)
        if hook.qos_folder is not None:
            known = {pod.cgroup for pod in pods}
            for class_ in KubernetesQoS:
                change = self._timed("kubeqos", hook, partial(hook.qos_folder, class_, rules))
                folder = self._sources.layout.qos(class_)
                yield from _settings(hook.name, folder, change)
                for other in self._unknown_folders(folder, known) if change is not None else ():
                    yield from _settings(hook.name, other, change)
        if hook.host_application is not None and rules.policy is not None:
            for application in rules.policy.host_applications:
                yield from self._of_application(hook, application, rules, problems)

    def _of_application(
        self, hook: Hook, application: HostApplicationSpec, rules: Rules, problems: _Problems
    ) -> Iterator[DesiredSetting]:
        call = hook.host_application
        if call is None:
            return
        try:
            change = self._timed("hostapp", hook, partial(call, application, rules))
        except HookError as error:
            problems.append((hook.name, Problem(str(error))))
            return
        yield from _settings(hook.name, self._sources.layout.host_application(application), change)

    def _unknown_folders(self, qos_folder: str, known: set[str]) -> Iterator[str]:
        """Folders of pods that the kubelet does not list, and of their containers."""
        layout = self._sources.layout
        for name in self._names_in(qos_folder):
            folder = f"{qos_folder}/{name}"
            try:
                layout.pod_uid(name)
            except UnknownCgroupError:
                continue
            if folder not in known:
                yield folder
                yield from (f"{folder}/{inner}" for inner in self._names_in(folder))

    def _names_in(self, folder: str) -> list[str]:
        # Pods end all the time.
        with suppress(FileError):
            return list_subfolders(self._sources.layout.folder("cpu", folder))
        return []

    def _timed(self, level: str, hook: Hook, call: Callable[[], Change | None]) -> Change | None:
        started = self._clock.monotonic()
        try:
            change = call()
        except HookError:
            self._observe(level, hook.name, "failed", self._clock.monotonic() - started)
            raise
        for file, _ in _values(change):
            self._observe(level, file.key, "success", self._clock.monotonic() - started)
        return change


def _is_kept(hook: Hook) -> bool:
    """Whether a decision for a pod holds until something changes: not where processes come and go, nor that of a hook
    of another package, which may be switched off meanwhile."""
    return bool(hook.gate) and not hook.is_of_processes


def _settings(owner: str, cgroup: str, change: Change | None) -> Iterator[DesiredSetting]:
    """None for a container that has no cgroup yet."""
    if change is None or not cgroup:
        return
    for file, value in _values(change):
        yield DesiredSetting(owner, Target(file, cgroup), value, change.reason, change.priority)


def _values(change: Change | None) -> Iterator[tuple[KernelFile, Value]]:
    if change is None:
        return
    by_file: Mapping[KernelFile, Value | None] = {
        CPU_BVT: change.bvt,
        CPU_IDLE: change.cpu_idle,
        CPU_SHARES: change.cpu_shares,
        CPU_QUOTA: change.cpu_quota,
        # Processes that run need CPUs to run on: only a start can be refused for a lack of exclusive CPUs.
        CPUSET: change.cpuset or None,
        MEMORY_LIMIT: change.memory_limit,
        NET_CLASS: change.net_class,
    }
    yield from ((file, value) for file, value in by_file.items() if value is not None)
