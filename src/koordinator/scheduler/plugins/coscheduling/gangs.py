"""The gangs that the parts of Coscheduling share: events are passed to the gang cache, its instructions carried out,
and the metrics of gangs observed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final, ParamSpec, TypeVar

from prometheus_client import Metric
from prometheus_client.registry import Collector

from koordinator.api.cluster_network_topology import DEFAULT_NAME, ClusterNetworkTopology
from koordinator.api.generic_workload import GenericWorkload
from koordinator.api.kinds import CLUSTER_NETWORK_TOPOLOGIES, GENERIC_WORKLOADS, POD_GROUPS, Kind
from koordinator.api.meta import Object
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.pod_group import PodGroup
from koordinator.base.instruments import Histogram, Scraped
from koordinator.base.metrics import exponential_buckets
from koordinator.model.gang_declaration import gang_id_of
from koordinator.scheduler.engine.framework import EventHandler, Plugin
from koordinator.scheduler.engine.handle import EventType, Handle
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.coscheduling.gang import Gang, Group, MemberState, Wave, gang_of
from koordinator.scheduler.plugins.coscheduling.gang_cache import ALL_ATTEMPTED, GangCache
from koordinator.scheduler.plugins.coscheduling.network_topology.cluster_topology import ClusterTopology
from koordinator.scheduler.plugins.coscheduling.network_topology.solver import Tree

_BUCKETS: Final = exponential_buckets(0.001, 2, 15)
_PREEMPTION_BUCKETS: Final = exponential_buckets(0.001, 2, 20)
_KEPT_SECONDS: Final = 300.0
"""How long the series of a job is kept after its last preemption attempt, as in the original."""
_STEP: Final = 100
_LARGEST: Final = 1000
_SUCCEEDED: Final = "gang is already succeed"


class GangMetrics(Collector):
    """The metrics of gangs; ``groups`` is called at each scrape."""

    def __init__(self, groups: Callable[[], Iterable[Group]]) -> None:
        self._waiting = Scraped(
            "scheduler_waiting_gang_group_number",
            "[ALPHA] Gang groups of which members have a node and wait for the others",
            (),
            lambda: [((), sum(1 for group in groups() if group.members(MemberState.WAITING)))],
        )
        self._cycles = Histogram(
            "scheduler_gang_schedule_cycle_duration_seconds",
            "[ALPHA] Seconds from the first to the last member of a gang group in one attempt",
            ("reason", "job_size"),
            _BUCKETS,
        )
        self._preemptions = Histogram(
            "scheduler_job_preemption_duration_seconds",
            "Latency for running Coscheduling plugin postFilter.",
            ("jobName", "result"),
            _PREEMPTION_BUCKETS,
        )
        self._preempted: dict[tuple[str, str], float] = {}
        """Series -> when it was last observed, in seconds of the scheduler's clock; the oldest first."""

    def attempt_ended(self, reason: str, members: int, seconds: float) -> None:
        """Observe an attempt of a group; ``members``: how many members were tried."""
        self._cycles.labels(reason, job_size(members)).observe(seconds)

    def preemption_ended(self, job: str, result: str, began: float, now: float) -> None:
        """Observe a preemption attempt of a job, from ``began`` to ``now`` in seconds of the scheduler's clock."""
        series = job, result
        self._preemptions.labels(*series).observe(now - began)
        self._preempted.pop(series, None)
        self._preempted[series] = now
        while now - self._preempted[oldest := next(iter(self._preempted))] > _KEPT_SECONDS:
            del self._preempted[oldest]
            self._preemptions.remove(*oldest)

    def collect(self) -> Iterable[Metric]:
        return [*self._waiting.collect(), *self._cycles.collect(), *self._preemptions.collect()]


def job_size(members: int) -> str:
    """The value of the label ``job_size``: the range of a hundred in which the number lies, such as "101-200"."""
    if not members:
        return "0"
    if members > _LARGEST:
        return f"{_LARGEST}+"
    first = (members - 1) // _STEP * _STEP + 1
    return f"{first}-{first + _STEP - 1}"


REJECTED_BY: Final = "JobRejectPlugin"
"""The plugin name with which waiting members are rejected, as in the original."""

P = ParamSpec("P")
T = TypeVar("T")


