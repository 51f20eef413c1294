"""DynamicResources: keeps pods with resource claims pending, since this scheduler allocates no devices by claims.

Profiles enable the plugin, upstream's default one among them, and nearly all pods have no claims. Scheduling a pod that
has claims without regard to them would leave it on a node whose kubelet cannot start it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from koordinator.scheduler.engine.framework import PreFilterPlugin, PreFilterResult, Reason
from koordinator.scheduler.engine.pod_info import PodInfo

_REASON: Final = Reason("the pod has resource claims, which this scheduler does not allocate", unresolvable=True)


class DynamicResources(PreFilterPlugin):
    """Registers no events: the claims of a pod never change."""

    name = "DynamicResources"

    def class_key(self, pod: PodInfo) -> Hashable:
        return bool(pod.pod.spec.resource_claims)

    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        return PreFilterResult(skip=True, rejection=_REASON if pod.pod.spec.resource_claims else None)
