"""Koordinator's extension points around upstream's: hooks before and after a point, and points about reservations.

The transformers of PreFilter, Filter, Score and PostFilter are called where their plugin is listed at that point, all
other hooks wherever their plugin is in the profile. The order is the profile's.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from prometheus_client.registry import Collector

from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.kinds import RESERVATIONS, Kind
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.base.services import Service
from koordinator.scheduler.engine.binding_points import ClusterWriter, ControllerWriter, CycleState, PodChanges
from koordinator.scheduler.engine.columns import NamedAspect, NodeReference, Rows
from koordinator.scheduler.engine.framework import Plugin, Reason
from koordinator.scheduler.engine.journal import Adjustment
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import NodeStatus
from koordinator.scheduler.engine.view import ReservationInfo


class PreFilterTransformer(Plugin):
    """Hooks before and after PreFilter, called once for each class of pods."""

    def before_pre_filter(self, pod: PodInfo) -> PodInfo | Reason | None:
        """Another pod to evaluate nodes for instead, a reason that rejects every node, or None to continue with
        ``pod``."""
        return None

    def after_pre_filter(self, pod: PodInfo, node_names: frozenset[str] | None) -> Reason | None:
        """``node_names`` are the only nodes that PreFilter left, None for all; a reason rejects those, too."""
        return None


class FilterTransformer(Plugin):
    """Adjusts how some classes of pods see some nodes. All other classes, and all other nodes, are evaluated as if
    there were no such plugin.

    Other plugins' ``queueing_hint`` considers unadjusted nodes, so this plugin's own is called for every unschedulable
    pod, whichever plugins have rejected the nodes: whether the pod may now see a node adjusted differently."""

    def transforms(self, pod: PodInfo) -> bool:
        """Whether the plugin may adjust nodes for pods of this class; ``class_key`` and ``context_key`` must cover all
        that the result depends on."""
        return True

    @abstractmethod
    def before_filter(self, pod: PodInfo, rows: Rows) -> Mapping[int, Adjustment]:
        """Row -> the adjustment with which Filter and Score see it for this class of pods; other rows are unadjusted.
        Called whenever rows are evaluated; call ``view.columns.touch`` when the result for a row has changed."""


class ScoreTransformer(Plugin):
    def transforms(self, pod: PodInfo) -> bool:
        """As FilterTransformer.transforms."""
        return True

    @abstractmethod
    def before_score(self, pod: PodInfo, rows: Rows) -> Mapping[int, Adjustment]:
        """As FilterTransformer.before_filter, for Score alone and on top of it."""


class PostFilterTransformer(Plugin):
    @abstractmethod
    def after_post_filter(self, pod: PodInfo, why: str) -> None:
        """Called when no node passed, after PostFilter; ``why`` is the message without what PostFilter has added."""


class DisruptionUnit(NamedTuple):
    """A gang of which enough members have to stay on their nodes, since the others do no work without them."""

    gang: str
    """The gang's id."""
    group: tuple[str, ...]
    """The ids of the gangs that have to stay together."""
    members: Mapping[str, PodInfo]
    """Of all these gangs those that are on nodes and not on their way out, by uid."""
    spare: int
    """How many of ``gang`` may leave without the others; never below 0."""


class DisruptionUnits(Plugin):
    """Says whoever evicts pods which others are to leave with them. A profile without such a plugin evicts any pod
    alone."""

    @abstractmethod
    def gang_of(self, pod: PodInfo) -> str:
        """The id of the pod's gang; empty for a pod that leaves alone."""

    @abstractmethod
    def unit(self, gang: str) -> DisruptionUnit:
        """The unit of a gang that ``gang_of`` has returned, as it is now."""


class FindOneNodePlugin(Plugin):
    @abstractmethod
    def find_one_node(self, pod: PodInfo) -> str | Reason | None:
        """The only node that may be considered, a reason why the pod has to wait, or None to consider all. Only the
        first such plugin of a profile is called, once for each attempt. With a reason, PostFilter plugins are called as
        if this plugin had rejected every node."""

    def rejected_by(self, pod: PodInfo) -> Collection[str]:
        """The plugins whose filters contributed to a returned reason, so that events that may make a node pass their
        filters retry the pod, too."""
        return ()


