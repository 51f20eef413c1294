"""Defaults of pod specs and what they hold, wherever these occur: in pods and in the templates of workloads."""

from __future__ import annotations

import re
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.quantity import Quantity
from koordinator.cluster.strategy.defaults import default_each, defaults_of

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
    # The field is a deprecated twin; the real server fills in both.
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
        limits = container["resources"].get("limits")
        if limits is not None:
            container["resources"]["requests"] = {**limits, **(container["resources"].get("requests") or {})}
    spec.setdefault("enableServiceLinks", True)
    if spec.get("hostNetwork"):
        for container in (*(spec.get("initContainers") or []), *(spec.get("containers") or [])):
            for port in container.get("ports") or []:
                default_each(port, "hostPort", port.get("containerPort"))
