"""What the recommender knows of one Recommendation: its target, its pods, and a model of each container."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from koordinator.api.codec import encode
from koordinator.api.recommendation import POLICY, Recommendation
from koordinator.base.clock import SteadyTime
from koordinator.manager.recommender.container_model import ContainerModel
from koordinator.manager.recommender.observed_pods import ObservedPod
from koordinator.manager.recommender.options import ModelOptions
from koordinator.manager.recommender.out_of_memory import OutOfMemory
from koordinator.manager.recommender.policy import PolicyError, Rules, read_policy
from koordinator.manager.recommender.samples import Reading
from koordinator.manager.recommender.targets import Problem, Target


@dataclass(slots=True)
class Fed:
    """How many samples of one resource were added to the models, and how many were not."""

    added: int = 0
    dropped: int = 0

    def count(self, was_added: bool) -> None:
        self.added += was_added
        self.dropped += not was_added


@dataclass(slots=True)
class Tracked:
    """One Recommendation. ``models`` are by container name."""

    recommendation: Recommendation
    target_hash: str
    time: SteadyTime
    """By which the models are dated; everything else goes by the wall clock."""
    models: dict[str, ContainerModel] = field(default_factory=dict)
    pods: Sequence[ObservedPod] = ()
    """The pods of the target in the current pass."""
    target: Target | None = None
    """None while there is a problem."""
    problem: Problem | None = None
    """Why the target's pods are not known."""
    rules: Rules = field(default_factory=Rules)
    policy_error: str = ""
    """Why the policy annotation cannot be used; empty if it can."""
    waiting: Mapping[str, str] = field(default_factory=dict)
    """Pod -> why it is not resized; "" stands for all pods."""
    is_fetching_history: bool = False
    stored_at: float | None = None
    """The second of a monotonic clock at which the checkpoint was last written; None if it has not been."""
    stored: frozenset[str] = frozenset()
    """The keys of the checkpoint's ConfigMap."""

    @property
    def key(self) -> str:
        return self.recommendation.metadata.key

    @property
    def containers(self) -> int:
        """The number of containers of the target's pods."""
        return max((len(pod.containers) for pod in self.pods), default=len(self.models)) or 1

    @property
    def last_sample(self) -> datetime | None:
        return max((each.last_sample for each in self.models.values() if each.last_sample is not None), default=None)

    def update(self, recommendation: Recommendation) -> None:
        """Use the current version of the object. A changed target has models of its own."""
        self.recommendation = recommendation
        changed = hash_of_target(recommendation)
        if changed != self.target_hash:
            self.target_hash = changed
            self.models.clear()
            self.stored_at = None
        try:
            self.rules, self.policy_error = read_policy(recommendation.metadata.annotations.get(POLICY)), ""
        except PolicyError as error:
            self.rules, self.policy_error = Rules(), str(error)

    def model(self, container: str, options: ModelOptions) -> ContainerModel:
        """The model of a container, created on first use."""
        found = self.models.get(container)
        if found is None:
            found = self.models[container] = ContainerModel(options)
        return found

    def feed(self, pod: ObservedPod, reading: Reading, options: ModelOptions) -> tuple[Fed, Fed]:
        """Add the usage of one pod to the models. Returns the counts of CPU and of memory."""
        cpu, memory, uid, containers = Fed(), Fed(), pod.metadata.uid, pod.containers
        at = reading.at + self.time.offset
        requests = {each.name: each.cpu_request for each in containers}
        for name, cores in reading.cpu(containers).items():
            cpu.count(self.model(name, options).add_cpu(uid, cores, at, requests[name]))
        for name, used in reading.memory(containers).items():
            memory.count(self.model(name, options).add_memory(uid, used, at))
        return cpu, memory

    def feed_out_of_memory(self, found: OutOfMemory, options: ModelOptions) -> bool:
        """Add a kill or an eviction. Returns whether it counts."""
        most = self.rules.of(found.container).bounds_of("memory").maximum
        at = found.at + self.time.offset
        return self.model(found.container, options).add_oom(found.uid, found.amount, at, most)

    def forget(self, after: timedelta) -> None:
        """Forget the containers without samples for so long, and the replicas that no longer exist."""
        before = self.time.now() - after
        self.models = {
            name: model
            for name, model in self.models.items()
            if model.last_sample is not None and model.last_sample >= before
        }
        if self.problem is None:
            existing = {pod.metadata.uid for pod in self.pods}
            for model in self.models.values():
                model.replicas = {uid: replica for uid, replica in model.replicas.items() if uid in existing}


def hash_of_target(recommendation: Recommendation) -> str:
    """Identifies the target: a checkpoint of another target is not used."""
    return hashlib.sha256(encode(recommendation.spec.target)).hexdigest()[:16]
