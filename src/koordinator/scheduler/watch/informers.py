"""The scheduler's informers: nodes, pods, and the kinds that its plugins read. Pods that have finished are passed only
to plugins that handle them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from koordinator.api.kinds import NODES, PODS, Kind
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod, PodSpec, PodStatus, Volume
from koordinator.kube.handlers import MalformedHandler
from koordinator.kube.informer import Informer
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import Malformed
from koordinator.model import transformers
from koordinator.model.transformers import PodStep, node_as_seen
from koordinator.scheduler.engine.framework import Plugin
from koordinator.scheduler.engine.framework_hooks import FinishedPodHandler
from koordinator.scheduler.watch.event_handlers import EventHandlers
from koordinator.scheduler.watch.unreadable_pods import UnreadablePodHandlers

_NOT_FINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
_FINISHED: Final = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown"


def add_informers(
    informers: InformerSet,
    event_handlers: EventHandlers,
    unreadable_pods: UnreadablePodHandlers,
    plugins: Iterable[Plugin],
    count_malformed: Callable[[str], None],
    steps: Sequence[PodStep] = (),
) -> None:
    """Make the informers, and have them call ``event_handlers``; objects that cannot be decoded are counted by kind.
    ``steps`` change pods before anything sees them."""

    def malformed(broken: Malformed) -> None:
        count_malformed(broken.kind.name)

    def malformed_pod(broken: Malformed) -> None:
        malformed(broken)
        unreadable_pods.on_malformed(broken)

    informers.informer(NODES, transform=node_as_seen).add_handlers(
        on_add=lambda node, initial: event_handlers.set_node(node),
        on_update=lambda old, new: event_handlers.set_node(new),
        on_delete=lambda node: event_handlers.remove_node(node.metadata.name),
        on_malformed=malformed,
    )
    pods = informers.informer(PODS, field_selector=_NOT_FINISHED, transform=partial(pod_as_seen, steps=steps))
    pods.add_handlers(
        on_add=lambda pod, initial: event_handlers.set_pod(pod),
        on_update=lambda old, new: event_handlers.set_pod(new),
        on_delete=event_handlers.remove_pod,
        on_malformed=malformed_pod,
        on_readable=unreadable_pods.on_readable,
    )
    plugins = list(plugins)
    _add_finished_pods(informers, event_handlers, plugins, malformed)
    for kind in dict.fromkeys(kind for plugin in plugins for kind in plugin.node_objects):
        _add_node_objects(informers, event_handlers, kind, malformed, after=pods)
    watched = [(kind, *plugin.watch_scope(kind)) for plugin in plugins for kind in plugin.watched_kinds]
    for kind, namespace, field_selector in dict.fromkeys(watched):
        _add_objects(informers, event_handlers, kind, malformed, namespace, field_selector)


def _add_node_objects(
    informers: InformerSet,
    event_handlers: EventHandlers,
    kind: Kind[Any],
    malformed: MalformedHandler,
    *,
    after: Informer[Pod],
) -> None:
    """Objects about nodes (measurements, say) are evaluated together with the node's pods: only once, if these are all
    listed before."""
    informers.informer(kind, absent_is_empty=True, after=after).add_handlers(
        on_add=lambda obj, initial: event_handlers.set_node_object(kind, obj.metadata.name, None, obj),
        on_update=lambda old, new: event_handlers.set_node_object(kind, new.metadata.name, old, new),
        on_delete=lambda obj: event_handlers.set_node_object(kind, obj.metadata.name, obj, None),
        on_malformed=malformed,
    )


def _add_finished_pods(
    informers: InformerSet, event_handlers: EventHandlers, plugins: Iterable[Plugin], malformed: MalformedHandler
) -> None:
    """Watch finished pods separately, if any plugin handles them: in most clusters there are many, and nearly all of
    them matter to no plugin."""
    handlers = {plugin.name: plugin for plugin in reversed(list(plugins)) if isinstance(plugin, FinishedPodHandler)}
    if not handlers:
        return

    def is_read(pod: Pod) -> bool:
        return any(handler.reads_finished(pod) for handler in handlers.values())

    def changed(old: Pod | None, new: Pod | None) -> None:
        for pod in (old, new):
            if pod is None or not is_read(pod):
                continue
            for handler in handlers.values():
                if handler.reads_finished(pod):
                    (handler.on_finished if pod is new else handler.on_finished_gone)(pod)
            event_handlers.finished(pod)

    informers.informer(
        PODS, field_selector=_FINISHED, transform=lambda pod: finished_pod_as_seen(pod, is_read)
    ).add_handlers(
        on_add=lambda pod, initial: changed(None, pod),
        on_update=changed,
        on_delete=lambda pod: changed(pod, None),
        on_malformed=malformed,
    )


def _add_objects(
    informers: InformerSet,
    event_handlers: EventHandlers,
    kind: Kind[Any],
    malformed: MalformedHandler,
    namespace: str,
    field_selector: str,
) -> None:
    informers.informer(kind, namespace=namespace, field_selector=field_selector, absent_is_empty=True).add_handlers(
        on_add=lambda obj, initial: event_handlers.set_object(kind, obj),
        on_update=lambda old, new: event_handlers.set_object(kind, new),
        on_delete=lambda obj: event_handlers.set_object(kind, obj, gone=True),
        on_malformed=malformed,
    )


def pod_as_seen(pod: Pod, steps: Sequence[PodStep] = ()) -> Pod:
    """The pod without volumes that exist with their pod: they do not affect scheduling, and one of them has another
    name in each replica."""
    pod = transformers.pod_as_seen(pod, steps)
    volumes = [volume for volume in pod.spec.volumes if not _is_plain(volume)]
    if len(volumes) == len(pod.spec.volumes):
        return pod
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, volumes=volumes))


def finished_pod_as_seen(pod: Pod, is_read: Callable[[Pod], bool]) -> Pod:
    """What plugins may read of a pod that has finished; if no plugin reads it, only what identifies it."""
    metadata = pod.metadata
    if not is_read(pod):
        return Pod(
            metadata=ObjectMeta(
                name=metadata.name,
                namespace=metadata.namespace,
                uid=metadata.uid,
                resource_version=metadata.resource_version,
            )
        )
    return Pod(metadata=metadata, spec=PodSpec(node_name=pod.spec.node_name), status=PodStatus(phase=pod.status.phase))


def _is_plain(volume: Volume) -> bool:
    return volume == Volume(name=volume.name, empty_dir=volume.empty_dir, host_path=volume.host_path)
