"""Defaults of pod specs and what they hold, wherever these occur: in pods and in the templates of workloads."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import cache
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.table import ObjectType, Shape, Type
from koordinator.api.quantity import Quantity
from koordinator.cluster.strategy import pod_resources

# Applies the defaults of Kubernetes' types wherever the types occur: a container is one in a pod and in a job.
#
# Each family of kinds registers what one type's defaults are; the walk finds the places from the table of types.
# Parents come before what they hold, as in the real server's generated defaulters.


TypeDefaults = Callable[[Document], None]

_REGISTERED: Final[dict[str, TypeDefaults]] = {}


def defaults_of(type_name: str) -> Callable[[TypeDefaults], TypeDefaults]:
    """Register the defaults of one type, named as in the table: ``io.k8s.api.core.v1.Container``."""

    def register(function: TypeDefaults) -> TypeDefaults:
        assert type_name not in _REGISTERED
        _REGISTERED[type_name] = function
        return function

    return register


def default_each(obj: Document, name: str, value: Any) -> None:
    """Set a field that is absent or zero."""
    if not obj.get(name):
        obj[name] = value


def apply_defaults(document: Document, of: ObjectType, filled: Collection[str] = ()) -> None:
    """Fill in the defaults of a canonical document, in place. ``filled`` names members that have theirs already."""
    defaults = _REGISTERED.get(of.name)
    if defaults is not None:
        defaults(document)
    for name, type_ in _places(of):
        value = document.get(name)
        if value is not None and name not in filled:
            _descend(value, type_)


def _descend(value: Any, type_: Type) -> None:
    if type_.shape is Shape.OBJECT:
        apply_defaults(value, type_.members)
    elif type_.shape is Shape.LIST:
        for item in value:
            _descend(item, type_.of)
    elif type_.shape is Shape.MAP:
        for item in value.values():
            _descend(item, type_.of)


@cache
def _places(of: ObjectType) -> tuple[tuple[str, Type], ...]:
    """The fields below which something has defaults; the others are not walked."""
    return tuple((field.name, field.type) for field in of.fields.values() if _reaches(field.type, frozenset({of.name})))


def _reaches(type_: Type, seen: frozenset[str]) -> bool:
    while type_.element is not None:
        type_ = type_.element
    if type_.shape is not Shape.OBJECT or type_.name in seen:
        return False
    if type_.name in _REGISTERED:
        return True
    inner = seen | {type_.name}
    return any(_reaches(field.type, inner) for field in type_.members.fields.values())


_CORE: Final = "io.k8s.api.core.v1."
_TAG: Final = re.compile(r":([\w][\w.-]{0,127})$")
_FILE_MODE: Final = 0o644


@defaults_of(f"{_CORE}PodSpec")
def _pod_spec(spec: Document) -> None:
    default_each(spec, "dnsPolicy", "ClusterFirst")
    default_each(spec, "restartPolicy", "Always")
    spec.setdefault("securityContext", {})
    spec.setdefault("terminationGracePeriodSeconds", 30)
    default_each(spec, "schedulerName", "default-scheduler")
    # The field is a deprecated name of the other; the real server fills in both.
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account


@defaults_of(f"{_CORE}Container")
def _container(container: Document) -> None:
    default_each(container, "imagePullPolicy", pull_policy(container.get("image") or ""))
    default_each(container, "terminationMessagePath", "/dev/termination-log")
    default_each(container, "terminationMessagePolicy", "File")


@defaults_of(f"{_CORE}EphemeralContainer")
def _ephemeral_container(container: Document) -> None:
    _container(container)


def pull_policy(image: str) -> str:
    """``Always`` for ``latest``, said or meant; a digest without a tag is no ``latest``."""
    name, at_sign, _ = image.partition("@")
    tag = _TAG.search(name)
    latest = tag.group(1) == "latest" if tag else not at_sign
    return "Always" if latest else "IfNotPresent"


@defaults_of(f"{_CORE}ContainerPort")
def _container_port(port: Document) -> None:
    default_each(port, "protocol", "TCP")


@defaults_of(f"{_CORE}ResourceRequirements")
def _resource_requirements(resources: Document) -> None:
    for name in ("requests", "limits"):
        round_up_resources(resources.get(name))


def round_up_resources(amounts: Any) -> None:
    """Resource lists hold nothing finer than a thousandth."""
    for name, text in (amounts or {}).items():
        if text.endswith(("n", "u")):
            amounts[name] = str(Quantity.parse(text).round_up_to_milli())


@defaults_of(f"{_CORE}Probe")
def _probe(probe: Document) -> None:
    for name, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
        default_each(probe, name, value)
    if isinstance(probe.get("grpc"), dict):
        default_each(probe["grpc"], "service", "")


@defaults_of(f"{_CORE}HTTPGetAction")
def _http_get(action: Document) -> None:
    default_each(action, "path", "/")
    default_each(action, "scheme", "HTTP")


@defaults_of(f"{_CORE}ObjectFieldSelector")
def _object_field(selector: Document) -> None:
    default_each(selector, "apiVersion", "v1")


@defaults_of(f"{_CORE}ResourceFieldSelector")
def _resource_field(selector: Document) -> None:
    default_each(selector, "divisor", "0")


_VOLUME_SOURCES: Final = frozenset(
    {
        "hostPath", "emptyDir", "gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "secret", "nfs", "iscsi",
        "glusterfs", "persistentVolumeClaim", "rbd", "flexVolume", "cinder", "cephfs", "flocker", "downwardAPI", "fc",
        "azureFile", "configMap", "vsphereVolume", "quobyte", "azureDisk", "photonPersistentDisk", "projected",
        "portworxVolume", "scaleIO", "storageos", "csi", "ephemeral", "image",
    }
)  # fmt: skip


@defaults_of(f"{_CORE}Volume")
def _volume(volume: Document) -> None:
    if not _VOLUME_SOURCES & volume.keys():
        volume["emptyDir"] = {}
    for source in ("secret", "configMap", "downwardAPI", "projected"):
        if isinstance(volume.get(source), dict):
            volume[source].setdefault("defaultMode", _FILE_MODE)
    if isinstance(volume.get("hostPath"), dict):
        volume["hostPath"].setdefault("type", "")
    if isinstance(volume.get("image"), dict):
        default_each(volume["image"], "pullPolicy", pull_policy(volume["image"].get("reference") or ""))


@defaults_of(f"{_CORE}ServiceAccountTokenProjection")
def _service_account_token(projection: Document) -> None:
    projection.setdefault("expirationSeconds", 3600)


@defaults_of(f"{_CORE}PersistentVolumeClaimSpec")
def _claim_spec(spec: Document) -> None:
    spec.setdefault("volumeMode", "Filesystem")


@defaults_of(f"{_CORE}PersistentVolumeClaim")
def _claim(claim: Document) -> None:
    claim["apiVersion"], claim["kind"] = "v1", "PersistentVolumeClaim"
    default_each(claim["status"], "phase", "Pending")


@defaults_of(f"{_CORE}Pod")
def _pod(pod: Document) -> None:
    spec = pod["spec"]
    for container in (*(spec.get("containers") or []), *(spec.get("initContainers") or [])):
        # A spec that a patch leaves alone is as it was stored, be it by an older version.
        resources = container.get("resources") or {}
        limits = resources.get("limits")
        if limits is not None:
            resources["requests"] = {**limits, **(resources.get("requests") or {})}
    pod_resources.set_defaults(spec)
    spec.setdefault("enableServiceLinks", True)
    if spec.get("hostNetwork"):
        for container in (*(spec.get("initContainers") or []), *(spec.get("containers") or [])):
            for port in container.get("ports") or []:
                default_each(port, "hostPort", port.get("containerPort"))
