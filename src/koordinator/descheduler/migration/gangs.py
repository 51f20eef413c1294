"""Which pods move together: with the policy Whole the unit of a migration is a gang, and with Members it is a pod.

The gang of a pod is what koord-scheduler takes for it, with all gangs of its group. The members that may be moved are
those that have a node and do not leave it already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from koordinator.api.annotations import GANG_SIZE
from koordinator.api.kinds import POD_DISRUPTION_BUDGETS, POD_GROUPS
from koordinator.api.labels import GANG_MIGRATION
from koordinator.api.pod import Pod, is_finished
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.api.workload import PodDisruptionBudget
from koordinator.descheduler.migration.arguments import EVICTION, MigrationControllerArgs
from koordinator.descheduler.migration.job_facts import (
    eviction_policy,
    has_passed_arbitration,
    is_ready,
    refers_to,
)
from koordinator.descheduler.migration.job_status import is_terminal
from koordinator.descheduler.migration.ledger import is_available
from koordinator.descheduler.migration.lister import MigrationLister
from koordinator.descheduler.pod_facts import is_terminating
from koordinator.kube.informer_set import InformerSet
from koordinator.model.gang_declaration import (
    MEMBERS,
    NON_STRICT,
    Declaration,
    Defaults,
    declared_by_pod,
    declared_by_pod_group,
    gang_id_of,
)
from koordinator.model.label_selector import NOTHING, CompiledSelector, SelectorError, compile_selector
from koordinator.model.pod_disruption import is_unprotected, lets_unready_go

_BY_GANG: Final = "migration gang"
_BY_NAMESPACE: Final = "migration namespace"
_KEY: Final = attrgetter("metadata.key")
_NAME: Final = attrgetter("metadata.name")
_DEFAULTS: Final = Defaults()
"""How long members wait for a node does not matter to a migration."""


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods that leave their nodes together or not at all; ``members`` by their keys."""

    id: str
    members: tuple[Pod, ...]


