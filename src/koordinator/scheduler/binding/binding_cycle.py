"""The binding cycle: what becomes of a pod from the node that it is assumed on to its end. A state machine, without
I/O: each event changes the state of a binding, and says what is to be done next.

    reserved ─┬─ Permit plugins delay it ─► waiting ─┐
              └──────────────────────────────────────┴─► in PreBind, if plugins have work ─► sending ─┬─► bound
                                                                            ▲  pausing ◄─► reading ◄──┤
                                                                            └──┘                      └─► unreserved

Every stage may be followed by the end, which has one outcome: the pod is bound, or its room on the node is free again.
Members of gangs and Reservations go the same way; ``BindingRequest`` is what differs between a pod and a Reservation.

Nearly every request to bind is answered. When one fails, the object is *read* if the request may have been carried out,
and the binding *pauses*, which holds nothing, until it is sent again, a few times. The room is never freed while a
request may still be carried out, because that would overcommit the node: after a lost answer not before the API server
itself must have given up the request, and the object was read since.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from enum import Enum
from math import inf
from typing import Any, ClassVar, Final, Protocol

import msgspec

from koordinator.api.kinds import PODS, Kind
from koordinator.api.pod import Pod
from koordinator.kube.attempts import PATIENCE
from koordinator.kube.bounded_client import BoundedClient
from koordinator.kube.errors import ApiStatusError, KubeError, TransportError
from koordinator.kube.interface import Client, PatchType
from koordinator.scheduler.engine.binding_points import StatusPatch
from koordinator.scheduler.engine.decision import Placement
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.queue.queued_pod import QueuedPod

CARRIED_OUT: Final = 60.0
"""Seconds within which an API server carries out a request or gives it up (``--request-timeout``)."""


class Result(Enum):
    """How a binding ended."""

    BOUND = "bound"
    ELSEWHERE = "elsewhere"
    """Another scheduler or client gave the object another node."""
    GONE = "gone"
    """The object does not exist any more, or is about to: it gets no node."""
    REFUSED = "refused"
    """The object has no node and this attempt is over."""
    REJECTED = "rejected"
    """The same, by a Permit plugin or by what has become of the pod or its node while it waited."""


class Outcome(msgspec.Struct, frozen=True):
    """``detail`` is the reason of a refusal or a rejection, ``plugin`` the Permit plugin that has rejected it."""

    result: Result
    detail: str = ""
    plugin: str = ""


BOUND: Final = Outcome(Result.BOUND)


def outcome(node: str | None, wanted: str) -> Outcome | None:
    """The outcome of a binding to the node ``wanted`` if the object is on ``node``, see ``BindingRequest.node_of``;
    None if that is still open."""
    if node is None:
        return Outcome(Result.GONE)
    if not node:
        return None
    return BOUND if node == wanted else Outcome(Result.ELSEWHERE, f"it is on {node}")


class Stage(Enum):
    RESERVED = "reserved"
    WAITING = "waiting"
    PRE_BIND = "in PreBind"
    SENDING = "being bound"
    READING = "being read"
    PAUSING = "pausing"
    BOUND = "bound"
    UNRESERVED = "unreserved"

    # Enum's own hashes the name at each call, and every step looks its stage up.
    __hash__ = object.__hash__


class State(msgspec.Struct, frozen=True):
    """The state of a binding; all but the stage is about requests that have failed."""

    stage: Stage
    failure: KubeError | None = None
    """That of the last request."""
    free_at: float = -inf
    """Until then, in monotonic seconds, an earlier request may still be carried out."""
    refusal: str = ""
    """Why the binding is not sent again; empty as long as it may be."""


class Delayed(msgspec.Struct, frozen=True):
    """Permit plugins delay the binding, each at most for its seconds."""

    waits: Mapping[str, float]


class Permitted(msgspec.Struct, frozen=True):
    """No Permit plugin delays it (any longer). ``has_work``: plugins have something to do before or at the binding."""

    has_work: bool


class Rejected(msgspec.Struct, frozen=True):
    """It was rejected while it waited."""

    plugin: str
    message: str


class Prepared(msgspec.Struct, frozen=True):
    """PreBind is over; ``is_bound``: a Bind plugin has bound the pod itself."""

    is_bound: bool


class Answered(msgspec.Struct, frozen=True):
    """The server has carried out the request to bind."""


class Failed(msgspec.Struct, frozen=True):
    """The request to bind, sent at ``sent_at``, has failed."""

    failure: KubeError
    sent_at: float


class Shown(msgspec.Struct, frozen=True):
    """The object was read, or the pause is over: the outcome that this or events have shown; None if it is open."""

    outcome: Outcome | None


class GivenUp(msgspec.Struct, frozen=True):
    """The last failure is not worth another attempt after the ``attempts``. ``has_node``: its node is still there."""

    attempts: int
    now: float
    has_node: bool


class Broke(msgspec.Struct, frozen=True):
    """Something that was called for the binding has raised an unexpected error: a plugin, or this program."""

    why: str


Event = Delayed | Permitted | Rejected | Prepared | Answered | Failed | Shown | GivenUp | Broke


class Wait(msgspec.Struct, frozen=True):
    """Wait for the plugins to permit or reject it."""

    waits: Mapping[str, float]


class PreBind(msgspec.Struct, frozen=True):
    """Run the PreBind and Bind plugins: Prepared."""


class Send(msgspec.Struct, frozen=True):
    """Send the request to bind when it gets a slot: Answered or Failed."""


class Read(msgspec.Struct, frozen=True):
    """Read the object when that gets a slot, until there is a response: Shown."""


class Pause(msgspec.Struct, frozen=True):
    """Hold nothing for ``seconds``, or until events show the outcome: Shown. None: for as long as the failure asks
    for, or GivenUp."""

    seconds: float | None = None


class End(msgspec.Struct, frozen=True):
    """Bound, or else to be unreserved."""

    outcome: Outcome


Instruction = Wait | PreBind | Send | Read | Pause | End

RESERVED: Final = State(Stage.RESERVED)
ANSWERED: Final = Answered()
_AWAITED: Final[Mapping[Stage, tuple[type[Event], ...]]] = {
    Stage.RESERVED: (Delayed, Permitted, Broke),
    Stage.WAITING: (Permitted, Rejected, Broke),
    Stage.PRE_BIND: (Prepared, Broke),
    Stage.SENDING: (Answered, Failed, Broke),
    Stage.READING: (Shown, Broke),
    Stage.PAUSING: (Shown, GivenUp, Broke),
    Stage.BOUND: (),
    Stage.UNRESERVED: (),
}
_SENT: Final = State(Stage.SENDING), Send()
_IN_PRE_BIND: Final = State(Stage.PRE_BIND), PreBind()
_DONE: Final = State(Stage.BOUND), End(BOUND)


def step(state: State, event: Event) -> tuple[State, Instruction]:
    """The next state, and what is to be done. Raises ValueError for an event that the stage does not wait for: it would
    begin what is under way already, or end what has ended."""
    if type(event) not in _AWAITED[state.stage]:
        raise ValueError(f"a binding that is {state.stage.value} does not wait for {event}")
    match event:
        case Permitted(has_work):
            return _IN_PRE_BIND if has_work else _SENT
        case Prepared(is_bound):
            return _DONE if is_bound else _SENT
        case Answered():
            return _DONE
        case Delayed(waits):
            return State(Stage.WAITING), Wait(waits)
        case Rejected(plugin, message):
            return _ended(Outcome(Result.REJECTED, message, plugin))
        case Broke(why):
            return _ended(Outcome(Result.REFUSED, why))
        case Failed():
            return _after_failure(state, event)
        case GivenUp():
            return _after_last_attempt(state, event)
        case Shown(found):
            return _ended(found) if found is not None else _still_open(state)


def _ended(ended: Outcome) -> tuple[State, Instruction]:
    return State(Stage.BOUND if ended.result is Result.BOUND else Stage.UNRESERVED), End(ended)


def _after_failure(state: State, event: Failed) -> tuple[State, Instruction]:
    failure, free_at = event.failure, state.free_at
    if not _may_be_done(failure):
        return State(Stage.PAUSING, failure, free_at), Pause()
    if isinstance(failure, TransportError):
        free_at = max(free_at, event.sent_at + CARRIED_OUT)
    return State(Stage.READING, failure, free_at), Read()


def _still_open(state: State) -> tuple[State, Instruction]:
    """After a read or a pause that has not shown the outcome."""
    if state.stage is Stage.READING:
        if state.refusal:
            return _ended(Outcome(Result.REFUSED, state.refusal))
        return msgspec.structs.replace(state, stage=Stage.PAUSING), Pause()
    if state.refusal:
        return msgspec.structs.replace(state, stage=Stage.READING), Read()
    return msgspec.structs.replace(state, stage=Stage.SENDING), Send()


def _after_last_attempt(state: State, event: GivenUp) -> tuple[State, Instruction]:
    assert state.failure is not None, "only a failure is given up"
    refused = msgspec.structs.replace(state, refusal=_detail(state.failure, event.attempts))
    if state.free_at == -inf or not event.has_node:
        return _ended(Outcome(Result.REFUSED, refused.refusal))
    left = state.free_at - event.now
    return (refused, Pause(left)) if left > 0 else (msgspec.structs.replace(refused, stage=Stage.READING), Read())


def _may_be_done(failure: KubeError) -> bool:
    """Whether the object may have its node although the request failed. A conflict, or an object that is not found, may
    mean that an earlier request was carried out, or that the object is not what it was."""
    match failure:
        case ApiStatusError():
            return failure.is_server_error or failure.is_conflict or failure.is_not_found
        case TransportError():
            return failure.maybe_applied
        case _:
            return False


def _detail(failure: KubeError, attempts: int) -> str:
    asked = failure.retry_after if isinstance(failure, ApiStatusError) else None
    text = str(failure)
    if asked and asked > PATIENCE.longest_pause:
        text += f"; the server asks for {asked:.0f} s until the next attempt"
    return text if attempts == 1 else f"{text}; it was tried {attempts} times"


class BindingRequest(Protocol):
    """``name`` and ``namespace`` are those of the object of ``kind`` that gets the node."""

    @property
    def kind(self) -> Kind[Any]: ...
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def node_name(self) -> str: ...

    def send(self, client: Client) -> Coroutine[Any, Any, object]:
        """Make the request once; it may be repeated, since it applies to one object without a node alone."""

    def node_of(self, seen: Any) -> str | None:
        """The node of the object in the state ``seen``; empty without one, None if it gets none any more."""


class PodBinding(msgspec.Struct, frozen=True):
    """A Binding of a pod. Names and uids hold no character that JSON would escape; because of the uid, the server
    refuses a pod of the same name that was created since. The server copies ``annotations`` to the pod."""

    namespace: str
    name: str
    uid: str
    node_name: str
    annotations: Mapping[str, str] = {}
    kind: ClassVar[Kind[Pod]] = PODS

    def body(self) -> bytes:
        """The encoded Binding."""
        more = f',"annotations":{msgspec.json.encode(self.annotations).decode()}' if self.annotations else ""
        return (
            f'{{"apiVersion":"v1","kind":"Binding",'
            f'"metadata":{{"name":"{self.name}","namespace":"{self.namespace}","uid":"{self.uid}"{more}}},'
            f'"target":{{"apiVersion":"v1","kind":"Node","name":"{self.node_name}"}}}}'
        ).encode()

    def send(self, client: Client | BoundedClient, *, dry_run: bool = False) -> Coroutine[Any, Any, object]:
        """See BindingRequest; with ``dry_run``, the server only says whether it would admit it."""
        body, name = self.body(), self.name
        return client.create(PODS, body, self.namespace, name=name, subresource="binding", dry_run=dry_run)

    def node_of(self, seen: Pod) -> str | None:
        """See BindingRequest."""
        if seen.metadata.uid != self.uid:
            return None
        if not seen.spec.node_name and seen.metadata.deletion_timestamp is not None:
            return None
        return seen.spec.node_name


def pod_binding(pod: Pod, node_name: str) -> PodBinding:
    """The Binding of the pod to the node."""
    metadata = pod.metadata
    return PodBinding(metadata.namespace, metadata.name, metadata.uid, node_name)


class StatusBinding(msgspec.Struct, frozen=True):
    """A patch of the status of an object that a plugin binds. It applies to the version alone that the plugin has seen,
    so that a late one changes nothing of what has become of the object."""

    patch: StatusPatch
    node_name: str
    namespace: ClassVar[str] = ""

    @property
    def kind(self) -> Kind[Any]:
        return self.patch.kind

    @property
    def name(self) -> str:
        return self.patch.obj.metadata.name

    def send(self, client: Client) -> Coroutine[Any, Any, object]:
        """See BindingRequest."""
        metadata = self.patch.obj.metadata
        version = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
        body = {"metadata": version, "status": self.patch.status}
        return client.patch(self.kind, metadata.name, body, PatchType.MERGE, subresource="status")

    def node_of(self, seen: Any) -> str | None:
        """See BindingRequest."""
        return self.patch.node_of(seen) if seen.metadata.uid == self.patch.obj.metadata.uid else None


class Binding(msgspec.Struct, eq=False):
    """A binding in progress: of a pod, or of the object that a reserve pod stands for."""

    entry: QueuedPod
    placement: Placement
    engine: Engine
    started: float
    """When the attempt began, in monotonic seconds."""
    request: BindingRequest
    on_bound: Callable[[], None] | None = None
    """Called once it is bound."""
    state: State = RESERVED
