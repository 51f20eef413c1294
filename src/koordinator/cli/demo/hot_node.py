"""A node of the day that runs hot, since pods were bound to it by hand: how koord-descheduler cools it, what is
observed of that, and the claims."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from koordinator.api.codec import DecodeError, convert
from koordinator.api.kinds import PODS, REPLICA_SETS
from koordinator.api.meta import controller_of
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import ABORTED, FAILED, RUNNING, SUCCEEDED, PodMigrationJob
from koordinator.api.rebalance_explanation import RebalanceExplanation
from koordinator.cli.demo.claim import Claim, clock, some
from koordinator.cli.demo.day import NAMESPACE, Arrival, batch_pod
from koordinator.cli.explain_failure import ExplainError
from koordinator.cli.explain_source import ProgramEndpoint, fetch
from koordinator.cli.session import open_session
from koordinator.kube.interface import Client

RESPONSE_SECONDS: Final = 60.0
"""For one response of a program, on a busy machine."""
HOT: Final = "node-18"
CRAWLER: Final = "crawler"
REPLICAS: Final = 4
HOT_PERCENT: Final = 40
"""Of a node's CPU: above it the node is hot."""
_COOL_PERCENT: Final = 30
HOUR: Final = 2.5
"""When its pods are bound to it."""
_BEFORE_EVICTION: Final = ("ReservationCreated", "ReservationScheduled")
_RUN_MINUTES: Final = 2880
"""A pod of the crawler outlives the day, and what comes after it."""


def arrivals() -> list[Arrival]:
    """Pods that no scheduler has placed: their creator named the node."""
    # A ReplicaSet may have no other: its pods run for ever.
    spec = {**batch_pod(CRAWLER, _RUN_MINUTES)["spec"], "restartPolicy": "Always"}
    replica_set = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": CRAWLER},
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": {"app": CRAWLER}},
            "template": {"metadata": {"labels": {"app": CRAWLER}}, "spec": spec},
        },
    }
    return [Arrival(HOUR, f"the ReplicaSet {CRAWLER}", (), ((REPLICA_SETS, replica_set),))]


def descheduler_configuration(port: int) -> dict[str, Any]:
    """Relieves hot nodes twice a second, one pod of a workload at a time, a place for it first."""
    migration = {
        "maxMigratingPerWorkload": 1,
        "maxUnavailablePerWorkload": 1,
        # On a busy machine, simulated time waits for minutes in the middle of a migration.
        "defaultJobTTL": "2h",
        # Five minutes between two pods of one workload are more than this day has.
        "objectLimiters": {"workload": {"duration": "0s"}},
        "coolDown": "10m",
        "arbitrationArgs": {"interval": "100ms"},
    }
    load = {
        "evictableNamespaces": {"include": [NAMESPACE]},
        "lowThresholds": {"cpu": _COOL_PERCENT, "memory": 80},
        "highThresholds": {"cpu": HOT_PERCENT, "memory": 95},
        "anomalyCondition": {"consecutiveAbnormalities": 2},
    }
    migrating = {"enabled": [{"name": "MigrationController"}]}
    return {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "deschedulingInterval": "500ms",
        "leaderElection": {"leaderElect": False},
        "healthzBindAddress": f"127.0.0.1:{port}",
        "metricsBindAddress": f"127.0.0.1:{port}",
        "profiles": [
            {
                "name": "koord-descheduler",
                "plugins": {
                    "balance": {"enabled": [{"name": "LowNodeLoad"}]},
                    "evict": migrating,
                    "filter": migrating,
                },
                "pluginConfig": [
                    {"name": "LowNodeLoad", "args": load},
                    {"name": "MigrationController", "args": migration},
                ],
            }
        ],
    }


@dataclass(frozen=True, slots=True)
class Move:
    """A pod that koord-descheduler had leave its node."""

    pod: str
    hour: float
    """When its job was seen to have ended."""
    phase: str
    replacement: str
    reserved: str
    """The node on which a place was reserved; empty when none was."""
    target: str
    """The node of the replacement; empty when there is none."""


