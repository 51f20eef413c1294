"""The estimator by recommended usage: a pod is expected to use what its workload has used until now.

Recommendations change while pods wait and run, and they become stale, so an estimate holds for one version of those of
the pod's namespace. The pods on nodes whose estimates no longer hold are estimated anew before the next decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from msgspec.structs import replace

from koordinator.api.pod import Pod, lasting_containers
from koordinator.api.priority import priority_class_with_default
from koordinator.api.recommendation import Recommendation, RecommendationTarget
from koordinator.base.groups import Groups
from koordinator.model.recommendations import (
    STALE_AFTER,
    Amounts,
    RecommendationIndex,
    Recommended,
    expected_usage,
    recommended,
)
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.expirations import Expirations
from koordinator.scheduler.plugins.load_aware.pod_load import Estimates, Incoming, estimate_pod, own_factors
from koordinator.scheduler.plugins.load_aware.settings import Settings

_Source = tuple[str, str]
"""A namespace, and the key of the Recommendation in it that an estimate follows from, or the empty text."""
_BEGINNING: Final = datetime.fromtimestamp(0, UTC)
_A_MOMENT: Final = 1.0
"""Seconds after which what has become stale counts as stale for certain."""


class _Meaning(NamedTuple):
    """What estimates follow from in a Recommendation, of which mostly the time alone changes."""

    target: RecommendationTarget
    containers: Mapping[str, Amounts]
    """Nothing while it must not be used."""

    def changes_amounts_alone(self, other: _Meaning | None) -> bool:
        """Whether it is about the same containers of the same pods."""
        return other is not None and self.target == other.target and self.containers.keys() == other.containers.keys()


class RecommendedEstimates(Estimates):
    """Estimates by Recommendations, and by factors of what these do not name. ``on_recommendation`` and ``on_time``
    keep it current; ``place`` and ``leave`` say which pods are on nodes."""

    def __init__(self, settings: Settings, memo_key: str, view: ClusterView) -> None:
        super().__init__(settings, memo_key)
        self._view = view
        self._index = RecommendationIndex()
        self._meanings: dict[str, _Meaning] = {}
        """By the key of the Recommendation."""
        self._versions: dict[str, object] = {}
        """Namespace -> another object after each change that estimates of its pods follow from."""
        self._stale = Expirations[str]()
        """When each Recommendation becomes too old to be used, or one that is dated ahead may be."""
        self._pods = Groups[_Source, str, int]()
        """What the estimates of pods on nodes follow from -> uid -> row."""
        self._source_of: dict[str, _Source] = {}
        self._outdated: set[_Source] = set()

    def of(self, pod: PodInfo) -> Incoming:
        version = self._versions.get(pod.pod.metadata.namespace)
        known: tuple[object, Incoming] | None = pod.memo.get(self._memo_key)
        if known is None or known[0] is not version:
            known = pod.memo[self._memo_key] = version, self._incoming(pod.pod)
        return known[1]

    def why(self, pod: PodInfo) -> str:
        """What the estimate of the pod follows from, for people to read."""
        found = self._index.find(pod.pod.metadata)
        if found is None:
            return "by its requests: no Recommendation is about it"
        if unusable := found.unusable(self._now):
            return f"by its requests: {unusable}"
        if self.of(pod).source:
            return f"by Recommendation {found.key}"
        return f"by its requests: Recommendation {found.key} is about none of its containers"

    # Events.

    def on_recommendation(self, key: str, old: Recommendation | None, new: Recommendation | None) -> None:
        """A Recommendation is new, changed or gone."""
        if new is not None:
            self._index.put(new)
            self._look_again(key, new, self._now)
        elif old is not None:
            self._index.remove(old)
            self._stale.discard(key)
        self._apply(key, self._meaning(new, self._now) if new is not None else None)

    def on_time(self, now: datetime) -> Sequence[tuple[int, str]]:
        """Returns the pods on nodes, by row and uid, that are to be estimated anew, each once. Called often."""
        for key in self._stale.due(now.timestamp()):
            source = self._index.get(*key.split("/", 1)).source
            self._look_again(key, source, now)
            self._apply(key, self._meaning(source, now))
        if not self._outdated:
            return ()
        sources, self._outdated = self._outdated, set()
        return [(row, uid) for source in sources for uid, row in self._pods.of(source).items()]

    def may_change(self, pod: PodInfo, old: Recommendation | None, new: Recommendation | None) -> bool:
        """Whether the estimate of the pod may follow from what has changed in a Recommendation."""
        about = new if new is not None else old
        if about is None or about.metadata.namespace != pod.pod.metadata.namespace:
            return False
        return old is None or new is None or self._meaning(old, self._now) != self._meaning(new, self._now)

    def place(self, row: int, pod: PodInfo) -> None:
        """The pod counts on ``row`` with its present estimate."""
        self.leave(pod.uid)
        source = self._source_of[pod.uid] = pod.pod.metadata.namespace, self.of(pod).source
        self._pods.put(source, pod.uid, row)

    def leave(self, uid: str) -> None:
        """The pod no longer counts on its row."""
        source = self._source_of.pop(uid, None)
        if source is not None:
            self._pods.take(source, uid)

    def _apply(self, key: str, now: _Meaning | None) -> None:
        before = self._meanings.get(key)
        if now == before:
            return
        namespace = key.partition("/")[0]
        self._versions[namespace] = object()
        if now is None:
            del self._meanings[key]
        else:
            self._meanings[key] = now
        if now is None or now.changes_amounts_alone(before):
            self._outdated.add((namespace, key))
        else:
            self._outdated.update(source for source in self._pods if source[0] == namespace)

    def _look_again(self, key: str, source: Recommendation, now: datetime) -> None:
        written = source.status.update_time
        if written is None:
            return
        # In seconds, of which there are more than there are datetimes.
        begin, end = (written.timestamp() + sign * STALE_AFTER.total_seconds() + _A_MOMENT for sign in (-1, 1))
        if end > now.timestamp():
            self._stale.set(key, begin if begin > now.timestamp() else end)

    def _meaning(self, source: Recommendation, now: datetime) -> _Meaning:
        found = recommended(source)
        return _Meaning(source.spec.target, {} if found.unusable(now) else found.containers)

    # Estimates.

    @property
    def _now(self) -> datetime:
        return self._view.now if self._view.now is not None else _BEGINNING

    def _incoming(self, pod: Pod) -> Incoming:
        by_factors, found = super()._incoming(pod), self._index.find(pod.metadata)
        if found is None or found.unusable(self._now):
            return by_factors
        return self._by_recommendation(pod, found, by_factors)

    def _by_recommendation(self, pod: Pod, found: Recommended, by_factors: Incoming) -> Incoming:
        """The factors that a pod has of its own win over what is recommended."""
        own = own_factors(pod) if self._settings.customizable else {}
        expected = {name: amounts for name, amounts in expected_usage(pod, found).items() if name not in own}
        if not expected:
            return by_factors
        estimate = dict(zip(self._settings.resources, by_factors.amounts, strict=True))
        for resource, amounts in expected.items():
            estimate[resource] = sum(amounts.values()) + self._of_rest(pod, resource, amounts)
        return Incoming(self._settings.vector(estimate), by_factors.prod, found.key)

    def _of_rest(self, pod: Pod, resource: str, estimated: Mapping[str, int]) -> int:
        """By factors, what is left of the pod without the containers that are ``estimated``. What init containers ask
        for that end before the others start is past by then."""
        spec = pod.spec
        rest = {each.name for each in lasting_containers(pod)} - estimated.keys()
        if not rest and not spec.overhead:
            return 0
        containers = [each for each in spec.containers if each.name in rest]
        sidecars = [each for each in spec.init_containers if each.name in rest and each.restart_policy == "Always"]
        left = replace(pod, spec=replace(spec, containers=containers, init_containers=sidecars, resources=None))
        factors = {resource: self._settings.factors[resource]} if resource in self._settings.factors else {}
        return estimate_pod(left, factors, priority_class_with_default(pod)).get(resource, 0)
