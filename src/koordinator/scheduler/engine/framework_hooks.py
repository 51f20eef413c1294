"""Koordinator's extension points around upstream's: hooks before and after a point, and points about reservations.

A hook takes part where its plugin is listed: transformers of PreFilter, Filter, Score and PostFilter at that point, all
others wherever their plugin is in the profile. The order is the profile's.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

from prometheus_client.registry import Collector

from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.kinds import RESERVATIONS, Kind
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.scheduler.engine.adjustment import Adjustment
from koordinator.scheduler.engine.binding_points import ClusterWriter, ControllerWriter, PodChanges
from koordinator.scheduler.engine.columns import NamedAspect, NodeReference, Rows
from koordinator.scheduler.engine.cycle_state import CycleState
from koordinator.scheduler.engine.decision import Rejection
from koordinator.scheduler.engine.framework import Plugin, Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import NodeStatus


class PreFilterTransformer(Plugin):
    """Around PreFilter, once for each class of pods."""

    def before_pre_filter(self, pod: PodInfo) -> PodInfo | Reason | None:
        """Another pod to evaluate nodes for instead, a reason that rejects every node, or None to go on as it is."""
        return None

    def after_pre_filter(self, pod: PodInfo, node_names: frozenset[str] | None) -> Reason | None:
        """``node_names`` are the only nodes that PreFilter left, None for all; a reason rejects those, too."""
        return None


class FilterTransformer(Plugin):
    """Lets some classes of pods see some nodes otherwise than they are. All other classes, and all other nodes, are
    evaluated as if there were no such plugin.

    Other plugins' ``queueing_hint`` looks at nodes as they are, so this one is asked for its own about every pod that
    waits, whoever has rejected the nodes: whether the pod may see a node otherwise now."""

    def transforms(self, pod: PodInfo) -> bool:
        """Whether it may have anything to say for pods of this class, for which ``class_key`` and ``context_key`` hold
        all that the answer depends on."""
        return True

    @abstractmethod
    def before_filter(self, pod: PodInfo, rows: Rows) -> Mapping[int, Adjustment]:
        """Row -> how Filter and Score shall see it for this class of pods; rows that are left out are seen as they are.
        Asked whenever rows are evaluated; call ``view.columns.touch`` when the answer for a row has changed."""


class ScoreTransformer(Plugin):
    def transforms(self, pod: PodInfo) -> bool:
        """As FilterTransformer.transforms."""
        return True

    @abstractmethod
    def before_score(self, pod: PodInfo, rows: Rows) -> Mapping[int, Adjustment]:
        """As FilterTransformer.before_filter, for Score alone and on top of it."""


class PostFilterTransformer(Plugin):
    @abstractmethod
    def after_post_filter(self, pod: PodInfo, rejection: Rejection) -> None:
        """No node passed, and PostFilter has been asked."""


class FindOneNodePlugin(Plugin):
    @property
    def finds_nodes(self) -> bool:
        """Whether this instance, with its arguments, is to be asked at all."""
        return True

    @abstractmethod
    def find_one_node(self, pod: PodInfo) -> str | Reason | None:
        """The only node that may be considered, a reason why the pod has to wait, or None for no opinion. The first
        such plugin of a profile is asked, once an attempt. With a reason, PostFilter plugins are asked as if this
        plugin had rejected every node."""

    def rejected_by(self, pod: PodInfo) -> Collection[str]:
        """After a reason: the plugins whose filters had a part in it, so that what may make a node pass with them wakes
        the pod, too."""
        return ()


class PreferNodesPlugin(Plugin):
    @abstractmethod
    def prefer_nodes(self, pod: PodInfo) -> Sequence[str]:
        """Nodes to take before all others, whatever their scores: the first that passes all filters. The first such
        plugin of a profile is asked, once an attempt."""


class NextPodPlugin(Plugin):
    @abstractmethod
    def next_pod(self) -> str | None:
        """The uid of the queued pod to try next, or None for the queue's own order. The first such plugin of the
        process is asked."""

    def keeps_back_off(self, pod: PodInfo) -> bool:
        """Whether the pod, once its attempt has failed, is not tried before its back-off is over even when there is
        nothing else to do: since many others would be tried with it, and with each other give up what they need."""
        return False

    def not_freed_by(self, pod: PodInfo) -> Collection[str]:
        """``pod`` gives up the node that it was assumed on: the uids of unschedulable pods that are not to be tried
        again for that, whatever plugins say of the room."""
        return ()


class ResizePodPlugin(Plugin):
    @abstractmethod
    def resize_pod(self, pod: PodInfo, row: int) -> PodInfo | Reason | None:
        """The node is chosen: the pod with what it really takes there, a reason to fail, or None for no change."""


RESERVED: Final = NamedAspect("Reservation")
"""What is said of the Reservations on a node, and who takes from them. For plugins of which the results depend on what
``ReservationRestorePlugin`` gives."""


class ReservationInfo(Protocol):
    """A Reservation, or a pod in operating mode that stands for one, as other plugins see it."""

    @property
    def uid(self) -> str:
        """Also of the pod that stands for it, by which ``view.allocations`` knows what it holds."""

    @property
    def name(self) -> str: ...

    @property
    def node_name(self) -> str:
        """Empty while it has none."""

    @property
    def reservation(self) -> Reservation:
        """For a pod in operating mode: what it would be as a Reservation."""

    @property
    def users(self) -> Mapping[str, PodInfo]:
        """The pods that take from it, by uid."""


class ReservationNominator(Plugin):
    """Says which Reservation a pod takes from. Plugins of the points about Reservations ask it, as
    ``handle.plugin(ReservationNominator)``."""

    @abstractmethod
    def nominated_reservation(self, pod: PodInfo, row: int, *, assumed: bool = False) -> ReservationInfo | None:
        """The Reservation that the pod takes from on ``row``, for Filter, Score and ``allocate``; None if it takes from
        the node alone, and where the row is seen as any pod sees it, since that result is shared with pods that may
        take from none. ``assumed``: the pod counts on the row, as in ``allocate``. Not to be asked in
        ``filter_reservation`` or ``score_reservation``."""

    @abstractmethod
    def nominated_pods(self, pod: PodInfo, row: int) -> tuple[PodInfo, ...]:
        """The running pods that the Reservation takes over on ``row`` for which ``pod`` stands; otherwise as above."""

    @abstractmethod
    def allocated_reservation(self, pod: PodInfo) -> ReservationInfo | None:
        """The Reservation that the pod takes from, once that is allocated: in ``reserve``, PreBind and later."""


class ReservationRestorePlugin(Plugin):
    """Holds something in Reservations beyond amounts: it allocates, and the pod that stands for a Reservation has its
    entry in ``view.allocations`` as any other.

    A pod that may take from Reservations sees their nodes without the pods that stand for these, and so does this
    plugin in its Filter, Score and ``allocate``: ``on_released`` has been called for them, and what owners have taken
    stays taken. What it needs to know about them beyond that is asked for just before."""

    @abstractmethod
    def restore_reservations(
        self, matched: Sequence[ReservationInfo], unmatched: Sequence[ReservationInfo], row: int
    ) -> Any:
        """What the plugin gives back on ``row`` to a pod that may take from ``matched``. ``unmatched`` are of others:
        what their owners have taken of them counts twice there, and once of it is to be given back. The pods that stand
        for them still hold what they hold in ``view.allocations``. Never None; depends on nothing but the arguments and
        the row."""

    def restored(self, row: int) -> Any | None:
        """What ``restore_reservations`` says for the pod for which ``row`` is seen just now. To most pods all
        Reservations are unmatched: then it is asked when this is, and what it says is the same for all of them. So
        whoever calls this in Filter or Score ``reads`` RESERVED. None where nobody takes from any Reservation."""
        seen = self.view.restored.get((ReservationRestorePlugin, self.name, row))
        if seen is not None:
            return seen
        unmatched = self.view.reservations_on(row)
        return self.restore_reservations((), unmatched, row) if unmatched else None


class ReservationPreAllocationRestorePlugin(Plugin):
    """The same for Reservations that take over running pods: the pod that stands for one sees nodes without the pods
    that it may take over."""

    @abstractmethod
    def restore_pre_allocatable(self, reservation: ReservationInfo, pods: Sequence[PodInfo], row: int) -> Any:
        """What the plugin gives back on ``row`` so that ``reservation`` may use what the running ``pods`` hold, some of
        which it would take over. Never None."""

    def restored_pre_allocatable(self, row: int) -> Any | None:
        """What that says for the Reservation for which ``row`` is seen just now; None for all other pods."""
        return self.view.restored.get((ReservationPreAllocationRestorePlugin, self.name, row))


class ReservationFilterPlugin(Plugin):
    @abstractmethod
    def filter_reservation(self, pod: PodInfo, reservation: ReservationInfo, row: int) -> Reason | None:
        """Why the pod cannot take from ``reservation``, or, being one that runs on ``row``, cannot be taken over by it.
        The row is seen as in Filter. Asked in Filter and when a Reservation is nominated, so that both agree: the
        plugin's own Filter need only judge by ``ReservationNominator`` whether the pod takes from one at all."""