@dataclass(slots=True)
class HotNode:
    """What is seen of the node, of the crawler and of the descheduler. Hours are those of the day, CPU in percent."""

    used: list[tuple[float, int]] = field(default_factory=list)
    ready: list[tuple[float, int]] = field(default_factory=list)
    """How many pods of the crawler were ready, since all of them were for the first time."""
    moves: dict[str, Move] = field(default_factory=dict)
    """By the name of the job."""
    began: dict[str, float] = field(default_factory=dict)
    """Job -> when it was first seen."""
    rebalance: RebalanceExplanation | None = None
    """What koord explain rebalance said when the node had cooled and no pod was on its way."""

    def see(self, hour: float, percent: int | None, pods: Sequence[Pod], jobs: Sequence[PodMigrationJob]) -> None:
        if percent is not None:
            self.used.append((hour, percent))
        crawlers = {pod.metadata.name: pod for pod in pods if is_crawler(pod)}
        ready = sum(1 for pod in crawlers.values() if _is_ready(pod))
        if self.ready or ready == REPLICAS:
            self.ready.append((hour, ready))
        nodes = {name: pod.spec.node_name for name, pod in crawlers.items()}
        for job in jobs:
            self.began.setdefault(job.metadata.name, hour)
            if job.status.phase in (SUCCEEDED, FAILED, ABORTED) and job.metadata.name not in self.moves:
                self.moves[job.metadata.name] = _move(job, hour, nodes)

    def before(self) -> tuple[float, int]:
        """When the node used the most before a pod left it, and how much."""
        first = min(self.began.values(), default=24.0)
        seen = [each for each in self.used if each[0] <= first]
        return max(seen, key=lambda each: each[1], default=(0.0, 0))

    def after(self) -> tuple[float, int] | None:
        """The first look at the node that shows it at or below its threshold when a pod has left and none is on its
        way; None if there is none."""
        first = min((move.hour for move in self.succeeded()), default=24.0)
        seen = (each for each in self.used if each[0] > first and each[1] <= HOT_PERCENT)
        return next((each for each in seen if not self._is_moving(each[0])), None)

    def _is_moving(self, hour: float) -> bool:
        ended = {name: move.hour for name, move in self.moves.items()}
        return any(began <= hour < ended.get(name, 24.0) for name, began in self.began.items())

    def succeeded(self) -> list[Move]:
        return sorted((each for each in self.moves.values() if each.phase == SUCCEEDED), key=lambda each: each.hour)


def _staying(pods: Sequence[Pod]) -> list[Pod]:
    return [pod for pod in pods if is_crawler(pod) and pod.metadata.deletion_timestamp is None]


def is_under_way(job: PodMigrationJob) -> bool:
    """Whether koord-descheduler and koord-scheduler can go on with the job before simulated time does: its place is
    reserved, and then its pod is evicted."""
    status = job.status
    return status.phase == RUNNING and status.status in ("", *_BEFORE_EVICTION) and not status.reason


def is_crawler(pod: Pod) -> bool:
    controller = controller_of(pod.metadata)
    return controller is not None and (controller.kind, controller.name) == ("ReplicaSet", CRAWLER)


def _is_ready(pod: Pod) -> bool:
    is_leaving = pod.metadata.deletion_timestamp is not None
    return not is_leaving and any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)


def _move(job: PodMigrationJob, hour: float, nodes: Mapping[str, str]) -> Move:
    bound = job.status.pod_ref.name if job.status.pod_ref is not None else ""
    pod = job.spec.pod_ref.name if job.spec.pod_ref is not None else ""
    return Move(pod, hour, job.status.phase, bound, job.status.node_name, nodes.get(bound, ""))


