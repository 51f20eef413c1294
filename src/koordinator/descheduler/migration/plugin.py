"""The plugin MigrationController: evicts by PodMigrationJobs, and says which pods may be evicted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from itertools import islice
from typing import Any, ClassVar, NamedTuple, Self
from uuid import UUID

from msgspec.structs import replace

from koordinator.api import annotations as annotation_keys
from koordinator.api.codec import to_document
from koordinator.api.drain_node import DrainNodeSpec
from koordinator.api.kinds import POD_MIGRATION_JOBS, PRIORITY_CLASSES
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import DeleteOptions
from koordinator.base.durations import format_duration
from koordinator.base.loops import LoopSupervisor
from koordinator.base.token_bucket import TokenBucket
from koordinator.descheduler.default_evictor import DefaultEvictor
from koordinator.descheduler.default_evictor_arguments import DefaultEvictorArgs
from koordinator.descheduler.drain.controller import DrainController
from koordinator.descheduler.drain_group.controller import DrainGroupController
from koordinator.descheduler.eviction_pipeline import EvictionPipeline, Policy
from koordinator.descheduler.features import NODE_DRAIN
from koordinator.descheduler.framework import (
    NOTHING_REFUSED,
    EvictionResult,
    EvictPlugin,
    FilterPlugin,
    Handle,
    Refusals,
    Snapshot,
)
from koordinator.descheduler.gangs import Gang
from koordinator.descheduler.migration.arbitration import ArbitrationStatus, gang_key
from koordinator.descheduler.migration.arbitrator import Arbitrator
from koordinator.descheduler.migration.arguments import NODE_FIT, MigrationControllerArgs
from koordinator.descheduler.migration.controller import JobController
from koordinator.descheduler.migration.disrupted_gangs import DisruptedGangs
from koordinator.descheduler.migration.evictors import PodEvictor
from koordinator.descheduler.migration.gangs import MovingGangs
from koordinator.descheduler.migration.job_facts import waits
from koordinator.descheduler.migration.job_writer import JobWriter
from koordinator.descheduler.migration.ledger import MigrationLedger, PlannedMigrations
from koordinator.descheduler.migration.lister import MigrationLister
from koordinator.descheduler.migration.policies import EvictionRules, MigrationPolicies
from koordinator.descheduler.migration.recent_evictions import CoolDown, ObjectLimiter
from koordinator.descheduler.migration.scavenger import Scavenger
from koordinator.descheduler.migration.workloads import FRESH, Workloads
from koordinator.kube.errors import KubeError
from koordinator.kube.reconciler import Reconcilers

logger = logging.getLogger(__name__)


class _RefusedMembers(NamedTuple):
    """What keeps a gang, found once for all of its members."""

    gang: Gang
    first_two: Sequence[tuple[Pod, Refusals]]
    """The second is for the first, which does not keep itself in this way."""


class MigrationController(FilterPlugin, EvictPlugin):
    """Hosts the controller of jobs too, whichever client created them."""

    name: ClassVar[str] = "MigrationController"
    args_type: ClassVar[type[Any] | None] = MigrationControllerArgs
    has_controllers: ClassVar[bool] = True

    def __init__(self, args: MigrationControllerArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        node_fit = args.node_fit and not args.skips(NODE_FIT)
        fitting = DefaultEvictorArgs(node_fit=node_fit, node_selector=args.node_selector)
        self._node_fit = DefaultEvictor(fitting, handle)
        client, clock, metrics = handle.client, handle.clock, handle.metrics
        self._uid = str(UUID(int=handle.random.getrandbits(128), version=4))
        self._cluster = MigrationLister(handle.informers)
        self._priority_classes = handle.informers.informer(PRIORITY_CLASSES)
        self._writer = JobWriter(client, handle.recorder)
        self._workloads = Workloads(self._cluster, client, clock)
        self._gangs = MovingGangs(self._cluster, handle, args)
        self._limiter = ObjectLimiter(args)
        self._cool_down = CoolDown(args.cool_down)
        self._rules = EvictionRules(args, self._priority_of_class)
        self._ledger = MigrationLedger(self._cluster)
        self._begin_plan()
        self._reconcilers = Reconcilers(clock, metrics, "koordinator_descheduler_reconcile_total")
        bucket = TokenBucket(clock, args.evictions_per_second, args.evict_burst)
        evictor = PodEvictor(handle, bucket)
        self.controller = JobController(
            handle,
            self._reconcilers,
            self._cluster,
            self._writer,
            evictor,
            self._workloads,
            self._gangs,
            self._limiter,
            self._cool_down,
            args,
        )
        policies = MigrationPolicies(args, self._rules, self._cluster, self._ledger, self._workloads)
        self.arbitrator = Arbitrator(
            self._cluster,
            self._writer,
            policies,
            self._workloads,
            self._gangs,
            args.arbitration_args,
            clock,
            self._reconcilers.yielding,
        )
        self.scavenger = Scavenger(client, self._cluster, clock, args.cool_down)
        self._loops = LoopSupervisor(clock=clock, random=handle.random, metrics=metrics)
        self._loops.add(self.arbitrator.loop)
        self._loops.add(self.scavenger.loop)
        self.disrupted_gangs: DisruptedGangs | None = None
        if args.evict_disrupted_gangs:
            shared = handle, self._reconcilers, self._cluster, self._gangs, evictor
            self.disrupted_gangs = DisruptedGangs(*shared, policies.for_good.evaluate, args)
        self.drain: DrainController | None = None
        self.drain_groups: DrainGroupController | None = None
        if NODE_DRAIN in handle.gates:
            names = args.scheduler_names
            self.drain = DrainController(
                handle, self._reconcilers, self._cluster, self._workloads, self._drain_policy, names
            )
            self.drain_groups = DrainGroupController(handle, self._reconcilers, self._cluster)

    async def run(self) -> None:
        """Carry jobs out while this process leads."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.controller.run(), name="migration controller")
            tasks.create_task(self._loops.run(), name="migration loops")
            if self.disrupted_gangs is not None:
                tasks.create_task(self.disrupted_gangs.run(), name="disrupted gangs")
            if self.drain is not None:
                tasks.create_task(self.drain.run(), name="drain controller")
            if self.drain_groups is not None:
                tasks.create_task(self.drain_groups.run(), name="drain group controller")

    async def intentions(self) -> Sequence[str]:
        """For each job, DrainNode and DrainNodeGroup what would be done about it, and what would be scavenged."""
        return [
            *await self._job_intentions(),
            *await self.scavenger.intentions(),
            *(self.disrupted_gangs.intentions() if self.disrupted_gangs is not None else ()),
            *(await self.drain.intentions() if self.drain is not None else ()),
            *(await self.drain_groups.intentions() if self.drain_groups is not None else ()),
        ]

    async def _job_intentions(self) -> list[str]:
        found, goes_on = [], []
        moving = set[tuple[str, str]]()
        for job, result in await self.arbitrator.results():
            what = f"{result.status.value}: {'; '.join(result.reasons)}" if result.reasons else result.status.value
            found.append(f"PodMigrationJob {job.metadata.name}: {what}")
            if result.status is ArbitrationStatus.PASSED:
                if (gang := result.gang) is not None and (key := gang_key(job, gang)) not in moving:
                    moving.add(key)
                    members = ", ".join(each.metadata.key for each in gang.members)
                    found.append(f"PodMigrationJob {job.metadata.name}: move all of gang {gang.id}: {members}")
                annotations = {**job.metadata.annotations, annotation_keys.PASSED_ARBITRATION: "true"}
                goes_on.append(replace(job, metadata=replace(job.metadata, annotations=annotations)))
        goes_on += [job for job in self._cluster.jobs() if not waits(job) and job.metadata.deletion_timestamp is None]
        for job in goes_on:
            found += [f"PodMigrationJob {job.metadata.name}: {each}" for each in await self.controller.intentions(job)]
        return found

    async def prepare(self, snapshot: Snapshot) -> None:
        """Read the scales of workloads of other kinds than Kubernetes' own."""
        pods = (pod for on_node in snapshot.pods_by_node.values() for pod in on_node)
        await self._workloads.refresh(pods, older_than=FRESH)
        await self._node_fit.prepare(snapshot)
        self._begin_plan()

    def rehearsing(self) -> Self:
        copied = super().rehearsing()
        copied._node_fit = self._node_fit.rehearsing()
        return copied

    def _begin_plan(self) -> None:
        """Nothing is planned yet that no job was made for."""
        self._planned = PlannedMigrations(self._ledger)
        policies = MigrationPolicies(self.args, self._rules, self._cluster, self._planned, self._workloads)
        may_migrate = policies.for_new_job.evaluate
        self._member = EvictionPipeline(self._planned.refusals, may_migrate, self._is_cooling_down)
        self._candidates = EvictionPipeline(self._member.evaluate, self._node_fit.pre_eviction_filter, self._with_gang)
        self._evictable = EvictionPipeline(may_migrate, self._is_limited, self._with_gang)
        self._refused: dict[str, _RefusedMembers] = {}

    def _with_gang(self, pod: Pod) -> Refusals:
        """Why another member of the pod's gang may not be moved, so that this one stays, too."""
        gang = self._gangs.of(pod)
        if gang is None:
            return NOTHING_REFUSED
        known = self._refused.get(gang.id)
        if known is None or known.gang != gang:
            refused = ((member, self._member.evaluate(member)) for member in gang.members)
            known = _RefusedMembers(gang, tuple(islice((each for each in refused if each[1]), 2)))
            self._refused[gang.id] = known
        for member, refusals in known.first_two:
            if member.metadata.uid != pod.metadata.uid:
                return [f"gang {gang.id}: {member.metadata.key}: {each}" for each in refusals]
        return NOTHING_REFUSED

    def _is_cooling_down(self, pod: Pod) -> Refusals:
        return self._cool_down.refusals(pod, self.handle.clock.now())

    def _is_limited(self, pod: Pod) -> Refusals:
        return self._limiter.refusals(pod, self.handle.clock.monotonic())

    def filter(self, pod: Pod) -> Refusals:
        """Why no job would be made for the pod now."""
        return self._candidates.evaluate(pod)

    def pre_eviction_filter(self, pod: Pod) -> Refusals:
        """With ``nodeFit``, whether the pod fits on another node."""
        return self._node_fit.pre_eviction_filter(pod)

    async def evict(self, pod: Pod, plugin: str, reason: str, options: DeleteOptions | None) -> EvictionResult:
        """Create a job for the pod."""
        if self.args.dry_run:
            logger.info("%s would evict %s because of %s", plugin, pod.metadata.key, reason)
            return EvictionResult(True, "dry run")
        refusals = self._evictable.evaluate(pod)
        if refusals:
            return EvictionResult(False, "; ".join(refusals))
        try:
            job = await self._writer.create(self._job_for(pod, plugin, reason, options))
        except KubeError as error:
            return EvictionResult(False, f"the job could not be created: {error}")
        self._refused.clear()
        return EvictionResult(True, f"PodMigrationJob {job.metadata.name} was created")

    def plan_eviction(self, pod: Pod) -> EvictionResult:
        refusals = () if self.args.dry_run else self._evictable.evaluate(pod)
        if refusals:
            return EvictionResult(False, "; ".join(refusals))
        if not self.args.dry_run:
            gang = self._gangs.of(pod)
            for each in gang.members if gang is not None else (pod,):
                self._planned.add(each)
            self._refused.clear()
        return EvictionResult(True, "dry run")

    def _job_for(self, pod: Pod, plugin: str, reason: str, options: DeleteOptions | None) -> dict[str, Any]:
        metadata, args = pod.metadata, self.args
        spec = {
            "podRef": {"namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid},
            "mode": args.default_job_mode,
            "ttl": format_duration(args.default_job_ttl),
        }
        chosen = options or args.default_delete_options
        if chosen is not None:
            spec["deleteOptions"] = to_document(chosen)
        return {
            "apiVersion": POD_MIGRATION_JOBS.api_version,
            "kind": POD_MIGRATION_JOBS.name,
            "metadata": {
                "name": str(UUID(int=self.handle.random.getrandbits(128), version=4)),
                "annotations": {
                    annotation_keys.EVICT_REASON: reason,
                    annotation_keys.EVICT_TRIGGER: plugin,
                    annotation_keys.JOB_CREATED_BY: self._uid,
                },
            },
            "spec": spec,
        }

    def _drain_policy(self, spec: DrainNodeSpec) -> Policy:
        """Why no waiting would let a pod be moved, where a DrainNode does not say otherwise."""
        args = replace(
            self.args,
            evict_all_bare_pods=self.args.evict_all_bare_pods or spec.force,
            evict_local_storage_pods=self.args.evict_local_storage_pods or spec.delete_empty_dir_data,
        )
        rules = EvictionRules(args, self._priority_of_class)
        return MigrationPolicies(args, rules, self._cluster, self._ledger, self._workloads).for_good.evaluate

    def _priority_of_class(self, name: str) -> int | None:
        found = self._priority_classes.get(name)
        return found.value if found is not None else None