class ReservationScorePlugin(Plugin):
    @abstractmethod
    def score_reservation(self, pod: PodInfo, reservation: ReservationInfo, row: int) -> int:
        """How good ``reservation`` is for the pod, on any scale from 0; brought to 0..100 by the largest of the
        candidates. The row is seen as in Filter."""


class ReservationPreBindPlugin(Plugin):
    """Takes part where it is listed at PreBind. A reservation goes through the queue as a pod that stands for it; of
    that pod no PreBind plugin is asked. A profile without such a plugin knows no reservations."""

    watches: ClassVar[tuple[Kind[Any], ...]] = (RESERVATIONS,)
    time_limit: float = 60.0
    """Seconds after which ``pre_bind_reservation`` is given up."""

    @abstractmethod
    async def pre_bind_reservation(
        self,
        state: CycleState,
        reservation: Reservation,
        node: NodeReference,
        changes: PodChanges,
        writer: ClusterWriter,
    ) -> None:
        """I/O that must be done before the reservation gets its node, and what is to be written to it. Raises to fail
        it."""


class PodPatcher(Plugin):
    """Upstream has no such point; the original calls it PreBindExtensions."""

    @abstractmethod
    async def apply_changes(self, pod: PodInfo, changes: PodChanges, writer: ClusterWriter) -> bool:
        """Write what PreBind plugins want of the pod; False leaves it to the next such plugin."""

    def binding_annotations(self, pod: PodInfo, changes: PodChanges) -> Mapping[str, str] | None:
        """``changes`` as annotations of the Binding, which the API server copies to the pod in the moment in which the
        pod gets its node; then nothing is written before. None when that does not do, and by default."""
        return None

    async def apply_reservation_changes(
        self, reservation: Reservation, changes: PodChanges, writer: ClusterWriter
    ) -> bool:
        """The same for what ReservationPreBind plugins want of a reservation."""
        return False


