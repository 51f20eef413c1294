"""Trimmed pods: the manager keeps only the tenth of a pod that its controllers and webhooks read.

A large cluster has a hundred thousand pods, and each takes several kilobytes as it is decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from koordinator.api.kinds import PODS
from koordinator.api.pod import Pod, PodSpec, PodStatus
from koordinator.kube.informer import Informer
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.store import IndexFunction
from koordinator.model.overcommit.facts import PodFacts, pod_facts

_NO_STATUS: Final = PodStatus()


class TrimmedPod(Pod):
    """Has the whole metadata, only the node name of the spec, and no status; ``facts`` were computed when the pod
    arrived."""

    facts: PodFacts | None = None


def trimmed(pod: Pod) -> Pod:
    """The pod as a TrimmedPod."""
    return TrimmedPod(metadata=pod.metadata, spec=_on_node(pod.spec.node_name), status=_NO_STATUS, facts=pod_facts(pod))


def trimmed_pods(
    informers: InformerSet, namespace: str, indexes: Mapping[str, IndexFunction[Pod]] | None = None
) -> Informer[Pod]:
    """The informer of all pods, which all controllers and webhooks share; its objects are TrimmedPods."""
    return informers.informer(PODS, namespace=namespace, indexes=indexes, transform=trimmed)


@lru_cache(maxsize=16_384)
def _on_node(name: str) -> PodSpec:
    """The spec with this node name, one object for all pods of a node, since specs are never modified."""
    return PodSpec(node_name=name)
