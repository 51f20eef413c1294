"""The controller ``colocationprofile``: applies each managed profile to the pending pods that it selects."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final

from koordinator.api.colocation_profile import ClusterColocationProfile
from koordinator.api.kinds import CLUSTER_COLOCATION_PROFILES, NAMESPACES, PODS
from koordinator.api.modification import ADJUSTED, Cause, Modification
from koordinator.api.pod import Pod
from koordinator.base.clock import Clock
from koordinator.base.token_bucket import TokenBucket
from koordinator.kube.event_series import reference_to
from koordinator.kube.reconciler import Reconciler
from koordinator.manager.colocation_profile.decision import compile_for_pods, is_drawn, is_for, is_managed
from koordinator.manager.colocation_profile.pod_writer import WAITING, Outcome, PodWriter
from koordinator.manager.controllers import ControllerContext
from koordinator.manager.webhook.colocation_profile.compiled import CompiledProfile

logger = logging.getLogger(__name__)

_DEADLINE: Final = 300.0
_AFTER_CONFLICT: Final = 2.0


class HandledPods:
    """Pods that a profile has been handled for. An entry expires after ``keep`` seconds (0: never), and that of a
    deleted pod within ``clean`` seconds."""

    def __init__(self, clock: Clock, keep: float, clean: float) -> None:
        self._clock = clock
        self._keep = keep
        self._clean = clean
        self._cleaned_at = clock.monotonic()
        self._handled_at: dict[tuple[str, str], float] = {}

    def __len__(self) -> int:
        return len(self._handled_at)

    def add(self, profile_version: str, uid: str) -> None:
        """Record that this version of the profile has been applied to the pod, or cannot be."""
        self._handled_at[profile_version, uid] = self._clock.monotonic()

    def has(self, profile_version: str, uid: str) -> bool:
        handled_at = self._handled_at.get((profile_version, uid))
        return handled_at is not None and self._is_fresh(handled_at)

    def clean(self, known: Collection[str]) -> None:
        """Drop expired entries if ``clean`` seconds have passed; ``known`` are the uids of all pending pods."""
        now = self._clock.monotonic()
        if now - self._cleaned_at < self._clean:
            return
        self._cleaned_at = now
        self._handled_at = {
            key: handled_at
            for key, handled_at in self._handled_at.items()
            if key[1] in known and self._is_fresh(handled_at)
        }

    def _is_fresh(self, handled_at: float) -> bool:
        return self._keep <= 0 or self._clock.monotonic() - handled_at < self._keep


class ColocationProfileController:
    """Reconciles a profile when it changes, and again after every interval."""

    name = "colocationprofile"

    def __init__(self, context: ControllerContext) -> None:
        options, clock = context.options.colocation_profile, context.clock
        self._by_default = options.reconcile_by_default
        self._interval = options.reconcile_interval.total_seconds()
        bucket = TokenBucket(clock, options.update_pod_qps, options.update_pod_qps_burst)
        self._writer = PodWriter(context.client, bucket)
        self._handled = HandledPods(
            clock,
            keep=options.force_update_pod_duration.total_seconds(),
            clean=options.expire_pod_cache_duration.total_seconds(),
        )
        self._recorder = context.events.recorder(self.name)
        self._outcomes = context.metrics.counter(
            "koord_manager_colocation_profile_pods_total",
            "Existing pods that a ClusterColocationProfile was to be applied to, by what became of it",
            ("result",),
        )
        self._profiles = context.informers.informer(CLUSTER_COLOCATION_PROFILES, absent_is_empty=True)
        self._namespaces = context.informers.informer(NAMESPACES)
        self._pods = context.informers.informer(PODS, namespace=context.options.namespace, field_selector=WAITING)
        self._reconciler = self._made_reconciler(context)
        self._profiles.add_handlers(
            name=self.name,
            on_add=lambda profile, _: self._reconciler.add(profile.metadata.name),
            on_update=lambda _, profile: self._reconciler.add(profile.metadata.name),
        )

    def _made_reconciler(self, context: ControllerContext) -> Reconciler[str]:
        return context.reconcilers.make(
            self.name,
            self._reconcile,
            lambda: [profile.metadata.name for profile in self._profiles.list()],
            deadline=_DEADLINE,
        )

    async def run(self) -> None:
        """Work until cancelled; may be called again when this replica is elected again."""
        await self._reconciler.run()

    async def _reconcile(self, name: str) -> float | None:
        profile = self._profiles.get(name)
        if profile is None or not is_managed(profile, self._by_default):
            return None
        compiled = compile_for_pods(profile)
        if compiled.warning:
            self._warn(profile, "InvalidProfile", compiled.warning)
            return self._interval or None
        self._handled.clean({pod.metadata.uid for pod in self._pods.list()})
        conflicts = await self._go_round(compiled)
        return _AFTER_CONFLICT if conflicts else self._interval or None

    async def _go_round(self, profile: CompiledProfile) -> bool:
        """Apply the profile to its pods. Returns whether a pod was changed by another client in the meantime."""
        outcomes: Counter[Outcome] = Counter()
        problem = ""
        for pod in self._matching(profile):
            outcome, text = await self._writer.apply(profile, pod)
            outcomes[outcome] += 1
            self._outcomes.labels(outcome.value).inc()
            if text and not problem:
                problem = f"such as {pod.metadata.key}: {text}"
            if outcome.is_final:
                self._handled.add(profile.source.metadata.resource_version, pod.metadata.uid)
            if outcome is Outcome.RATE_LIMITED:
                break
        if problem:
            count = outcomes[Outcome.REFUSED] + outcomes[Outcome.FAILED]
            self._warn(profile.source, "UpdatePodFailed", f"pods that could not be changed: {count}, {problem}")
        if changed := outcomes[Outcome.CHANGED]:
            record = Modification(
                action=ADJUSTED,
                actor=self.name,
                cause=Cause(code="ClusterColocationProfile"),
                count=changed,
                numbers={"pods": float(changed)},
            )
            about, note = reference_to(CLUSTER_COLOCATION_PROFILES, profile.source), f"applied to {changed} pods"
            self._recorder.event(about, "Normal", "ProfileApplied", "Reconcile", note, modification=record)
        if outcomes:
            logger.info("colocationprofile: %s: %s", profile.name, _summary(outcomes))
        return outcomes[Outcome.CONFLICT] > 0

    def _matching(self, profile: CompiledProfile) -> Iterator[Pod]:
        """Yield the pods that the profile selects and that have not been handled recently, sorted by name."""
        version = profile.source.metadata.resource_version
        for pod in sorted(self._pods.list(), key=lambda pod: pod.metadata.key):
            metadata = pod.metadata
            if metadata.deletion_timestamp is not None or self._handled.has(version, metadata.uid):
                continue
            namespace = self._namespaces.get(metadata.namespace)
            labels = namespace.metadata.labels if namespace is not None else None
            if is_for(profile, metadata.labels, labels) and is_drawn(profile, metadata.uid):
                yield pod

    def _warn(self, profile: ClusterColocationProfile, reason: str, note: str) -> None:
        logger.warning("colocationprofile: %s: %s", profile.metadata.name, note)
        about = reference_to(CLUSTER_COLOCATION_PROFILES, profile)
        self._recorder.event(about, "Warning", reason, "Reconcile", note)


def _summary(outcomes: Counter[Outcome]) -> str:
    return ", ".join(f"{count} {outcome.value}" for outcome, count in sorted(outcomes.items()))