class Controller(Protocol):
    """Work beside scheduling that runs while this instance leads."""

    name: str

    async def run(self) -> None:
        """Until cancelled."""


class ControllerProvider(Plugin):
    @abstractmethod
    def controllers(self, writer: ControllerWriter) -> Sequence[Controller]:
        """The plugin's controllers; asked of one profile's instance only."""


class MetricsProvider(Plugin):
    @abstractmethod
    def collectors(self) -> Sequence[Collector]:
        """What makes the plugin's metrics when they are scraped; asked of one profile's instance only."""


class FinishedPodHandler(Plugin):
    """Is shown the pods that have finished, which hold nothing any more and are in nobody's cluster state. Asked of one
    profile's instance only."""

    @abstractmethod
    def reads_finished(self, pod: Pod) -> bool:
        """Whether the plugin wants to know of the pod. Its metadata count alone."""

    @abstractmethod
    def on_finished(self, pod: Pod) -> None:
        """The pod has finished, or has changed since. Of its spec there is nothing but its node, of its status nothing
        but its phase. It may be shown before what is told of its end as a deletion, or after."""

    @abstractmethod
    def on_finished_gone(self, pod: Pod) -> None:
        """The pod of an ``on_finished`` is gone."""


@dataclass(frozen=True, slots=True)
class JobDiagnosis:
    """Why there is no plan for a job. ``topology_layer``: one domain of it has to take all pods; empty for any."""

    message: str
    topology_layer: str
    slots: Mapping[str, int]
    """Node -> for how many pods there is room."""
    statuses: Sequence[NodeStatus]
    """Why no more."""


