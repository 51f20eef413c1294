"""The explanations of pods, quotas, gangs, Reservations, workloads, migrations and interference: what the programs
fill, HTTP serves, and the terminal draws. ``node_explanation`` has that of a node, ``rebalance_explanation`` that of a
cycle of koord-descheduler.

New versions add fields and rename none. Whoever reads an explanation of another version finds the defaults in place of
the fields that it lacks, and passes over those that it does not know. Every field is written, an empty one too, but for
those that are None: these are said only where there is something to say.
"""

from __future__ import annotations

from typing import Final

import msgspec

from koordinator.api.meta import FreeForm, WireStruct

VERSION = 1


class ExplanationPart(WireStruct, omit_defaults=False):
    """A part of an explanation."""


class EventRecord(ExplanationPart):
    """A core/v1 Event about an object."""

    time: str = ""
    from_: str = msgspec.field(default="", name="from")
    reason: str = ""
    message: str = ""


class ApiState(ExplanationPart):
    """What the API alone says of an object: for programs, in a sentence, and what to do next."""

    state: str = ""
    """notThere, finished, terminating, bound, running, gated, otherScheduler, unknownScheduler, pending; of a node
    there, notReady, cordoned; of a workload noPods, hasPods."""
    sentence: str = ""
    next: str | None = None
    phase: str | None = None
    scheduler: str | None = None
    node: str | None = None
    message: str | None = None
    facts: list[str] | None = None
    events: list[EventRecord] | None = None


class Moment(ExplanationPart):
    """Something that a program did with a pod."""

    time: str = ""
    """RFC 3339, UTC."""
    program: str = ""
    """koord-manager, koord-scheduler, koordlet, koord-descheduler, kubelet …"""
    what: str = ""
    why: str = ""


class Explanation(ExplanationPart):
    """What whoever asks adds to each explanation."""

    version: int = VERSION
    api: ApiState | None = None
    """What the API says, where the program is not all there is to say."""
    taken_for: str | None = None
    """The kind that was guessed."""
    left_out: list[str] | None = None
    """A sentence for each part that may not be read."""
    api_not_queried: str | None = None
    """Why the API's part is missing."""
    scheduler_not_queried: str | None = None
    """Why the scheduler's part is missing."""
    cluster: dict[str, str] | None = None
    """The cluster that was queried."""


# A pod.


class ScoredNode(ExplanationPart):
    node: str = ""
    score: int = 0
    score_by_plugin: dict[str, int] = {}


class RejectedNodes(ExplanationPart):
    """Nodes that one plugin rejected for the same reasons in an attempt."""

    plugin: str = ""
    reasons: list[str] = []
    nodes: int = 0
    examples: list[str] = []
    evicting_pods_may_help: bool = False


class AttemptRecord(ExplanationPart):
    """One attempt to place a pod: ``result`` is placed, unschedulable or error; the parts of the others are None."""

    time: str = ""
    attempt: int = 0
    result: str = ""
    message: str | None = None
    node: str | None = None
    evaluated_nodes: int | None = None
    feasible_nodes: int | None = None
    nodes_with_the_same_score: int | None = None
    """The chosen one among them; 0 when the score did not decide."""
    other_nodes_rejected_by: list[str] | None = None
    top_nodes: list[ScoredNode] | None = None
    rejected: list[RejectedNodes] | None = None
    wakes_on: list[str] | None = None
    nominated_node: str | None = None
    evicts: list[str] | None = None
    gangs_evicted_whole: list[str] | None = None
    """The gangs of which all members are among those that it evicts."""


class QueueState(ExplanationPart):
    """Where a pod waits in the scheduler."""

    pool: str = ""
    """active, backoff, unschedulable, gated, in_flight or preempting."""
    attempts: int = 0
    reason: str | None = None
    tried_again_in_seconds: float | None = None
    wakes_on: list[str] | None = None
    tried_again_when: list[str] | None = None


class FittingNodes(ExplanationPart):
    """The nodes that would take a pod now."""

    nodes: int = 0
    examples: list[str] = []
    held_back_by: list[str] | None = None
    """The plugins that refused the last attempt on whatever node."""


class NodeLack(ExplanationPart):
    """What one plugin misses on a node: ``reasons`` as in the message, ``details`` in numbers and names."""

    plugin: str = ""
    reasons: list[str] = []
    details: list[str] = []


class CloseNode(ExplanationPart):
    node: str = ""
    lacks: list[NodeLack] = []


class PodExplanation(Explanation, kw_only=True):
    """Why a pod waits, or is where it is."""

    pod: str
    scheduler: str | None = None
    node: str | None = None
    reservation: str | None = None
    """The Reservation that it uses."""
    gang: str | None = None
    """The gang that it is a member of."""
    requests: dict[str, str] | None = None
    message: str | None = None
    facts: dict[str, list[str]] | None = None
    """Plugin -> what it takes the pod for, where that does not follow from the pod alone."""
    queue: QueueState | None = None
    advice: list[str] | None = None
    fitting_now: FittingNodes | None = None
    closest_nodes: list[CloseNode] | None = None
    not_evaluated: str | None = None
    attempts: list[AttemptRecord] | None = None
    timeline: list[Moment] | None = None
    """What each program did with it, in the order of time."""
    audit_not_queried: str | None = None
    """Why what koord-manager has kept of it is missing from the timeline."""


