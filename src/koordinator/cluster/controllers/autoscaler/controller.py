"""The HorizontalPodAutoscaler controller: every 15 seconds it compares what pods use with what they should use, and
scales their workload through its scale subresource, whatever kind that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from koordinator.api.codec import decode
from koordinator.cluster.controllers.autoscaler.decision import (
    Decision,
    Note,
    Situation,
    decide,
    reads_metrics,
    without_scale,
)
from koordinator.cluster.controllers.autoscaler.scaling_rules import History
from koordinator.cluster.controllers.autoscaler.types import AUTOSCALERS, Autoscaler, PodMetrics, PodMetricsList, Scale
from koordinator.cluster.controllers.context import ControllerContext
from koordinator.cluster.controllers.labelled_pods import LabelledPods
from koordinator.cluster.controllers.status_control import write_status
from koordinator.kube.discovery import ObjectName, ObjectPaths, UnknownKindError
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.event_series import reference_to
from koordinator.model.label_selector import NOTHING, CompiledSelector, SelectorError, parse_selector

_PERIOD_SECONDS: Final = 15.0
_WORKERS: Final = 5
_METRICS: Final = "/apis/metrics.k8s.io/v1beta1/namespaces"


class HorizontalPodAutoscalerController:
    """Implements ``koordinator.kube.reconciler.Controller``; its keys are ``namespace/name``."""

    name: Final = "horizontal-pod-autoscaler-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._paths = ObjectPaths(context.client)
        self._pods = LabelledPods(context.informers)
        self._autoscalers = context.informers.informer(AUTOSCALERS)
        self._recorder = context.events.recorder("horizontal-pod-autoscaler")
        self._histories: dict[str, History] = {}
        """By UID."""
        self._noted: dict[str, dict[Note, str]] = {}
        """The events of the last look, with the version that they name, by UID."""
        self._selected: dict[str, tuple[str, CompiledSelector]] = {}
        """The namespace and the selector of each autoscaler's target, by the key of the autoscaler."""
        self._reconciler = context.reconcilers.make(
            self.name,
            self._reconcile,
            lambda: [each.metadata.key for each in self._autoscalers.list()],
            workers=_WORKERS,
        )
        self._autoscalers.add_handlers(
            name=self.name,
            on_add=lambda each, _: self._reconciler.add(each.metadata.key),
            on_update=self._updated,
            on_delete=self._forget,
        )

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reconciler.run()

    def _updated(self, old: Autoscaler, new: Autoscaler) -> None:
        # Its own status is no reason to look again before the period is over.
        if old.spec != new.spec:
            self._reconciler.add(new.metadata.key)

    def _forget(self, autoscaler: Autoscaler) -> None:
        self._histories.pop(autoscaler.metadata.uid, None)
        self._noted.pop(autoscaler.metadata.uid, None)
        self._selected.pop(autoscaler.metadata.key, None)

    async def _reconcile(self, key: str) -> float | None:
        autoscaler = self._autoscalers.get(key)
        if autoscaler is None:
            return None
        decision = await self._decided(autoscaler)
        self._histories[autoscaler.metadata.uid] = decision.history
        await write_status(self._client, AUTOSCALERS, autoscaler, autoscaler.status, decision.status)
        self._record(autoscaler, decision.notes)
        return _PERIOD_SECONDS

    def _record(self, autoscaler: Autoscaler, notes: Sequence[Note]) -> None:
        """What is the same at every look is one event, with the version at which it was first so."""
        before = self._noted.get(autoscaler.metadata.uid, {})
        version = autoscaler.metadata.resource_version
        self._noted[autoscaler.metadata.uid] = now = {note: before.get(note, version) for note in notes}
        for note, first in now.items():
            regarding = msgspec.structs.replace(reference_to(AUTOSCALERS, autoscaler), resource_version=first)
            self._recorder.event(regarding, note.type, note.reason, note.reason, note.message)

    async def _decided(self, autoscaler: Autoscaler) -> Decision:
        history = self._histories.get(autoscaler.metadata.uid, History())
        target = autoscaler.spec.scale_target_ref
        name = ObjectName(target.api_version, target.kind, target.name)
        namespace = autoscaler.metadata.namespace
        try:
            path = await self._path(name, namespace)
            scale = decode(await self._client.raw("GET", path), Scale)
        except (UnknownKindError, ApiStatusError) as error:
            self._selected.pop(autoscaler.metadata.key, None)
            text = error.message if isinstance(error, ApiStatusError) else str(error)
            return without_scale(autoscaler, text, history, self._clock.now())
        situation = await self._situation(autoscaler, scale)
        decision = decide(situation, history, self._clock.now())
        if decision.replicas is None:
            return decision
        return await self._rescale(autoscaler, scale, path, decision)

    async def _path(self, name: ObjectName, namespace: str) -> str:
        """Raises UnknownKindError in the words of a client that looks the kind up, and KubeError."""
        group, slash, _ = name.api_version.partition("/")
        unknown = UnknownKindError(f'no matches for kind "{name.kind}" in group "{group if slash else ""}"')
        try:
            return await self._paths.path(name, namespace, "scale")
        except UnknownKindError as error:
            raise unknown from error
        except ApiStatusError as error:
            if not error.is_not_found:
                raise
            raise unknown from error

    async def _situation(self, autoscaler: Autoscaler, scale: Scale) -> Situation:
        key, namespace = autoscaler.metadata.key, autoscaler.metadata.namespace
        text = scale.status.selector
        try:
            selector = parse_selector(text) if text else NOTHING
        except SelectorError as error:
            self._selected.pop(key, None)
            return Situation(autoscaler, scale, selector_error=str(error))
        self._selected[key] = (namespace, selector)
        if not text or not reads_metrics(autoscaler, scale):
            return Situation(autoscaler, scale)
        pods = self._pods.selected(namespace, selector)
        rivals = [
            other
            for other, (where, theirs) in self._selected.items()
            if other != key and where == namespace and any(theirs.matches(pod.metadata.labels) for pod in pods)
        ]
        metrics = () if rivals else await self._metrics(namespace, text)
        return Situation(autoscaler, scale, pods, metrics, rivals=rivals)

    async def _metrics(self, namespace: str, selector: str) -> list[PodMetrics] | str:
        """Or why there are none."""
        path = f"{_METRICS}/{namespace}/pods?labelSelector={quote(selector, safe='')}"
        try:
            return decode(await self._client.raw("GET", path), PodMetricsList).items
        except ApiStatusError as error:
            return f"unable to fetch metrics from resource metrics API: {error.message}"

    async def _rescale(self, autoscaler: Autoscaler, scale: Scale, path: str, decision: Decision) -> Decision:
        metadata = scale.metadata
        wanted = {
            "metadata": {
                "name": metadata.name,
                "namespace": metadata.namespace,
                "resourceVersion": metadata.resource_version,
            },
            "spec": {"replicas": decision.replicas},
        }
        try:
            await self._client.raw("PUT", path, msgspec.json.encode(wanted))
        except ApiStatusError as error:
            # Someone else has changed the target: the next try, which is soon, sees how.
            if error.is_conflict:
                raise
            return decision.not_rescaled(autoscaler, error.message, self._clock.now())
        return decision.rescaled(autoscaler, scale.spec.replicas, self._clock.now())