@dataclass(frozen=True, slots=True)
class QuestionedJob:
    """The job of a pod that no node can take, for its diagnosis (``--debug-diagnosis``)."""

    key: str
    """What the job is called."""
    waiting: Mapping[str, int]
    """Node -> how many pods of the job wait there for the others."""
    cause: str = ""
    """Why the pod was not even tried: another pod of the job has failed. Empty for that one."""
    preemption: Mapping[str, Any] | None = None
    """How room for the job was looked for by preemption in this attempt; None if nobody has looked."""
    plan: JobDiagnosis | None = None
    """What was found out for all pods of the job at once, and why that is too little."""


class DiagnosisPlugin(Plugin):
    @abstractmethod
    def questioned_job(self, pod: PodInfo) -> QuestionedJob | None:
        """The job in whose attempt the pod has just failed; None for a pod by itself. The first such plugin of the
        profile is asked."""


class QuotaHookPlugin(Plugin):
    """Has a say in quotas, wherever it is in the profile. What it wants to know of quotas beside this it learns as an
    EventHandler that watches them, and by ``handle.plugin(QuotaReader)``."""

    @abstractmethod
    def check_pod(self, quota: str, pod: PodInfo) -> str | None:
        """Why the pod must not use the quota of this name at present; None if it may. Asked once the quota itself has
        room for it, in attempts, when a plan would evict others for it, and when an event may have freed it, of which
        kinds ``events_to_register`` adds to ElasticQuota's own."""

    def quota_patch(self, quota: ElasticQuota) -> Mapping[str, Any]:
        """What is to be written to the object beside what ElasticQuota writes, as a JSON merge patch; empty if it says
        that already. Asked each second."""
        return {}


class QuotaReader(Plugin):
    @abstractmethod
    def quota_of(self, pod: PodInfo) -> str:
        """The name of the quota that the pod counts against; empty for none."""

    @abstractmethod
    def quota_amounts(self, quota: str) -> Mapping[str, Mapping[str, int]]:
        """``min``, ``max``, ``used``, ``request`` and ``runtime`` of the quota by resource, CPUs in thousandths; empty
        for one that nobody knows."""


class ForgetHandler(Plugin):
    @abstractmethod
    def forget_pod(self, pod: PodInfo) -> None:
        """The pod was assumed on a node and is not any more."""


class FailureHandler(Plugin):
    """Around the usual handling of a failed attempt: the pod waits, and its owner is notified."""

    def before_failure(self, pod: PodInfo, message: str) -> bool:
        """True: the plugin has taken care of everything, the pod's place in the queue included."""
        return False

    def after_failure(self, pod: PodInfo, message: str) -> None:
        """The pod waits again, and its owner has been notified."""
        return
