"""What the API alone shows of a pod or a node: at which end or beginning of its life it is, in one plain sentence,
and what to do next. Decided on documents as the API has them; no request is sent here."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from koordinator.api import labels as label_keys
from koordinator.api.explanations import ApiState
from koordinator.api.pod import FINISHED_PHASES
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import CPU
from koordinator.api.usable_amounts import limit_text

KOORD_SCHEDULER: Final = "koord-scheduler"
_DEFAULT_SCHEDULER: Final = "default-scheduler"
_NAMES_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class State:
    """``kind`` is for programs, the others for people."""

    kind: str
    sentence: str
    next: str = ""

    @property
    def needs_saying(self) -> bool:
        """Whether it comes before what the scheduler knows: that speaks of pods that wait or run, and of nothing
        else."""
        return self.kind not in ("pending", "running", "there")


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What was found about the pod ``namespace/name`` in the API."""

    namespace: str
    name: str
    cluster: str
    pod: Mapping[str, Any] | None
    """None when it is not there; the next four say what is instead."""
    namespace_is_there: bool = True
    elsewhere: Sequence[str] = ()
    """Other namespaces that have a pod of that name."""
    elsewhere_unknown: str = ""
    """Why other namespaces could not be looked at."""
    similar: Sequence[str] = ()
    """Pods of the namespace with a name like that."""
    events: Sequence[Mapping[str, Any]] = ()
    """core/v1 Events about it, oldest first."""
    served: Collection[str] | None = None
    """The names under which koord-scheduler takes pods; None when it could not be queried."""
    has_placed_others: bool | None = field(default=None)
    """Whether another pod of the same scheduler is on a node; None when that is not known."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


def scheduler_of(pod: Mapping[str, Any]) -> str:
    """The scheduler of the pod; a label counts more than the spec, as with the Go original."""
    labels = pod["metadata"].get("labels") or {}
    name: str = labels.get(label_keys.SCHEDULER_NAME) or pod["spec"].get("schedulerName") or _DEFAULT_SCHEDULER
    return name


def pod_state(facts: PodFacts) -> State:
    """Which state the pod is in; the first that applies."""
    pod = facts.pod
    if pod is None:
        return _absent(facts)
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return _terminating(facts, metadata, spec)
    if status.get("phase") in FINISHED_PHASES:
        return _finished(facts, status)
    if spec.get("nodeName"):
        return _bound(facts, spec, status)
    scheduler = scheduler_of(pod)
    known = facts.served if facts.served is not None else None
    if known is not None and scheduler not in known:
        return _not_served(facts, scheduler, known)
    if gates := [gate.get("name", "") for gate in spec.get("schedulingGates") or ()]:
        named = f"the scheduling gate{'s' if len(gates) > 1 else ''} {', '.join(gates)}"
        return State(
            "gated",
            f"pod {facts.key} is held back by {named}; no scheduler tries it until {_they(gates)} gone",
            "The controller that set a gate takes it off; kubectl edit pod "
            f"{facts.name} -n {facts.namespace} takes it off by hand.",
        )
    return _pending(facts, scheduler)


def condition_message(pod: Mapping[str, Any]) -> str:
    """What the PodScheduled condition says; empty when it says nothing."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") != "True":
            message: str = condition.get("message") or condition.get("reason") or ""
            return message
    return ""


def node_state(name: str, cluster: str, node: Mapping[str, Any] | None, similar: Sequence[str]) -> State:
    """Whether there is such a node, and what keeps pods off it as far as the API says so."""
    if node is None:
        like = f"; there {'is' if len(similar) == 1 else 'are'} {_some(similar)}" if similar else ""
        return State("notThere", f"there is no node {name} in {cluster}{like}", "kubectl get nodes lists them.")
    ready = next((each for each in _conditions(node) if each.get("type") == "Ready"), None)
    if ready is None or ready.get("status") != "True":
        said = (ready or {}).get("message") or (ready or {}).get("reason") or "its kubelet has not reported"
        return State("notReady", f"node {name} is not ready: {said}", f"kubectl describe node {name} says more.")
    if (node.get("spec") or {}).get("unschedulable"):
        return State("cordoned", f"node {name} is cordoned", f"kubectl uncordon {name} lets pods onto it again.")
    return State("there", f"node {name} is ready")


