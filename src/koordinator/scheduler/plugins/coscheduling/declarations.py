"""Where the declarations of gangs come from: PodGroups, Workloads of scheduling.k8s.io, or the pods themselves."""

from __future__ import annotations

from collections.abc import Sequence

from koordinator.api.generic_workload import GenericWorkload
from koordinator.api.pod import Pod
from koordinator.api.pod_group import PodGroup
from koordinator.base.groups import Groups
from koordinator.model.gang_declaration import (
    NOT_READ,
    Declaration,
    Defaults,
    declared_by_pod,
    declared_by_pod_group,
    declared_by_workload,
    placed_one_by_one,
    workload_of,
)
from koordinator.scheduler.plugins.coscheduling.gang import Gang


class Declarations:
    """``reads_workloads``: whether Workloads are known; else pods that refer to one are placed one by one."""

    def __init__(self, defaults: Defaults, *, reads_workloads: bool) -> None:
        self._defaults, self._reads_workloads = defaults, reads_workloads
        self.clear()

    def clear(self) -> None:
        """Forget all Workloads and gangs."""
        self._workloads: dict[str, GenericWorkload] = {}
        self._of_workload = Groups[str, str, Gang]()
        """Key of a Workload -> the gangs that are pod groups of it, by id, whether it exists or not."""

    def of_pod_group(self, pod_group: PodGroup) -> Declaration:
        return declared_by_pod_group(pod_group, self._defaults)

    def of_pod(self, gang: Gang, pod: Pod) -> Declaration | str:
        """What a member says of its gang, without a PodGroup; or, as a text, what is missing."""
        if workload := workload_of(pod):
            gang.workload = workload
            self._of_workload.put(workload, gang.id, gang)
            if not self._reads_workloads:
                return placed_one_by_one(gang.id, self._defaults, NOT_READ)
            return declared_by_workload(self._workloads.get(workload), pod, gang.id, self._defaults)
        found = declared_by_pod(pod, gang.id, self._defaults)
        return f"there is no PodGroup {gang.id}, and of the pod {found}" if isinstance(found, str) else found

    def set_workload(self, key: str, workload: GenericWorkload | None) -> Sequence[Gang]:
        """The Workload was added or updated; or deleted, if it is None. Returns the gangs that it may declare."""
        if workload is None:
            self._workloads.pop(key, None)
        else:
            self._workloads[key] = workload
        return list(self._of_workload.of(key).values())

    def gone(self, gang: Gang) -> None:
        """The gang has no members any more."""
        if gang.workload and gang.id in self._of_workload.of(gang.workload):
            self._of_workload.take(gang.workload, gang.id)
