"""The CPU time that the kubelet gives the cgroups of pods: what every feature that changes a quota starts from.

The quota follows from the pod, as ``pod_grant`` has it, since the file may show one of ours, also of an earlier
process. The period is always the kubelet's: nobody here writes it. Where the file of a pod that we never lift a quota
from shows none, the kubelet gives none, whatever the pod's limit is: ``cpuCFSQuota: false``, or CPUs of its static
manager.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from koordinator.api.annotations import RESOURCE_STATUS
from koordinator.koordlet.enforce.executor.executor import Executor
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.model.pod_grants import Grant
from koordinator.node.cgroup_reader import NO_LIMIT
from koordinator.node.kernel_files import CPU_PERIOD, CPU_QUOTA, PERIOD, Target, quota_of_milli
from koordinator.node.kubelet import KubeletConfiguration


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Microseconds of ``quota`` in each ``period``; NO_LIMIT for no quota."""

    quota: int
    period: int = PERIOD


class KubeletSource(Protocol):
    kubelet_configuration: KubeletConfiguration | None


@dataclass(frozen=True, slots=True)
class _Found:
    """Of a pod as it was listed. ``is_settled`` when the kubelet had written all of its files by then."""

    pod: NodePod
    enforces_limits: bool
    bandwidths: dict[str, Bandwidth]
    is_settled: bool


class KubeletBandwidths:
    """Files are read when a pod was listed anew, and as long as the kubelet is still making its cgroups."""

    def __init__(self, executor: Executor, source: KubeletSource) -> None:
        self._executor = executor
        self._source = source
        self._found: dict[str, _Found] = {}

    def of_each(self, pods: Sequence[NodePod]) -> list[Mapping[str, Bandwidth]]:
        """By folder of a pod and of its containers that run; folders that are not there are left out. Each pod has the
        same mapping as before while nothing has changed."""
        configuration = self._source.kubelet_configuration
        enforces_limits = configuration is None or configuration.enforces_cpu_limits
        found: dict[str, _Found] = {}
        for pod in pods:
            known = self._found.get(pod.uid)
            if (
                known is None
                or not known.is_settled
                or known.pod is not pod
                or known.enforces_limits != enforces_limits
            ):
                read = self._read(pod, enforces_limits)
                is_as_before = known is not None and known.bandwidths == read.bandwidths
                known = replace(read, bandwidths=known.bandwidths) if known is not None and is_as_before else read
            found[pod.uid] = known
        self._found = found
        return [found[pod.uid].bandwidths for pod in pods]

    def _read(self, pod: NodePod, enforces_limits: bool) -> _Found:
        bandwidths: dict[str, Bandwidth] = {}
        is_settled = pod.pod.status.phase != "Pending"
        is_lifted = _may_be_lifted(pod)
        for folder, grant in _grants(pod).items():
            shown = self._executor.present(Target(CPU_QUOTA, folder))
            period = self._executor.present(Target(CPU_PERIOD, folder))
            if not isinstance(shown, int):
                is_settled = False
                continue
            given = Bandwidth(NO_LIMIT, period if isinstance(period, int) else PERIOD)
            if enforces_limits and (shown != NO_LIMIT or is_lifted):
                given = Bandwidth(quota_of_milli(grant.cpu_limit or 0, given.period), given.period)
            bandwidths[folder] = given
        return _Found(pod, enforces_limits, bandwidths, is_settled)


def _may_be_lifted(pod: NodePod) -> bool:
    """Whether it is one of those of which we lift quotas: they have CPUs of their own, or their class has a quota."""
    return pod.is_best_effort or RESOURCE_STATUS in pod.pod.metadata.annotations


def _grants(pod: NodePod) -> dict[str, Grant]:
    named = pod.grant.containers
    # The kubelet gives an ephemeral container nothing, and limits it to nothing but what its pod has.
    return {pod.cgroup: pod.grant.pod} | {each.cgroup: named.get(each.name, Grant()) for each in pod.running}
