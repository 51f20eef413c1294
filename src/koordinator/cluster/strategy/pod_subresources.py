"""What changes a pod that is there: ``pods/resize`` its resources, ``pods/ephemeralcontainers`` the debug containers.

Both show the whole pod. Of what is sent they take over their own part alone; what is wrong with it is said in the real
server's words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from koordinator.api.annotations import CONFIG_MIRROR
from koordinator.api.document import Document, same
from koordinator.api.names import dns_subdomain
from koordinator.cluster.resource import Cause, RequestContext, View
from koordinator.cluster.strategy.causes import forbidden, go_quoted, invalid
from koordinator.cluster.strategy.metadata import validate_metadata
from koordinator.cluster.strategy.pod import PodStrategy, changed_fields, check_spec, qos_class

_KEPT: Final = ("labels", "annotations", "finalizers", "ownerReferences")
_GROUPS: Final = ("containers", "initContainers")
_RESIZABLE: Final = ("cpu", "memory")
_TAKEN_OVER: Final = ("resources", "resizePolicy")
_WHOLE: Final = "[]"
"""The path of the pod itself."""


def pod_views(strategy: PodStrategy) -> Mapping[str, View]:
    """By the name of the subresource."""

    def resize(obj: Document, old: Document, context: RequestContext) -> None:
        _keep_metadata(obj, old)
        spec = obj["spec"]
        if all(len(spec.get(group) or ()) == len(old["spec"].get(group) or ()) for group in _GROUPS):
            resized = {group: _resized(spec[group], old["spec"][group]) for group in _GROUPS if spec.get(group)}
            obj["spec"] = {**old["spec"], **resized}
        strategy.prepare_update(obj, old, context)

    def join(obj: Document, old: Document, context: RequestContext) -> None:
        _keep_metadata(obj, old)
        sent = obj["spec"].get(_EPHEMERAL)
        obj["spec"] = {name: value for name, value in old["spec"].items() if name != _EPHEMERAL}
        if sent:
            obj["spec"][_EPHEMERAL] = sent
        strategy.prepare_update(obj, old, context)

    return {"resize": View(resize, _check_resize), "ephemeralcontainers": View(join, _check_joining)}


def _keep_metadata(obj: Document, old: Document) -> None:
    for name in _KEPT:
        obj["metadata"].pop(name, None)
        if name in old["metadata"]:
            obj["metadata"][name] = old["metadata"][name]


def _check_pod(obj: Document, old: Document) -> list[Cause]:
    return validate_metadata(obj, old, True, dns_subdomain) + check_spec(obj)


def _is_static(pod: Document) -> bool:
    return CONFIG_MIRROR in (pod["metadata"].get("annotations") or {})


# Resizing.


def _resized(containers: list[Document], old: list[Document]) -> list[Document]:
    """The old containers with new resources; containers of other names stay, for the validation to refuse."""
    if any(new.get("name") != known.get("name") for new, known in zip(containers, old, strict=True)):
        return containers
    return [
        {
            **{name: value for name, value in known.items() if name not in _TAKEN_OVER},
            **{name: new[name] for name in _TAKEN_OVER if name in new},
        }
        for new, known in zip(containers, old, strict=True)
    ]


def _check_resize(obj: Document, old: Document) -> list[Cause]:
    if _is_static(old):
        return [forbidden(_WHOLE, "static pods cannot be resized")]
    if (old["spec"].get("os") or {}).get("name") == "windows":
        return [forbidden(_WHOLE, "windows pods cannot be resized")]
    causes, spec = _check_pod(obj, old), obj["spec"]
    quality = old["status"].get("qosClass") or qos_class(old["spec"])
    if quality != qos_class(spec):
        shown = obj["status"].get("qosClass") or ""
        causes.append(invalid("spec", shown, "Pod QOS Class may not change as a result of resizing"))
    if not _node_resizes(old):
        causes.append(forbidden("spec", "Pod running on node without support for resize"))
    if _has_amounts(old["spec"]) or _has_amounts(spec):
        detail = (
            "resize of pods with pod-level resources is forbidden when "
            "InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled"
        )
        return [*causes, forbidden(_WHOLE, detail)]
    if others := [cause for group in _GROUPS for cause in _other_containers(spec, old["spec"], group)]:
        return causes + others
    for group in reversed(_GROUPS):
        causes += _removed(spec, old["spec"], group)
    return causes + [cause for group in _GROUPS for cause in _other_changes(spec, old["spec"], group)]


def _node_resizes(pod: Document) -> bool:
    """Whether the kubelet says what running containers have; without one that runs, nobody can tell."""
    statuses = pod["status"].get("containerStatuses") or ()
    running = [each for each in statuses if (each.get("state") or {}).get("running") is not None]
    return not running or running[0].get("resources") is not None


def _has_amounts(spec: Document) -> bool:
    resources = spec.get("resources") or {}
    return bool(resources.get("requests") or resources.get("limits"))


def _other_containers(spec: Document, old: Document, group: str) -> Iterator[Cause]:
    new, known = spec.get(group) or (), old.get(group) or ()
    if len(new) != len(known):
        yield forbidden(f"spec.{group}", f"{group} may not be added or removed on resize")
        return
    for index, (one, other) in enumerate(zip(new, known, strict=True)):
        if one.get("name") != other.get("name"):
            yield forbidden(f"spec.{group}[{index}].name", f"{group} may not be renamed or reordered on resize")


def _removed(spec: Document, old: Document, group: str) -> Iterator[Cause]:
    """An amount may become another one, and not be taken away."""
    for index, (new, known) in enumerate(zip(spec.get(group) or (), old.get(group) or (), strict=True)):
        if group == "initContainers" and not _is_sidecar(known):
            continue
        for kind in ("requests", "limits"):
            before, after = (((each.get("resources") or {}).get(kind) or {}).keys() for each in (known, new))
            if before - after:
                yield forbidden(f"spec.{group}[{index}].resources.{kind}", f"resource {kind} cannot be removed")


def _other_changes(spec: Document, old: Document, group: str) -> Iterator[Cause]:
    detail = "only cpu and memory resources are mutable"
    for new, known in zip(spec.get(group) or (), old.get(group) or (), strict=True):
        if group == "containers" or _is_sidecar(new):
            if not same(_without_resize(new, known), _plain(known)):
                sidecars = "only cpu and memory resources for sidecar containers are mutable"
                yield forbidden("spec", detail if group == "containers" else sidecars)
        elif not same(_plain(new), _plain(known)):
            yield forbidden("spec", "resources for non-sidecar init containers are immutable")


def _is_sidecar(container: Document) -> bool:
    return container.get("restartPolicy") == "Always"


def _without_resize(container: Document, old: Document) -> Document:
    """The container with the CPUs and the memory that it had. Where it had no amounts of a kind, as on the real server,
    none count."""
    kinds: Document = {}
    for kind in ("requests", "limits"):
        before, after = ((each.get("resources") or {}).get(kind) or {} for each in (old, container))
        rest = {name: amount for name, amount in after.items() if name not in _RESIZABLE}
        kinds[kind] = {**rest, **{name: before[name] for name in _RESIZABLE if name in before}} if before else {}
    return _plain({**container, "resources": kinds})


def _plain(container: Document) -> Document:
    """Without empty lists of amounts."""
    resources = {name: value for name, value in (container.get("resources") or {}).items() if value}
    return {**container, "resources": resources}


# Ephemeral containers.


_EPHEMERAL: Final = "ephemeralContainers"


def _check_joining(obj: Document, old: Document) -> list[Cause]:
    if _is_static(old):
        return [forbidden(_WHOLE, "static pods do not support ephemeral containers")]
    causes = _check_pod(obj, old)
    found = {container.get("name"): container for container in obj["spec"].get(_EPHEMERAL) or ()}
    for known in old["spec"].get(_EPHEMERAL) or ():
        new, title = found.get(known["name"]), f"existing ephemeral containers {go_quoted(known['name'])} may not be"
        if new is None:
            causes.append(forbidden(f"spec.{_EPHEMERAL}", f"{title} removed\n"))
        elif not same(new, known):
            differs = changed_fields(new, known, known["name"])
            causes.append(forbidden(f"spec.{_EPHEMERAL}", f"{title} changed\n{differs}"))
    return causes