class PreferNodesPlugin(Plugin):
    @abstractmethod
    def prefer_nodes(self, pod: PodInfo) -> Sequence[str]:
        """Nodes that win over all others, whatever their scores: the first that passes all filters is taken. Only the
        first such plugin of a profile is called, once for each attempt."""


class NextPodPlugin(Plugin):
    @abstractmethod
    def next_pod(self) -> str | None:
        """The uid of the queued pod to try next, or None for the queue's own order. Only the first such plugin of the
        process is called."""

    def keeps_back_off(self, pod: PodInfo) -> bool:
        """Whether the pod, once its attempt has failed, is not retried before its back-off is over even when the active
        queue is empty: for pods whose retry would retry many others, which would release each other's resources
        again."""
        return False

    def not_freed_by(self, pod: PodInfo) -> Collection[str]:
        """Called when ``pod`` is removed from the node that it was assumed on: the uids of unschedulable pods that are
        not retried for that, whatever queueing hints say."""
        return ()


class ResizePodPlugin(Plugin):
    @abstractmethod
    def resize_pod(self, pod: PodInfo, row: int) -> PodInfo | Reason | None:
        """Called when the node is chosen: the pod with the resources that it takes there, a reason to fail, or None for
        no change."""


RESERVED: Final = NamedAspect("Reservation")
"""The Reservations on a node, and the pods that take from them. For plugins whose results depend on those of
``ReservationRestorePlugin``."""


class ReservationNominator(Plugin):
    """Decides which Reservation a pod takes from. Plugins of the points about Reservations call it through
    ``handle.plugin(ReservationNominator)``."""

    @abstractmethod
    def nominated_reservation(self, pod: PodInfo, row: int, *, assumed: bool = False) -> ReservationInfo | None:
        """The Reservation that the pod takes from on ``row``, for Filter, Score and ``allocate``; None if it takes from
        the node alone, and where the row is unadjusted, since that result is shared with pods that may take from none.
        ``assumed``: the pod counts on the row, as in ``allocate``. Must not be called in ``filter_reservation`` or
        ``score_reservation``."""

    @abstractmethod
    def nominated_pods(self, pod: PodInfo, row: int) -> tuple[PodInfo, ...]:
        """The running pods that the Reservation of the reserve pod ``pod`` takes over on ``row``; otherwise as
        above."""

    @abstractmethod
    def allocated_reservation(self, pod: PodInfo) -> ReservationInfo | None:
        """The Reservation that the pod takes from, once that is allocated: in ``reserve``, PreBind and later."""


class ReservationRestorePlugin(Plugin):
    """A plugin with allocations in Reservations beyond amounts: it allocates, and the reserve pod of a Reservation has
    its entry in ``view.allocations`` as any other pod.

    A pod that may take from Reservations sees their nodes without the reserve pods, and so does this plugin in its
    Filter, Score and ``allocate``: ``on_released`` has been called for them, and what owners have taken stays taken.
    For what it needs to know about them beyond that, ``restore_reservations`` is called before."""

    @abstractmethod
    def restore_reservations(
        self, matched: Sequence[ReservationInfo], unmatched: Sequence[ReservationInfo], row: int
    ) -> Any:
        """What the plugin restores on ``row`` for a pod that may take from ``matched``. ``unmatched`` are those of
        other owners: what these have taken of them counts twice there, of which one is to be restored. The reserve pods
        still hold their allocations in ``view.allocations``. Never None; depends on nothing but the arguments and the
        row."""

    def restored(self, row: int) -> Any | None:
        """The result of ``restore_reservations`` for the pod for which ``row`` is being adjusted. For most pods all
        Reservations are unmatched: then ``restore_reservations`` is called now, with the same result for all of them.
        So a plugin that calls this in Filter or Score ``reads`` RESERVED. None where no pod takes from any
        Reservation."""
        seen = self.view.restored.get((ReservationRestorePlugin, self.name, row))
        if seen is not None:
            return seen
        unmatched = self.view.reservations_on(row)
        return self.restore_reservations((), unmatched, row) if unmatched else None


