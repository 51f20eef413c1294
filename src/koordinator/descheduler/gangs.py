"""Which pods leave their nodes together: with the policy Whole the unit is a gang, and with Members it is a pod.

The gang of a pod is what koord-scheduler takes for it, with all gangs of its group. The members that may leave are
those that have a node and do not leave it already. An event of any member or PodGroup has the gangs read anew; between
events each is read once, however many of its members are asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from koordinator.api.kinds import GENERIC_WORKLOADS, POD_DISRUPTION_BUDGETS, POD_GROUPS
from koordinator.api.pod import Pod, is_finished
from koordinator.api.workload import PodDisruptionBudget
from koordinator.descheduler.pod_facts import is_ready, is_terminating
from koordinator.kube.informer import Informer
from koordinator.kube.informer_set import InformerSet
from koordinator.model.gang_declaration import (
    NON_STRICT,
    WHOLE,
    Declaration,
    Defaults,
    declared_by_pod,
    declared_by_pod_group,
    declared_by_workload,
    gang_id_of,
    placed_one_by_one,
    workload_of,
)
from koordinator.model.label_selector import NOTHING, CompiledSelector, SelectorError, compile_selector
from koordinator.model.pod_disruption import lets_unready_go

_BY_GANG: Final = "gang"
_BY_NAMESPACE: Final = "gang namespace"
_KEY: Final = attrgetter("metadata.key")
_NAME: Final = attrgetter("metadata.name")
_DEFAULTS: Final = Defaults()
"""How long members wait for a node does not matter to those that have one."""


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods that leave their nodes together or not at all; ``members`` by their keys."""

    id: str
    members: tuple[Pod, ...]


class Gangs:
    """Creates its informers in ``__init__``, before they run; with the policy Members it needs none.

    ``stays``: whether a member that could leave its node runs on, so that its gang can spare another one."""

    def __init__(
        self,
        pods: Informer[Pod],
        informers: InformerSet,
        policy: str,
        *,
        reads_workloads: bool,
        stays: Callable[[Pod], bool] = is_ready,
    ) -> None:
        self._pods, self._stays = pods, stays
        self.is_whole = policy == WHOLE
        self._known: dict[str, tuple[Declaration | None, Gang]] = {}
        """By id, as of the last event."""
        self._staying: dict[str, frozenset[str]] = {}
        """Id of a gang -> the uids of the members that stay, likewise."""
        if self.is_whole:
            pods.add_index(_BY_GANG, _gang)
            pods.add_handlers(
                name="gangs",
                on_add=lambda pod, _: self._changed(pod),
                on_update=lambda old, new: self._changed(old, new),
                on_delete=lambda pod: self._changed(pod),
            )
            self._pod_groups = informers.informer(POD_GROUPS, absent_is_empty=True)
            self._pod_groups.add_handlers(
                name="gangs",
                on_add=lambda *_: self.forget(),
                on_update=lambda *_: self.forget(),
                on_delete=lambda *_: self.forget(),
            )
            self._workloads = informers.informer(GENERIC_WORKLOADS, absent_is_empty=True) if reads_workloads else None
            if self._workloads is not None:
                self._workloads.add_handlers(
                    name="gangs",
                    on_add=lambda *_: self.forget(),
                    on_update=lambda *_: self.forget(),
                    on_delete=lambda *_: self.forget(),
                )
            self._budgets = informers.informer(POD_DISRUPTION_BUDGETS, indexes={_BY_NAMESPACE: _namespace})

    def of(self, pod: Pod) -> Gang | None:
        """What leaves together with the pod, itself included; None for a pod that leaves alone."""
        gang_id = gang_id_of(pod) if self.is_whole else ""
        if not gang_id or not _may_leave(pod):
            return None
        declaration, gang = self._read(gang_id)
        if declaration is None:
            return gang
        is_spare = declaration.mode == NON_STRICT and self._is_spare(pod, gang_id, declaration)
        return gang if declaration.needs_others and not is_spare else None

    def left_of(self, gang_id: str) -> Gang | None:
        """What is left of a gang that has too few members to go on, with those of its group; None if it has enough."""
        declaration, gang = self._read(gang_id)
        left = sum(gang_id_of(each) == gang_id for each in gang.members)
        return None if declaration is not None and left >= declaration.min_member else gang

    def pods_of(self, gang_id: str) -> Sequence[Pod]:
        return self._pods.by_index(_BY_GANG, gang_id)

    def budget_problem(self, pods: Iterable[Pod]) -> str:
        """Why PodDisruptionBudgets do not let all of these pods leave now; empty if they do."""
        by_namespace: dict[str, list[Pod]] = {}
        for pod in pods:
            by_namespace.setdefault(pod.metadata.namespace, []).append(pod)
        problems = (self._problem_in(each, by_namespace[each]) for each in sorted(by_namespace))
        return next(filter(None, problems), "")

    def forget(self) -> None:
        """Something has changed that gangs depend on."""
        self._known.clear()
        self._staying.clear()

    def _changed(self, *versions: Pod) -> None:
        if any(map(gang_id_of, versions)):
            self.forget()

    def _read(self, gang_id: str) -> tuple[Declaration | None, Gang]:
        found = self._known.get(gang_id)
        if found is None:
            declaration = self._declaration(gang_id)
            group = declaration.group if declaration is not None else (gang_id,)
            members = [each for gang in group for each in self.pods_of(gang) if _may_leave(each)]
            found = self._known[gang_id] = declaration, Gang(gang_id, tuple(sorted(members, key=_KEY)))
        return found

    def _is_spare(self, pod: Pod, gang_id: str, declaration: Declaration) -> bool:
        """Whether enough members run on without the pod, and without those that are on their way."""
        staying = self._staying.get(gang_id)
        if staying is None:
            running = (each for each in self.pods_of(gang_id) if _may_leave(each) and self._stays(each))
            staying = frozenset([each.metadata.uid for each in running])
            self._staying[gang_id] = staying
        return len(staying) - (pod.metadata.uid in staying) >= declaration.min_member

    def _declaration(self, gang_id: str) -> Declaration | None:
        """None for a gang whose minimum cannot be read: then it needs all of its members."""
        pod_group = self._pod_groups.get(gang_id)
        if pod_group is not None:
            return declared_by_pod_group(pod_group, _DEFAULTS)
        declared = (self._declared_by(pod, gang_id) for pod in sorted(self.pods_of(gang_id), key=_KEY))
        return next((each for each in declared if isinstance(each, Declaration)), None)

    def _declared_by(self, pod: Pod, gang_id: str) -> Declaration | str:
        workload = workload_of(pod)
        if not workload:
            return declared_by_pod(pod, gang_id, _DEFAULTS)
        if self._workloads is None:
            return placed_one_by_one(gang_id, _DEFAULTS)
        return declared_by_workload(self._workloads.get(workload), pod, gang_id, _DEFAULTS)

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