# A quota.


UNLIMITED: Final = "unlimited"


class QuotaResource(ExplanationPart):
    """The amounts of a quota in the wire's form; ``UNLIMITED`` where there is no bound."""

    name: str = ""
    min: str = ""
    max: str = ""
    request: str = ""
    used: str = ""
    runtime: str = ""
    free: str = ""
    why: str = ""


class Sibling(ExplanationPart):
    quota: str = ""
    lends: str = ""
    borrows: str = ""


class WaitingPod(ExplanationPart):
    """A pod that waits for a quota or a Reservation; without a reason it would be admitted."""

    pod: str = ""
    priority: int | None = None
    request: str = ""
    reason: str = ""


class QuotaPods(ExplanationPart):
    assigned: int = 0
    waiting: int = 0


class QuotaExplanation(Explanation, kw_only=True):
    """Where each amount of a quota comes from, who lends to whom, and which pod is next."""

    quota: str
    parents: list[str] = []
    faults: list[str] = []
    resources: list[QuotaResource] = []
    siblings: list[Sibling] = []
    pods: QuotaPods | None = None
    """None where only the API could be queried."""
    next: str = ""
    waiting: list[WaitingPod] = []


# A gang.


class GangMember(ExplanationPart):
    pod: str = ""
    state: str = ""
    node: str = ""
    reason: str = ""


class MemberCounts(ExplanationPart):
    pending: int = 0
    waiting: int = 0
    binding: int = 0
    bound: int = 0


class GangOfGroup(MemberCounts):
    """One of the gangs that are placed together."""

    gang: str = ""
    exists: bool = False
    min_member: int | None = None
    counted: int = 0


class DomainSlots(ExplanationPart):
    domain: str = ""
    slots: int = 0


class NetworkPlace(ExplanationPart):
    """Which domain of the network was chosen for a gang, or why none was."""

    domain: str = ""
    wanted: int | None = None
    sentences: list[str] = []
    domain_slots: list[DomainSlots] = []
    more_domains: int = 0


class GangExplanation(Explanation, kw_only=True):
    """Which members of a group of gangs have a node, and what the others wait for."""

    gang: str
    state: str = ""
    declared_by: str = ""
    min_member: int | None = None
    mode: str = ""
    match_policy: str = ""
    wait_seconds: float | None = None
    problems: list[str] = []
    members: MemberCounts | None = None
    """None where only the API could be queried."""
    finished: dict[str, int] = {}
    group: list[GangOfGroup] = []
    waits_for: list[str] = []
    network: NetworkPlace | None = None
    preemption: str = ""
    """Which members leave when one is preempted, where that is not the one alone."""
    waiting: list[GangMember] = []


# A Reservation.


class ReservedResource(ExplanationPart):
    name: str = ""
    allocatable: str = ""
    allocated: str = ""
    left: str = ""


class ReservationUser(ExplanationPart):
    pod: str = ""
    uses: str = ""


class ReservationExplanation(Explanation, kw_only=True):
    """Whose a Reservation is, who uses it, what is left, and which owners wait and why."""

    reservation: str
    phase: str | None = None
    """None where only the API could be queried."""
    node: str = ""
    faults: list[str] = []
    message: str = ""
    allocate_once: bool = False
    allocate_policy: str = ""
    owners: list[str] = []
    resources: list[ReservedResource] = []
    users: list[ReservationUser] = []
    waiting: list[WaitingPod] = []
    waiting_left_out: int = 0


class WorkloadExplanation(Explanation, kw_only=True):
    """How many pods a Deployment or its like has, and who should make the others; ``api`` has all of it."""

    workload: str
    kind: str = ""


class MigrationStep(ExplanationPart):
    step: str = ""
    done: bool = False
    time: str = ""
    reason: str = ""
    message: str = ""


class MigrationOfMember(ExplanationPart):
    """Another job that moves the gang of the pod."""

    migration: str
    pod: str = ""
    phase: str = ""
    step: str = ""


class MigrationExplanation(Explanation, kw_only=True):
    """How far a PodMigrationJob is, and what it waits for."""

    migration: str
    phase: str = ""
    sentence: str = ""
    next: str = ""
    pod: str = ""
    mode: str = ""
    ttl: str = ""
    created: str = ""
    node: str = ""
    reservation: dict[str, str] = {}
    steps: list[MigrationStep] = []
    gang: list[MigrationOfMember] = []
    """The jobs of the other members, where the pod moves with its gang."""


class InterferenceExplanation(Explanation, kw_only=True):
    """Which pods of a node suffer from others, and what was done about it; victims and remedies as koordlet has written
    them into the NodeMetric."""

    interference: str
    reported: str = ""
    pods: int = 0
    victims: list[FreeForm] = []
    remedies: list[FreeForm] = []