class ReservationPreAllocationRestorePlugin(Plugin):
    """The same for Reservations that take over running pods: the reserve pod sees nodes without the pods that its
    Reservation may take over."""

    @abstractmethod
    def restore_pre_allocatable(self, reservation: ReservationInfo, pods: Sequence[PodInfo], row: int) -> Any:
        """What the plugin restores on ``row`` so that ``reservation`` may use what the running ``pods`` hold, some of
        which it would take over. Never None."""

    def restored_pre_allocatable(self, row: int) -> Any | None:
        """The result of ``restore_pre_allocatable`` for the Reservation for which ``row`` is being adjusted; None for
        all other pods."""
        return self.view.restored.get((ReservationPreAllocationRestorePlugin, self.name, row))


class ReservationFilterPlugin(Plugin):
    @abstractmethod
    def filter_reservation(self, pod: PodInfo, reservation: ReservationInfo, row: int) -> Reason | None:
        """Why the pod cannot take from ``reservation``, or, if it runs on ``row``, cannot be taken over by it. The row
        is seen as in Filter. Called in Filter and when a Reservation is nominated, so that both agree: the plugin's own
        Filter only has to check with ``ReservationNominator`` whether the pod takes from one at all."""


class ReservationScorePlugin(Plugin):
    @abstractmethod
    def score_reservation(self, pod: PodInfo, reservation: ReservationInfo, row: int) -> int:
        """How good ``reservation`` is for the pod, on any scale from 0; scaled to 0..100 by the largest score of the
        candidates. The row is seen as in Filter."""


class ReservationPreBindPlugin(Plugin):
    """Called where it is listed at PreBind. A reservation goes through the queue as its reserve pod; for that pod no
    PreBind plugin is called. A profile without such a plugin does not schedule reservations."""

    watches: ClassVar[tuple[Kind[Any], ...]] = (RESERVATIONS,)
    time_limit: float = 60.0
    """Timeout of ``pre_bind_reservation`` in seconds."""

    @abstractmethod
    async def pre_bind_reservation(
        self,
        state: CycleState,
        reservation: Reservation,
        node: NodeReference,
        changes: PodChanges,
        writer: ClusterWriter,
    ) -> None:
        """Do the I/O that must precede the reservation's binding to its node, and add to ``changes`` what must be
        written to it. An error fails the binding."""


class PodPatcher(Plugin):
    """Writes the changes of PreBind plugins. Upstream has no such point; the original calls it PreBindExtensions."""

    @abstractmethod
    async def apply_changes(self, pod: PodInfo, changes: PodChanges, writer: ClusterWriter) -> bool:
        """Write the changes that PreBind plugins want of the pod; False leaves it to the next such plugin."""

    def binding_annotations(self, pod: PodInfo, changes: PodChanges) -> Mapping[str, str] | None:
        """``changes`` as annotations of the Binding, which the API server copies to the pod at the moment of binding;
        then nothing is written before. None, the default, if that is not possible."""
        return None

    async def apply_reservation_changes(
        self, reservation: Reservation, changes: PodChanges, writer: ClusterWriter
    ) -> bool:
        """The same for the changes that ReservationPreBind plugins want of a reservation."""
        return False


class Controller(Protocol):
    """A control loop that runs beside scheduling while this instance is the leader."""

    name: str

    async def run(self) -> None:
        """Run until cancelled."""


class ControllerProvider(Plugin):
    @abstractmethod
    def controllers(self, writer: ControllerWriter) -> Sequence[Controller]:
        """The plugin's controllers; called for one profile's instance only."""


class MetricsProvider(Plugin):
    @abstractmethod
    def collectors(self) -> Sequence[Collector]:
        """The collectors that produce the plugin's metrics at each scrape; called for one profile's instance only."""


