"""What the API shows of a workload: how many of its pods there are, and who should make those that are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from koordinator.api.explanations import ApiState
from koordinator.cli.explain_state import condition_message

Document = Mapping[str, Any]
_MAKERS: Final = {
    "Deployment": "the deployment controller makes a ReplicaSet, and the replicaset controller its pods",
    "ReplicaSet": "the replicaset controller makes its pods",
    "StatefulSet": "the statefulset controller makes its pods, one after the other",
    "DaemonSet": "the daemonset controller makes a pod for each node that it may use",
    "Job": "the job controller makes its pods",
}
_PENDING_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class WorkloadFacts:
    """What was found in the API. ``pods`` are its own, those of its ReplicaSets among them; ``events`` are about it and
    its ReplicaSets, oldest first."""

    kind: str
    workload: Document
    replica_sets: Sequence[Document] = ()
    pods: Sequence[Document] = ()
    events: Sequence[Document] = field(default=())

    @property
    def called(self) -> str:
        metadata = self.workload["metadata"]
        return f"{self.kind.lower()} {metadata['namespace']}/{metadata['name']}"


def workload_state(facts: WorkloadFacts) -> ApiState:
    """What there is to say of it, as of an object of which the scheduler says nothing."""
    wanted = wanted_pods(facts)
    if not facts.pods:
        sentence, then = _without_pods(facts, wanted)
        return ApiState(state="noPods", sentence=sentence, next=then)
    phases = Counter((pod.get("status") or {}).get("phase") or "Pending" for pod in facts.pods)
    counts = ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items()))
    sentence = f"{facts.called} has {len(facts.pods)} of {wanted} pods ({counts})"
    waiting = [pod for pod in facts.pods if not (pod.get("spec") or {}).get("nodeName")]
    then = f"koord explain pod {_key(waiting[0])} says why it waits." if waiting else ""
    if len(facts.pods) < wanted and (failure := _failure(facts)):
        then = f"{failure} {then}".strip()
    shown = [f"{_key(pod)}: {condition_message(pod) or 'not tried yet'}" for pod in waiting[:_PENDING_SHOWN]]
    return ApiState(state="hasPods", sentence=sentence, next=then, facts=shown)


def wanted_pods(facts: WorkloadFacts) -> int:
    """How many pods the workload asks for."""
    spec, status = facts.workload.get("spec") or {}, facts.workload.get("status") or {}
    if facts.kind == "DaemonSet":
        return int(status.get("desiredNumberScheduled") or 0)
    given = spec.get("parallelism" if facts.kind == "Job" else "replicas")
    return 1 if given is None else int(given)


def owned_by(objects: Sequence[Document], *owners: Document) -> list[Document]:
    """Those whose controller is one of ``owners``."""
    uids = {owner["metadata"].get("uid") for owner in owners}
    return [
        each
        for each in objects
        if any(
            owner.get("controller") and owner.get("uid") in uids
            for owner in each["metadata"].get("ownerReferences") or ()
        )
    ]


def _without_pods(facts: WorkloadFacts, wanted: int) -> tuple[str, str]:
    maker = _MAKERS[facts.kind]
    metadata, status = facts.workload["metadata"], facts.workload.get("status") or {}
    if not wanted and facts.kind != "DaemonSet":
        return f"{facts.called} asks for no pods", "kubectl scale gives it some."
    if (facts.workload.get("spec") or {}).get("paused"):
        return f"{facts.called} is paused, and has no pods", "kubectl rollout resume lets its controller go on."
    if failure := _failure(facts):
        return f"{facts.called} has none of its {wanted} pods: they could not be created", failure
    seen = status.get("observedGeneration") or (status.get("startTime") if facts.kind == "Job" else None)
    if not seen and not facts.events:
        return (
            f"{facts.called} has no pods, and no controller has looked at it",
            f"{_sentence(maker)}: does kube-controller-manager run, or the workload controllers of koord up?",
        )
    if facts.kind == "DaemonSet" and not wanted:
        return f"{facts.called} has no pods, since no node is one that it may use", f"{_sentence(maker)}."
    if (metadata.get("generation") or 0) > (status.get("observedGeneration") or 0) and facts.kind != "Job":
        return f"{facts.called} has no pods yet: its controller has not seen its last change", f"{_sentence(maker)}."
    return f"{facts.called} has none of its {wanted} pods yet", f"{_sentence(maker)}; ask again in a moment."


def _failure(facts: WorkloadFacts) -> str:
    """The last word of a controller that could not create a pod, with the event or the condition that it is from."""
    for event in reversed(facts.events):
        if event.get("reason") == "FailedCreate":
            source = event.get("reportingComponent") or (event.get("source") or {}).get("component") or "a controller"
            return f"Event FailedCreate of {source}: {event.get('message') or ''}".rstrip(": ")
    for owner in (*facts.replica_sets, facts.workload):
        for condition in (owner.get("status") or {}).get("conditions") or ():
            if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
                return f"Condition ReplicaFailure: {condition.get('message') or condition.get('reason') or ''}"
    return ""


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _key(document: Document) -> str:
    return f"{document['metadata']['namespace']}/{document['metadata']['name']}"