def node_facts(node: Mapping[str, Any]) -> list[str]:
    """Its taints and what it offers, as the API has them."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    taints = [_taint(each) for each in spec.get("taints") or ()]
    allocatable = [_amount(name, text) for name, text in sorted((status.get("allocatable") or {}).items())]
    facts = [f"taint {taint}" for taint in taints]
    return [*facts, f"allocatable: {', '.join(allocatable)}"] if allocatable else facts


def _amount(resource: str, text: str) -> str:
    # Loaded only where it is needed: the scheduler behind it is half of what `koord` would load at every start.
    from koordinator.scheduler.explain.explainer import amount_of

    try:
        quantity = Quantity.parse(text)
    except ValueError:
        return f"{text} {resource}"
    return amount_of(resource, quantity.milli if resource == CPU else quantity.value)


def _taint(taint: Mapping[str, Any]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key', '')}{value}:{taint.get('effect', '')}"


def object_state(kind: str, found: Mapping[str, Any]) -> ApiState:
    """What a quota, a gang or a Reservation says of itself: its phase, and what it declares and uses."""
    spec, status = found.get("spec") or {}, found.get("status") or {}
    phase = status.get("phase")
    facts: list[str] = []
    for title, part, name in _DECLARED.get(kind, ()):
        value = {"spec": spec, "status": status}[part].get(name)
        if isinstance(value, Mapping):
            value = ", ".join(f"{each} {limit_text(each, str(amount))}" for each, amount in sorted(value.items()))
        if value not in (None, ""):
            facts.append(f"{title}: {value}")
    sentence = f"{kind} {found['metadata']['name']} is there" + (f", and is {phase}" if phase else "")
    return ApiState(state="there", sentence=sentence, facts=facts)


_DECLARED: Final[Mapping[str, Sequence[tuple[str, str, str]]]] = {
    "quota": (("at least", "spec", "min"), ("at most", "spec", "max"), ("used", "status", "used")),
    "gang": (
        ("needs members", "spec", "minMember"),
        ("scheduled members", "status", "scheduled"),
        ("running members", "status", "running"),
    ),
    "reservation": (
        ("on node", "status", "nodeName"),
        ("reserved", "status", "allocatable"),
        ("used by owners", "status", "allocated"),
    ),
}
"""What is explained -> title, part of the object and field, in the order in which they are shown."""


def _absent(facts: PodFacts) -> State:
    sentence = f"there is no pod {facts.key} in {facts.cluster}"
    if facts.elsewhere:
        where = ("namespace " if len(facts.elsewhere) == 1 else "namespaces ") + _some(facts.elsewhere)
        sentence += f"; there is one in {where}"
        return State("notThere", sentence, f"koord explain pod {facts.name} -n {facts.elsewhere[0]}")
    if not facts.namespace_is_there:
        sentence += f", nor a namespace {facts.namespace}"
        return State("notThere", sentence, "kubectl get namespaces lists them; -n names another.")
    if facts.similar:
        sentence += f"; there {'is' if len(facts.similar) == 1 else 'are'} {_some(facts.similar)}"
    if facts.elsewhere_unknown:
        sentence += f" (other namespaces could not be looked at: {facts.elsewhere_unknown})"
    return State("notThere", sentence, f"kubectl get pods -n {facts.namespace} lists them; -n names another namespace.")


def _terminating(facts: PodFacts, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> State:
    since = metadata["deletionTimestamp"]
    where = f" on node {spec['nodeName']}" if spec.get("nodeName") else ", and no scheduler places it any more"
    if finalizers := metadata.get("finalizers"):
        return State(
            "terminating",
            f"pod {facts.key} is being deleted (deletionTimestamp {since}){where}; it waits for the finalizer"
            f"{'s' if len(finalizers) > 1 else ''} {', '.join(finalizers)}",
            "The controller that set a finalizer takes it off when its work is done.",
        )
    return State(
        "terminating",
        f"pod {facts.key} is being deleted (deletionTimestamp {since}){where}",
        "It is gone when its containers have stopped; a controller makes another in its place, with another name.",
    )


def _finished(facts: PodFacts, status: Mapping[str, Any]) -> State:
    why = ": ".join(text for text in (status.get("reason"), status.get("message")) if text)
    return State(
        "finished",
        f"pod {facts.key} has finished ({status['phase']}{f', {why}' if why else ''}) and is not scheduled again",
        f"kubectl logs {facts.name} -n {facts.namespace} has what it wrote; to run it again, create it anew.",
    )


def _bound(facts: PodFacts, spec: Mapping[str, Any], status: Mapping[str, Any]) -> State:
    node, phase = spec["nodeName"], status.get("phase") or "Pending"
    if phase != "Pending":
        return State("running", f"pod {facts.key} is on node {node} already (phase {phase})")
    waiting = _waiting(status)
    return State(
        "bound",
        f"pod {facts.key} is on node {node} already, so no scheduler holds it up; its containers have not started"
        f"{f': {waiting}' if waiting else ' yet'}",
        f"kubectl describe pod {facts.name} -n {facts.namespace} has the events of the node's kubelet.",
    )


def _waiting(status: Mapping[str, Any]) -> str:
    found = []
    for container in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        if waiting := (container.get("state") or {}).get("waiting"):
            said = ", ".join(text for text in (waiting.get("reason"), waiting.get("message")) if text)
            found.append(
                f"{container.get('name', '')} waits ({said})" if said else f"{container.get('name', '')} waits"
            )
    return "; ".join(found[:_NAMES_SHOWN])


def _not_served(facts: PodFacts, scheduler: str, served: Collection[str]) -> State:
    assert facts.pod is not None
    label = (facts.pod["metadata"].get("labels") or {}).get(label_keys.SCHEDULER_NAME)
    by_label = f" (by its label {label_keys.SCHEDULER_NAME})" if label == scheduler else ""
    names = ", ".join(sorted(served))
    sentence = f"pod {facts.key} asks for the scheduler `{scheduler}`{by_label}; koord-scheduler does not look at it"
    change = f"koord-scheduler serves {names}; only a new pod can have another spec.schedulerName."
    if condition_message(facts.pod) or _has_acted(scheduler, facts.events):
        return State(
            "otherScheduler", sentence, f"`{scheduler}` has tried it: its events, below, have what it found. {change}"
        )
    if facts.has_placed_others:
        return State(
            "otherScheduler",
            sentence,
            f"`{scheduler}` has placed other pods: ask those who run it why not this. {change}",
        )
    return State(
        "unknownScheduler",
        f"{sentence}, and nothing shows that another scheduler does: no event, no condition"
        f"{', no other pod that it placed' if facts.has_placed_others is False else ''}",
        f"Is the name right, and does `{scheduler}` run? {change}",
    )


def _has_acted(scheduler: str, events: Sequence[Mapping[str, Any]]) -> bool:
    names = {scheduler}
    return any(
        not names.isdisjoint({event.get("reportingComponent"), (event.get("source") or {}).get("component")})
        for event in events
    )


def _pending(facts: PodFacts, scheduler: str) -> State:
    assert facts.pod is not None
    if facts.served is not None:
        return State(
            "pending",
            f"pod {facts.key} is pending, and koord-scheduler does not know of it yet",
            "Ask again in a moment; if that stays so, its log says why it does not see new pods.",
        )
    other = "" if scheduler == KOORD_SCHEDULER else f"; it asks for the scheduler `{scheduler}`"
    tried = "" if condition_message(facts.pod) else ": no scheduler has said anything about it"
    return State("pending", f"pod {facts.key} is pending{tried}{other}")


def _conditions(node: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = (node.get("status") or {}).get("conditions") or ()
    return found


def _they(names: Sequence[str]) -> str:
    return "it is" if len(names) == 1 else "they are"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    return f"{shown} and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else shown