class ServiceProvider(Plugin):
    """A plugin that serves GET requests (original: APIServiceProvider): it makes documents, and the program handles
    paths, leader checks and encoding."""

    @abstractmethod
    def services(self) -> Mapping[str, Service]:
        """Path below ``/apis/v1/plugins/NAME``, parameters written ``:name`` -> the service for it. If several profiles
        have the plugin, only the first instance's services are served."""


class FinishedPodHandler(Plugin):
    """Is notified of pods that have finished, which hold nothing any more and are not in the cluster state. Called for
    one profile's instance only."""

    @abstractmethod
    def reads_finished(self, pod: Pod) -> bool:
        """Whether the plugin is notified of the pod. Only its metadata may be read."""

    @abstractmethod
    def on_finished(self, pod: Pod) -> None:
        """The pod has finished, or has changed since. Its spec has only the node name, its status only the phase. May
        be called before or after the events by which handlers see the pod's end as a deletion."""

    @abstractmethod
    def on_finished_gone(self, pod: Pod) -> None:
        """The pod of an ``on_finished`` is deleted."""


@dataclass(frozen=True, slots=True)
class JobDiagnosis:
    """Why there is no plan for a job. ``topology_layer``: all pods have to be in one domain of it; empty for no such
    constraint."""

    message: str
    topology_layer: str
    slots: Mapping[str, int]
    """Node -> how many pods of the job fit."""
    statuses: Sequence[NodeStatus]
    """Why no more fit."""


@dataclass(frozen=True, slots=True)
class QuestionedJob:
    """The job of a pod that no node fits, for its diagnosis (``--debug-diagnosis``)."""

    key: str
    """The job's name."""
    waiting: Mapping[str, int]
    """Node -> how many pods of the job wait there for the others."""
    cause: str = ""
    """The failure of another pod of the job, for which this pod was not even tried. Empty for the pod that failed."""
    preemption: Mapping[str, Any] | None = None
    """The course of the preemption for the job in this attempt; None if there was none."""
    plan: JobDiagnosis | None = None
    """The result of planning for all pods of the job at once, and why it is insufficient."""


class DiagnosisPlugin(Plugin):
    @abstractmethod
    def questioned_job(self, pod: PodInfo) -> QuestionedJob | None:
        """The job in whose attempt the pod has just failed; None for a single pod. Only the first such plugin of the
        profile is called."""


class QuotaHookPlugin(Plugin):
    """Extends the check and the status of quotas, wherever it is in the profile. It gets further facts about quotas as
    an EventHandler that watches them, and by ``handle.plugin(QuotaReader)``."""

    @abstractmethod
    def check_pod(self, quota: str, pod: PodInfo) -> str | None:
        """Why the pod must not use the quota of this name at present; None if it may. Called once the quota itself
        admits the pod: in attempts, when a plan would evict others for it, and after events of the kinds that this
        plugin's ``events_to_register`` adds to ElasticQuota's own."""

    def quota_patch(self, quota: ElasticQuota) -> Mapping[str, Any]:
        """A JSON merge patch of the object in addition to what ElasticQuota writes; empty if the object is up to date.
        Called each second."""
        return {}


class QuotaReader(Plugin):
    @abstractmethod
    def quota_of(self, pod: PodInfo) -> str:
        """The name of the quota that the pod counts against; empty for none."""

    @abstractmethod
    def quota_amounts(self, quota: str) -> Mapping[str, Mapping[str, int]]:
        """``min``, ``max``, ``used``, ``request`` and ``runtime`` of the quota by resource, CPUs in thousandths; empty
        for an unknown quota."""


class ForgetHandler(Plugin):
    @abstractmethod
    def forget_pod(self, pod: PodInfo) -> None:
        """Called when the pod was assumed on a node and is not any more."""


class FailureHandler(Plugin):
    """Hooks around the usual handling of a failed attempt: the pod is requeued, and the failure reported on it."""

    def before_failure(self, pod: PodInfo, message: str) -> bool:
        """True if the plugin has handled the failure completely, the pod's place in the queue included."""
        return False

    def after_failure(self, pod: PodInfo, message: str) -> None:
        """Called when the pod is requeued and the failure has been reported on it."""
        return