class Gangs:
    """Creates its informers in ``__init__``, before they run; with the policy Members it needs none."""

    def __init__(self, cluster: MigrationLister, informers: InformerSet, args: MigrationControllerArgs) -> None:
        self._cluster, self._args = cluster, args
        self._is_whole = args.gang_policy != MEMBERS
        if self._is_whole:
            cluster.pods.add_index(_BY_GANG, _gang)
            self._pod_groups = informers.informer(POD_GROUPS, absent_is_empty=True)
            self._budgets = informers.informer(POD_DISRUPTION_BUDGETS, indexes={_BY_NAMESPACE: _namespace})

    def of(self, pod: Pod) -> Gang | None:
        """What moves together with the pod, itself included; None for a pod that moves alone."""
        gang_id = gang_id_of(pod) if self._is_whole else ""
        if not gang_id or not _may_leave(pod):
            return None
        declaration = self._declaration(gang_id)
        if declaration is not None and declaration.mode == NON_STRICT and self._is_spare(pod, gang_id, declaration):
            return None
        group = declaration.group if declaration is not None else (gang_id,)
        members = [each for gang in group for each in self._pods_of(gang) if _may_leave(each)]
        return Gang(gang_id, tuple(sorted(members, key=_KEY)))

    def budget_problem(self, jobs: Iterable[PodMigrationJob]) -> str:
        """Why PodDisruptionBudgets do not let all pods of the jobs leave now; empty if they do."""
        if not self._is_whole:
            return ""
        pods = [pod for job in jobs if (pod := self._pod_of(job)) is not None and self._asks_budgets(job, pod)]
        namespaces = sorted({pod.metadata.namespace for pod in pods})
        problems = (
            self._problem_in(each, [pod for pod in pods if pod.metadata.namespace == each]) for each in namespaces
        )
        return next(filter(None, problems), "")

    def newcomer(self, job: PodMigrationJob, jobs: Iterable[PodMigrationJob]) -> str:
        """The key of a member of the gang of the job's pod that none of the jobs is for; empty if there is none."""
        pod = self._pod_of(job)
        gang = self.of(pod) if pod is not None and refers_to(job, pod) else None
        if gang is None:
            return ""
        moved = {each.spec.pod_ref.uid for each in jobs if each.spec.pod_ref is not None}
        return next((each.metadata.key for each in gang.members if each.metadata.uid not in moved), "")

    def _is_spare(self, pod: Pod, gang_id: str, declaration: Declaration) -> bool:
        """Whether enough members run on without the pod, and without those that are on their way."""
        others = (each for each in self._pods_of(gang_id) if each.metadata.uid != pod.metadata.uid)
        return sum(map(self._stays, others)) >= declaration.min_member

    def _stays(self, pod: Pod) -> bool:
        moving = (has_passed_arbitration(job) and not is_terminal(job) for job in self._cluster.jobs_of(pod))
        return is_available(pod) and not any(moving)

    def _pods_of(self, gang_id: str) -> Sequence[Pod]:
        return self._cluster.pods.by_index(_BY_GANG, gang_id)

    def _declaration(self, gang_id: str) -> Declaration | None:
        """None for a gang whose minimum cannot be read: then it needs all of its members."""
        pod_group = self._pod_groups.get(gang_id)
        if pod_group is not None:
            return declared_by_pod_group(pod_group, _DEFAULTS)
        declared = (declared_by_pod(pod, gang_id, _DEFAULTS) for pod in sorted(self._pods_of(gang_id), key=_KEY))
        return next((each for each in declared if isinstance(each, Declaration)), None)

    def _pod_of(self, job: PodMigrationJob) -> Pod | None:
        reference = job.spec.pod_ref
        return self._cluster.pod(reference.namespace, reference.name) if reference is not None else None

    def _asks_budgets(self, job: PodMigrationJob, pod: Pod) -> bool:
        unprotected = is_unprotected(pod.status.phase, is_terminating=is_terminating(pod))
        return not unprotected and eviction_policy(job, pod, self._args) == EVICTION

    def _problem_in(self, namespace: str, pods: Iterable[Pod]) -> str:
        budgets = sorted(self._budgets.by_index(_BY_NAMESPACE, namespace), key=_NAME)
        selectors, needed = [_selector(each) for each in budgets], [0] * len(budgets)
        for pod in pods:
            covering = [place for place, each in enumerate(selectors) if each.matches(pod.metadata.labels)]
            if len(covering) > 1:
                return f"{pod.metadata.key} has {len(covering)} PodDisruptionBudgets, and the Eviction API supports one"
            for place in covering:
                needed[place] += is_ready(pod) or not _lets_unready_go(budgets[place])
        for budget, count in zip(budgets, needed, strict=True):
            allowed = budget.status.disruptions_allowed
            if count > allowed:
                return f"the PodDisruptionBudget {budget.metadata.key} allows {allowed} of the {count} evictions"
        return ""


def siblings_of(job: PodMigrationJob, cluster: MigrationLister) -> Sequence[PodMigrationJob]:
    """The other jobs that move the gang of the job's pod, by their names."""
    found = cluster.jobs_of_gang(job.metadata.labels.get(GANG_MIGRATION, ""))
    return sorted((each for each in found if each.metadata.name != job.metadata.name), key=_NAME)


def size_of(job: PodMigrationJob) -> int:
    """How many jobs move the gang of the job's pod, as the job says; 0 if it says nothing that can be read."""
    text = job.metadata.annotations.get(GANG_SIZE, "")
    return int(text) if text.isdecimal() else 0


def _may_leave(pod: Pod) -> bool:
    return bool(pod.spec.node_name) and not is_finished(pod) and not is_terminating(pod)


def _gang(pod: Pod) -> Iterator[str]:
    if gang_id := gang_id_of(pod):
        yield gang_id


def _namespace(budget: PodDisruptionBudget) -> Sequence[str]:
    return (budget.metadata.namespace,)


def _lets_unready_go(budget: PodDisruptionBudget) -> bool:
    status = budget.status
    return lets_unready_go(budget.spec.unhealthy_pod_eviction_policy, status.current_healthy, status.desired_healthy)


def _selector(budget: PodDisruptionBudget) -> CompiledSelector:
    try:
        return compile_selector(budget.spec.selector)
    except SelectorError:
        return NOTHING