class Gangs(EventHandler):
    """The gangs of the cluster. All profiles share them, since the members of a gang may use different profiles."""

    def __init__(self, cache: GangCache) -> None:
        self.cache = cache
        self.pending: dict[str, PodInfo] = {}
        """Members that are not bound, by uid; some of them are assumed on a node."""
        self.queueing: list[GangPart] = []
        """The part of each profile that implements PreEnqueue. The handle of the first one acts on the queue that all
        profiles share."""
        self._finished: dict[str, dict[str, Pod]] = {}
        """Id of a gang -> its finished pods by uid: they are no longer members, but count in the PodGroup's status."""
        self.changed: set[str] = set()
        """The ids of gangs whose PodGroup status may have changed; only of PodGroups that are there, since nothing
        clears it on an instance that waits to lead."""
        self.metrics = GangMetrics(lambda: self.cache.groups.values())
        self.topology: ClusterTopology | None = None
        """The network topology; None if the scheduler does not watch it."""

    def on_reset(self) -> None:
        self.cache.clear()
        self.pending.clear()
        self.changed.clear()
        if self.topology is not None:
            self.topology.clear()

    def on_node(self, row: int, node: Node) -> None:
        if self.topology is not None:
            self.topology.set_node(node)

    def on_node_removed(self, row: int, name: str) -> None:
        if self.topology is not None:
            self.topology.remove_node(name)

    def reads_pod(self, pod: PodInfo) -> bool:
        return bool(gang_of(pod))

    def on_pod(self, pod: PodInfo, node_name: str) -> None:
        gang_id = gang_of(pod)
        if not gang_id and pod.uid not in self.cache.by_uid:
            # As most pods are.
            return
        if node_name or not gang_id:
            self.pending.pop(pod.uid, None)
        else:
            self.pending[pod.uid] = pod
        self.tell(self.cache.set_pod, pod.pod, node_name)
        self._note(pod.pod)

    def on_pod_assigned(self, row: int, pod: PodInfo, assumed: bool) -> None:
        """Replace the member's pod: the pod status that the kubelet reports affects the status of the PodGroup."""
        if not assumed and gang_of(pod) and (member := self.cache.by_uid.get(pod.uid)) is not None:
            member.gang.replace_pod(member, pod.pod)
            self._note(pod.pod)

    def _note(self, pod: Pod) -> None:
        gang = self.cache.gangs.get(gang_id_of(pod))
        if gang is not None and gang.from_pod_group:
            self.changed.add(gang.id)

    def on_pod_gone(self, pod: PodInfo) -> None:
        if pod.uid not in self.cache.by_uid:
            return
        self.pending.pop(pod.uid, None)
        self.tell(self.cache.remove_pod, pod.uid)
        self._note(pod.pod)

    def on_finished(self, pod: Pod) -> None:
        """A pod of a gang has finished."""
        self._finished.setdefault(gang_id_of(pod), {})[pod.metadata.uid] = pod
        self._note(pod)

    def on_finished_gone(self, pod: Pod) -> None:
        """A pod that had finished is gone."""
        found = self.finished(gang_id_of(pod))
        if found.pop(pod.metadata.uid, None) is not None and not found:
            del self._finished[gang_id_of(pod)]
        self._note(pod)

    def finished(self, gang_id: str) -> dict[str, Pod]:
        """The finished pods of a gang, by uid."""
        return self._finished.get(gang_id, {})

    @property
    def view(self) -> ClusterView:
        return self.queueing[0].view

    @property
    def network(self) -> Tree | None:
        """The network as a tree; None if it is not known."""
        return self.topology.tree if self.topology is not None else None

    @property
    def pod_groups(self) -> Mapping[str, PodGroup]:
        """By ``namespace/name``."""
        return self.view.objects_of(POD_GROUPS)

    @property
    def admitting_profiles(self) -> set[str]:
        """The scheduler names of the profiles that call Coscheduling at PreEnqueue."""
        profiles = [part.handle.profile for part in self.queueing]
        return {each.scheduler_name for each in profiles if GangPart.name in [part.name for part in each.pre_enqueue]}

    def event(self, gang: Gang, event_type: EventType, reason: str, action: str, note: str) -> bool:
        """Record an event on the PodGroup of the gang; returns whether there is one."""
        pod_group = self.pod_groups.get(gang.id)
        if pod_group is not None:
            self.queueing[0].handle.object_event(POD_GROUPS, pod_group, event_type, reason, action, note)
        return pod_group is not None

    def pod_event(self, pod: Pod, reason: str, action: str, note: str) -> None:
        """Record a warning on a pod."""
        self.queueing[0].handle.pod_event(pod, "Warning", reason, action, note)

    def on_object(self, kind: Kind[Any], key: str, old: Object | None, new: Object | None) -> None:
        if kind is CLUSTER_NETWORK_TOPOLOGIES and key == DEFAULT_NAME and self.topology is not None:
            self._set_topology(self.topology, new if isinstance(new, ClusterNetworkTopology) else None)
        if kind is GENERIC_WORKLOADS:
            self.tell(self.cache.set_workload, key, new if isinstance(new, GenericWorkload) else None)
        if kind is not POD_GROUPS:
            return
        if isinstance(new, PodGroup):
            self.tell(self.cache.set_pod_group, new)
            self.changed.add(key)
        else:
            self.tell(self.cache.remove_pod_group, key)
            self.changed.discard(key)

    def _set_topology(self, topology: ClusterTopology, found: ClusterNetworkTopology | None) -> None:
        """Update the topology. An invalid object gets an event, once for each error."""
        before = topology.problem
        problem = topology.set_object(found)
        if problem and problem != before and found is not None and hasattr(self.queueing[0], "handle"):
            self.queueing[0].handle.object_event(
                CLUSTER_NETWORK_TOPOLOGIES, found, "Warning", "InvalidClusterNetworkTopology", "Reconcile", problem
            )

    def tell(self, event: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Tell the cache of an event, which is one of its methods, and carry out the instructions that follow."""
        result = event(*arguments, **named)
        if self.cache.instructions:
            self._carry_out()
        return result

    def _carry_out(self) -> None:
        instructions = self.cache.take_instructions()
        if not hasattr(self.queueing[0], "handle"):
            # A profile without a scheduler (such as in ``koord explain``) has no queue, and no pods wait at Permit.
            return
        handle = self.queueing[0].handle
        for wave in instructions.ended:
            self._ended(wave)
        for uid in instructions.allow:
            if (waiting := handle.waiting.get(uid)) is not None:
                waiting.allow(GangPart.name)
        for uid, message in instructions.reject:
            if (waiting := handle.waiting.get(uid)) is not None:
                waiting.reject(REJECTED_BY, message)
        if instructions.activate:
            handle.activate(instructions.activate)

    def attempt_begun(self) -> None:
        """Note the time if a new attempt has begun."""
        if self.cache.wave is not None and self.cache.wave.began is None:
            self.cache.wave.began = self.view.now

    def _ended(self, wave: Wave) -> None:
        """Observe the attempt's metrics, and record one event on each PodGroup, beside those of the pods."""
        now = self.view.now
        if wave.began is not None and now is not None:
            seconds = max((now - wave.began).total_seconds(), 0.0)
            reason = _SUCCEEDED if wave.permitted else ALL_ATTEMPTED
            self.metrics.attempt_ended(reason, len(wave.attempted), seconds)
        failed = self.cache.by_uid.get(wave.group.failed_member)
        about = f"no node for {failed.key if failed is not None else 'a member'}"
        for gang in [each for each in wave.group.gangs.values() if each.id in self.pod_groups]:
            if wave.permitted:
                bound = sum(uid in wave.permitted for uid in gang.members)
                note = f"{bound} members of {gang.id} have a node and are bound"
                self.event(gang, "Normal", "Scheduled", "Binding", note)
            elif wave.group.failure:
                note = f"{about}, {len(gang.by_state[MemberState.PENDING])} members wait: {wave.group.failure}"
                self.event(gang, "Warning", "FailedScheduling", "Scheduling", note)


class GangPart(Plugin):
    """A part of the plugin Coscheduling; all parts, of all profiles, have the same gangs."""

    name = "Coscheduling"
    watches: ClassVar[tuple[Kind[Any], ...]] = ()
    """Coscheduling itself watches what the gangs are derived from."""
    handle: Handle

    def __init__(self, args: Any, view: ClusterView, gangs: Gangs) -> None:
        super().__init__(args, view)
        self.gangs, self.cache = gangs, gangs.cache

    def concerns(self, pod: PodInfo) -> bool:
        return bool(gang_of(pod))
