"""What koord-manager keeps of pods and of the reports of nodes: the small part that its controllers and webhooks read.

A large cluster has a hundred thousand pods, each of which takes several kilobytes as it is decoded, and each of them is
in the report of its node as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from sys import intern
from typing import Final

from koordinator.api.kinds import PODS
from koordinator.api.labels import QUOTA_NAME
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod, PodSpec, PodStatus
from koordinator.kube.informer import Informer
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.store import IndexFunction
from koordinator.manager.features import BINDING_ADMISSION_WEBHOOK
from koordinator.manager.options import Options
from koordinator.model.overcommit.amounts import Amounts
from koordinator.model.overcommit.facts import MetricFacts, PodFacts, metric_facts, pod_facts
from koordinator.model.overcommit.node_report import NODE_REPORTS, NodeReport, NodeReportStatus

_NO_STATUS: Final = PodStatus()
_NO_TEXTS: Final[dict[str, str]] = {}


class TrimmedPod(Pod):
    """Has the identity and the labels and annotations that are read, only the node name of the spec, and no status;
    ``facts`` were computed when the pod arrived."""

    facts: PodFacts | None = None


class TrimmedNodeReport(NodeReport):
    """``facts`` were computed from the report when it arrived. Of the report itself only its time is kept."""

    facts: MetricFacts = MetricFacts()


def trimmed_pods(
    informers: InformerSet, options: Options, indexes: Mapping[str, IndexFunction[Pod]] | None = None
) -> Informer[Pod]:
    """The informer of all pods, which all controllers and webhooks share; its objects are TrimmedPods."""
    labels, annotations = frozenset((QUOTA_NAME,)), frozenset[str]()
    if options.features.enabled(BINDING_ADMISSION_WEBHOOK):
        labels |= frozenset(options.binding_admission.bypass_labels)
        annotations |= frozenset(options.binding_admission.bypass_annotations)
    trim = pod_trimmer(labels, annotations)
    return informers.informer(PODS, namespace=options.namespace, indexes=indexes, transform=trim)


def trimmed_node_reports(informers: InformerSet) -> Informer[NodeReport]:
    """The informer of the reports of all nodes, which all controllers share; its objects are TrimmedNodeReports."""
    return informers.informer(NODE_REPORTS, absent_is_empty=True, transform=_trimmed)


def facts_of(report: NodeReport) -> MetricFacts:
    """Of a report from that informer."""
    return report.facts if isinstance(report, TrimmedNodeReport) else metric_facts(report)


@lru_cache
def pod_trimmer(labels: frozenset[str], annotations: frozenset[str]) -> Callable[[Pod], Pod]:
    """The function that makes a TrimmedPod with these labels and annotations, the same one for equal arguments."""

    def trimmed(pod: Pod) -> Pod:
        given, facts = pod.metadata, pod_facts(pod)
        namespace = intern(given.namespace)
        metadata = ObjectMeta(
            name=given.name,
            namespace=namespace,
            uid=given.uid,
            resource_version=given.resource_version,
            labels=_kept(given.labels, labels),
            annotations=_kept(given.annotations, annotations),
        )
        facts = facts._replace(key=(namespace, given.name), requests=_shared(facts.requests))
        return TrimmedPod(metadata=metadata, spec=_on_node(pod.spec.node_name), status=_NO_STATUS, facts=facts)

    return trimmed


def _kept(texts: Mapping[str, str], keys: Iterable[str]) -> dict[str, str]:
    """One empty dict for all objects that have none of the keys."""
    return {key: intern(texts[key]) for key in keys if key in texts} or _NO_TEXTS


def _trimmed(report: NodeReport) -> NodeReport:
    status = NodeReportStatus(update_time=report.status.update_time)
    return TrimmedNodeReport(metadata=report.metadata, spec=report.spec, status=status, facts=metric_facts(report))


@lru_cache(maxsize=16_384)
def _on_node(name: str) -> PodSpec:
    """The spec with this node name, one object for all pods of a node, since specs are never modified."""
    return PodSpec(node_name=name)


@lru_cache(maxsize=16_384)
def _shared(requests: Amounts) -> Amounts:
    """One object for all pods that request the same, as replicas do."""
    return requests
