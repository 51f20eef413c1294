"""Which pods are on the node: those that the kubelet lists, and those that it leaves out although they run.

A kubelet that has just started responds with a part of its pods: static ones first, as pending and without containers,
the others when the API server has told of them. A pod is gone when the kernel has no process of it any more, not when
one response lacks it, and so are its containers: otherwise the CPUs of a pod that runs would be given to others for a
few seconds.

The kernel is looked at when the kubelet lists something else than before, and again for as long as it has not made all
that is listed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import is_not

import msgspec

from koordinator.api.pod import Pod
from koordinator.koordlet.pods.node_pod import Look, NodePod, node_pod
from koordinator.node.cgroup_layout import CgroupLayout
from koordinator.node.errors import FileError
from koordinator.node.host import subfolders_or_none

logger = logging.getLogger(__name__)


class PodListing:
    """Call ``update`` with each response of the kubelet."""

    def __init__(self, layout: CgroupLayout, processes: Callable[[str], Sequence[int]]) -> None:
        """``processes`` in a relative folder and below; FileError if it is gone."""
        self._layout = layout
        self._look = look_in(layout)
        self._processes = processes
        self._listed: Sequence[Pod] = ()
        self._pods: Sequence[NodePod] = ()
        self._left_out: frozenset[str] = frozenset()
        self._missing: frozenset[str] = frozenset()
        """UIDs of pods of which cgroups were missing at the last look."""
        self._said: frozenset[str] = frozenset()

    @property
    def pods(self) -> Sequence[NodePod]:
        """The same sequence as before while nothing has changed."""
        return self._pods

    @property
    def without_cgroups(self) -> list[NodePod]:
        """Pods that run, says the kubelet, and of which the kernel has not all cgroups where they are looked for."""
        return [pod for pod in self._pods if pod.is_running and not pod.is_found]

    def update(self, listed: Sequence[Pod]) -> None:
        """``listed`` is the same sequence as the last time while the kubelet's response is the same."""
        is_new, self._listed = listed is not self._listed, listed
        before = {pod.uid: pod for pod in self._pods}
        if is_new:
            pods = [self._updated(pod, before.get(pod.metadata.uid)) for pod in listed]
        else:
            pods = [self._look_again(pod) for uid, pod in before.items() if uid not in self._left_out]
        left_out = self._leave_out(before, {pod.uid for pod in pods})
        pods += left_out
        if len(pods) != len(self._pods) or any(map(is_not, pods, self._pods)):
            self._pods = tuple(pods)
        self._say_what_is_missing()

    def _updated(self, pod: Pod, before: NodePod | None) -> NodePod:
        if before is not None and _is_pending_again(pod, before) and self._runs(before):
            pod = msgspec.structs.replace(pod, status=before.pod.status)
        # Most pods are as they were: what is known of them holds, and whoever has worked out something keeps it.
        return self._look_again(before) if before is not None and before.pod == pod else self._look_at(pod, before)

    def _look_at(self, pod: Pod, before: NodePod | None) -> NodePod:
        return node_pod(pod, self._layout, self._look, "" if before is None else before.sandbox)

    def _look_again(self, pod: NodePod) -> NodePod:
        if pod.is_found and (pod.sandbox or pod.has_finished):
            return pod
        found = self._look_at(pod.pod, pod)
        return pod if found == pod else found

    def _leave_out(self, before: Mapping[str, NodePod], listed: Collection[str]) -> list[NodePod]:
        """Pods that run and are not listed any more."""
        found = [pod for uid, pod in before.items() if uid not in listed and self._runs(pod)]
        if unsaid := [pod for pod in found if pod.uid not in self._left_out]:
            names = ", ".join(map(_name, unsaid))
            logger.info("pods that run stay although the kubelet does not list them any more: %s", names)
        self._left_out = frozenset(pod.uid for pod in found)
        return found

    def _runs(self, pod: NodePod) -> bool:
        try:
            return not pod.has_finished and bool(self._processes(pod.cgroup))
        except FileError:
            return False

    def _say_what_is_missing(self) -> None:
        """Once for each pod that was not there at two looks: the kubelet lists a container before we see its cgroup."""
        absent = self.without_cgroups
        lasting = frozenset(pod.uid for pod in absent)
        unsaid = [pod for pod in absent if pod.uid in self._missing and pod.uid not in self._said]
        if unsaid:
            logger.warning(
                "%d of %d pods are not wholly measured and looked after: cgroups of theirs are missing in %s: %s",
                len(absent),
                len(self._pods),
                self._layout.kubepods,
                ", ".join(f"{_name(pod)} ({pod.cgroup})" for pod in unsaid),
            )
        self._said = (self._said & lasting) | {pod.uid for pod in unsaid}
        self._missing = lasting


def _is_pending_again(pod: Pod, before: NodePod) -> bool:
    """No pod becomes that: the kubelet has not looked at it yet."""
    return before.is_running and pod.status.phase == "Pending" and not pod.status.container_statuses


def look_in(layout: CgroupLayout) -> Look:
    """What the kernel of this machine shows."""
    return lambda folder: subfolders_or_none(layout.folder("cpu", folder))


def _name(pod: NodePod) -> str:
    return f"{pod.pod.metadata.namespace}/{pod.pod.metadata.name}"
