"""Pods as the manager keeps them: what controllers and webhooks ask of them, without the nine tenths that nobody does.

A cluster has a hundred thousand of them, each of several kilobytes as it is decoded.
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
from koordinator.model.overcommit.pod_facts import PodFacts, pod_facts

_NO_STATUS: Final = PodStatus()


class PodDigest(Pod):
    """Metadata as they are, of the spec the node alone, no status; ``facts`` were worked out when the pod came."""

    facts: PodFacts | None = None


def digest_of(pod: Pod) -> Pod:
    """A PodDigest."""
    return PodDigest(metadata=pod.metadata, spec=_on_node(pod.spec.node_name), status=_NO_STATUS, facts=pod_facts(pod))


def pod_digests(
    informers: InformerSet, namespace: str, indexes: Mapping[str, IndexFunction[Pod]] | None = None
) -> Informer[Pod]:
    """The informer of all pods, which everybody shares: its objects are PodDigests."""
    return informers.informer(PODS, namespace=namespace, indexes=indexes, transform=digest_of)


@lru_cache(maxsize=16_384)
def _on_node(name: str) -> PodSpec:
    """Shared by all pods of a node; nobody changes it."""
    return PodSpec(node_name=name)