class Crawler:
    """Keeps the number of its pods, as the ReplicaSet controller of Kubernetes would, which a demonstration has not.

    The first pods are bound to the hot node; their replacements are koord-scheduler's to place.
    """

    def __init__(self, client: Client, descheduler_port: int) -> None:
        self._client = client
        self._port = descheduler_port
        self._uid = ""
        self._created = 0
        self._unseen: set[str] = set()
        """Pods that are created and that the watch has not shown yet."""
        self._wake = asyncio.Event()

    async def begin(self) -> None:
        """From now on, the pods are there; the ReplicaSet has been created."""
        self._uid = (await self._client.get(REPLICA_SETS, CRAWLER, NAMESPACE)).metadata.uid
        self.wake()

    def wake(self) -> None:
        """A pod has changed."""
        self._wake.set()

    async def keep(self, pods: Callable[[], Sequence[Pod]]) -> NoReturn:
        """Replace each pod as soon as it leaves, until cancelled: a descheduler counts the replacements that are not
        ready, and would take what nobody replaces for gone for good."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._replace(pods())

    async def _replace(self, pods: Sequence[Pod]) -> None:
        if not self._uid:
            return
        self._unseen.difference_update(pod.metadata.name for pod in pods)
        numbers = range(self._created, self._created + REPLICAS - len(_staying(pods)) - len(self._unseen))
        self._created += len(numbers)
        self._unseen.update(f"{CRAWLER}-{number}" for number in numbers)
        await asyncio.gather(*(self._client.create(PODS, self._pod(number), NAMESPACE) for number in numbers))

    def missing(self, pods: Sequence[Pod]) -> int:
        """How many of its pods are not there yet."""
        return REPLICAS - len(_staying(pods)) if self._uid else 0

    async def query(self, seen: HotNode) -> None:
        """Query the descheduler once the node has cooled."""
        if seen.rebalance is None and seen.after() is not None and seen.began.keys() == seen.moves.keys():
            seen.rebalance = await self._query()

    def _pod(self, number: int) -> dict[str, Any]:
        document = batch_pod(f"{CRAWLER}-{number}", _RUN_MINUTES, {"app": CRAWLER})
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": CRAWLER, "uid": self._uid, "controller": True}
        document["metadata"]["ownerReferences"] = [owner]
        if number < REPLICAS:
            document["spec"]["nodeName"] = HOT
        return document

    async def _query(self) -> RebalanceExplanation | None:
        url = f"http://127.0.0.1:{self._port}"
        endpoint = ProgramEndpoint(url, None, ("", ""), 0, Path(), program="descheduler", seconds=RESPONSE_SECONDS)
        try:
            async with open_session() as session:
                return convert(await fetch(session, endpoint, "/explain/rebalance"), RebalanceExplanation)
        except (ExplainError, DecodeError):
            # Queried again after the next step; a day without a response fails its claim.
            return None


def cooling_claim(seen: HotNode) -> Claim:
    """What is said of the node, and whether it is so."""
    moves, (hour, most), after = seen.succeeded(), seen.before(), seen.after()
    cooled = "never cooled" if after is None else f"{after[1]} % at {clock(after[0])}"
    count = sum(1 for move in moves if after is not None and move.hour <= after[0])
    are_reserved = all(move.reserved and move.target == move.reserved != HOT for move in moves)
    jobs = [
        f"{move.pod} {move.phase} at {clock(move.hour)}, reserved on {move.reserved or 'no node'}, "
        f"replaced on {move.target or 'no node'}"
        for move in seen.moves.values()
    ]
    running = [name for name in seen.began if name not in seen.moves]
    least = min((used for at, used in seen.used if at > hour), default=most)
    return Claim(
        f"{HOT} used {most} % of its CPU at {clock(hour)}, and {cooled}, when koord-descheduler had moved {count} of "
        f"{REPLICAS} pods that were bound to it by hand, each to the room that was reserved for it before",
        most > HOT_PERCENT and after is not None and bool(moves) and are_reserved,
        f"{HOT} uses more than {HOT_PERCENT} % of its CPU, koord-descheduler moves at least one pod to another node, "
        f"each to its Reservation, and {HOT} then uses at most {HOT_PERCENT} %",
        f"{most} % at {clock(hour)}, later {least} % at least; jobs: {'; '.join(jobs) or 'none has ended'}; not ended: "
        f"{some(running)}",
        ("koord explain rebalance", f"koord explain node {HOT}", "kubectl get podmigrationjobs -o yaml"),
    )


def availability_claim(seen: HotNode) -> Claim:
    least = min((ready for _, ready in seen.ready), default=0)
    few = [f"{ready} at {clock(hour)}" for hour, ready in seen.ready if ready < REPLICAS - 1]
    return Claim(
        f"never more than one of these {REPLICAS} pods was away (the fewest that were ready: {least})",
        least >= REPLICAS - 1,
        f"at least {REPLICAS - 1} of the {REPLICAS} pods of {CRAWLER} are ready, since all of them were",
        f"too few were ready: {some(few)}" if seen.ready else f"the {REPLICAS} pods were never ready at one time",
        ("koord explain rebalance", f"kubectl get pods -l app={CRAWLER} -o wide"),
    )


def staying_claim(seen: HotNode) -> Claim:
    """Who stayed when the node had cooled: everybody, each for a reason."""
    rebalance = seen.rebalance or RebalanceExplanation(rebalance="")
    stays = sum(each.pods for each in rebalance.stays if each.why)
    others = [move.pod for move in seen.moves.values() if not move.pod.startswith(f"{CRAWLER}-")]
    return Claim(
        f"koord explain rebalance said why each of the other pods stayed ({stays} of {rebalance.pods})",
        stays > 0 and stays + len(rebalance.evictions) == rebalance.pods and not others,
        f"once {HOT} has cooled, each pod is to be evicted or has a reason to stay, and only pods of {CRAWLER} moved",
        f"{stays} with a reason and {len(rebalance.evictions)} to be evicted, of {rebalance.pods} pods"
        f"{'' if seen.rebalance else ' (koord-descheduler was never asked, since the node did not cool)'}; other pods "
        f"that moved: {some(others)}",
        ("koord explain rebalance",),
    )
