"""Pods: defaults, admission, and what each verb may change."""

from __future__ import annotations

import copy
import json
import re
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.quantity import Quantity
from koordinator.api.timestamps import format_time
from koordinator.cluster.resource import Cause, RequestContext
from koordinator.cluster.strategy import pod_resources
from koordinator.cluster.strategy.causes import forbidden, invalid
from koordinator.cluster.strategy.metadata import validate_core_finalizers
from koordinator.cluster.strategy.object_strategy import ObjectStrategy, default_each, defaults_of
from koordinator.cluster.strategy.pod_rules import check_own_claims
from koordinator.cluster.strategy.pod_status import check_status
from koordinator.cluster.strategy.pod_table import pod_table
from koordinator.cluster.strategy.pod_validation import check_pod_spec
from koordinator.cluster.strategy.table import lookup

# ``status.qosClass`` of a pod, as Kubernetes derives it from requests and limits of cpu and memory.


_COMPUTE: Final = ("cpu", "memory")


def qos_class(spec: Document) -> str:
    """``Guaranteed``, ``Burstable`` or ``BestEffort``."""
    if spec.get("resources"):
        holders = [spec["resources"]]
    else:
        containers = [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]
        holders = [container.get("resources") or {} for container in containers]
    requested = [(_positive(holder.get("requests")), _positive(holder.get("limits"))) for holder in holders]
    if not any(requests or limits for requests, limits in requested):
        return "BestEffort"
    guaranteed = all(limits.keys() == set(_COMPUTE) and requests == limits for requests, limits in requested)
    return "Guaranteed" if guaranteed else "Burstable"


def _positive(amounts: Document | None) -> dict[str, Quantity]:
    parsed = {name: Quantity.parse(text) for name, text in (amounts or {}).items() if name in _COMPUTE}
    return {name: quantity for name, quantity in parsed.items() if quantity}


# Defaults of pod specs and of what they hold, wherever these occur: in pods and in the templates of workloads.


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
    if spec.get("resources"):
        pod_resources.set_defaults(spec)
    spec.setdefault("enableServiceLinks", True)
    if spec.get("hostNetwork"):
        for container in (*(spec.get("initContainers") or []), *(spec.get("containers") or [])):
            for port in container.get("ports") or []:
                default_each(port, "hostPort", port.get("containerPort"))


# Which fields of a pod's spec may change after creation.


_RULE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_FREE: Final = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates")


def check_pod_update(spec: Document, old: Document, other_causes: list[Cause]) -> list[Cause]:
    """The violations of an update; ``other_causes`` are those of the new spec on its own."""
    causes = list(other_causes)
    for group in ("containers", "initContainers"):
        if len(spec.get(group) or []) != len(old.get(group) or []):
            return [*causes, forbidden(f"spec.{group}", "pod updates may not add or remove containers")]
    causes += _check_deadline(spec.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds"))
    causes += _check_tolerations(spec.get("tolerations") or [], old.get("tolerations") or [])
    before = {gate.get("name") for gate in old.get("schedulingGates") or []}
    causes += [
        forbidden(
            f"spec.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate.get('name') or ''}'",
        )
        for index, gate in enumerate(spec.get("schedulingGates") or [])
        if gate.get("name") not in before
    ]
    if old.get("schedulingGates"):
        causes += _check_narrowing(spec, old)
    changed = changed_fields(_frozen_part(spec, old), _frozen_part(old, old))
    if changed:
        causes.append(forbidden("spec", f"{_RULE}\n{changed}"))
    return causes


def _frozen_part(spec: Document, old: Document) -> Document:
    part = {name: value for name, value in spec.items() if name not in _FREE}
    grace, before = spec.get("terminationGracePeriodSeconds"), old.get("terminationGracePeriodSeconds") or 0
    if before >= 0:
        part["terminationGracePeriodSeconds"] = grace
    for group in ("containers", "initContainers"):
        if part.get(group):
            part[group] = [{k: v for k, v in container.items() if k != "image"} for container in part[group]]
    # A gated pod may still be narrowed to fewer nodes; ``_check_narrowing`` says whether it is.
    if old.get("schedulingGates"):
        part = copy.deepcopy(part)
        part.pop("nodeSelector", None)
        if part.get("affinity"):
            part["affinity"].pop("nodeAffinity", None)
            if not part["affinity"]:
                part.pop("affinity")
    return part


def _check_narrowing(spec: Document, old: Document) -> list[Cause]:
    """Node selectors may get more to select by, and terms more expressions; nothing may go or change."""
    selector, before = spec.get("nodeSelector"), old.get("nodeSelector") or {}
    causes: list[Cause] = []
    if any((selector or {}).get(key) != value for key, value in before.items()):
        detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        causes.append(invalid("spec.nodeSelector", selector, detail))
    field = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    terms, old_terms = _terms(spec), _terms(old) or []
    if not old_terms:
        return causes
    if len(terms or ()) != len(old_terms):
        detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        return [*causes, invalid(field, terms, detail)]
    detail = "only additions are allowed (no mutations or deletions)"
    return causes + [
        invalid(f"{field}[{index}]", term, detail)
        for index, (term, earlier) in enumerate(zip(terms or (), old_terms, strict=True))
        if not _only_adds(term, earlier)
    ]


def _terms(spec: Document) -> list[Document] | None:
    path = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
    found: list[Document] | None = lookup(spec, path)
    return found


def _only_adds(term: Document, old: Document) -> bool:
    groups = ("matchExpressions", "matchFields")
    if not any(old.get(group) for group in groups):
        return not any(term.get(group) for group in groups)
    return all((term.get(group) or [])[: len(old.get(group) or [])] == (old.get(group) or []) for group in groups)


def _check_deadline(value: Any, old: Any) -> list[Cause]:
    field = "spec.activeDeadlineSeconds"
    if old is None or value == old:
        return []
    if value is None:
        return [invalid(field, None, "must not update from a positive integer to nil value")]
    if value > old:
        return [invalid(field, value, "must be less than or equal to previous value")]
    return []


def _check_tolerations(tolerations: list[Document], old: list[Document]) -> list[Cause]:
    detail = "existing toleration can not be modified except its tolerationSeconds"
    without_seconds = [{k: v for k, v in t.items() if k != "tolerationSeconds"} for t in tolerations]
    for toleration in old:
        if {k: v for k, v in toleration.items() if k != "tolerationSeconds"} not in without_seconds:
            return [forbidden("spec.tolerations", detail)]
    return []


def changed_fields(new: Any, old: Any, path: str = "spec") -> str:
    """One line for each field that differs, so that the reader need not compare two pods."""
    if isinstance(new, dict) and isinstance(old, dict):
        parts = [changed_fields(new.get(key), old.get(key), f"{path}.{key}") for key in sorted({*new, *old})]
        return "".join(parts)
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        return "".join(changed_fields(a, b, f"{path}[{i}]") for i, (a, b) in enumerate(zip(new, old, strict=True)))
    if new == old:
        return ""
    return f"  {path}: {json.dumps(old)} -> {json.dumps(new)}\n"


_FIELD_LABELS: Final = (
    "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
    "status.phase", "status.podIP", "status.nominatedNodeName",
)  # fmt: skip
_GATED: Final = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}


class PodStrategy(ObjectStrategy):
    def __init__(self) -> None:
        labels = {label: _reader(label) for label in _FIELD_LABELS}
        super().__init__("v1", "Pod", table=pod_table(), generation=True, status=True, field_labels=labels)

    def convert(self, obj: Document) -> None:
        """The first of ``podIPs`` is ``podIP``, which counts where they differ: older kubelets know it alone."""
        status = obj["status"]
        address, addresses = status.get("podIP"), status.get("podIPs") or []
        if address and (not addresses or addresses[0].get("ip") != address):
            status["podIPs"] = [{"ip": address}]
        elif addresses and addresses[0].get("ip"):
            status["podIP"] = addresses[0]["ip"]

    def initialize(self, obj: Document, context: RequestContext) -> None:
        obj["status"] = {"phase": "Pending", "qosClass": qos_class(obj["spec"])}
        if obj["spec"].get("schedulingGates"):
            obj["status"]["conditions"] = [
                {**_GATED, "lastProbeTime": None, "lastTransitionTime": format_time(context.now)}
            ]

    def keep_metadata_on_status_update(self, obj: Document, old: Document) -> None:
        super().keep_metadata_on_status_update(obj, old)
        if before := (old.get("status") or {}).get("qosClass"):
            default_each(obj["status"], "qosClass", before)
        _keep_observed_generations(obj["status"], old.get("status") or {})

    def check(self, obj: Document, old: Document | None) -> list[Cause]:
        finalizers = validate_core_finalizers(obj) if old is not None else []
        if old is not None and obj["spec"] == old["spec"]:
            return finalizers  # was checked when it was stored; most updates are of a pod's status or labels
        causes = finalizers + check_spec(obj)
        if old is not None:
            return check_pod_update(obj["spec"], old["spec"], causes)
        if obj["spec"].get("ephemeralContainers"):
            causes.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
        return causes

    def validate_status(self, obj: Document, old: Document) -> list[Cause]:
        return self.validate(obj, old) + check_status(obj["status"], old)


def _keep_observed_generations(status: Document, before: Document) -> None:
    """What was observed stays so, unless another generation is named: of each type, condition by condition."""
    if generation := before.get("observedGeneration"):
        default_each(status, "observedGeneration", generation)
    known: dict[str, list[int]] = {}
    for condition in before.get("conditions") or ():
        known.setdefault(condition.get("type") or "", []).append(condition.get("observedGeneration") or 0)
    for condition in status.get("conditions") or ():
        earlier = known.get(condition.get("type") or "")
        if earlier and (generation := earlier.pop(0)):
            default_each(condition, "observedGeneration", generation)


def check_spec(pod: Document) -> list[Cause]:
    """What is wrong with the spec on its own."""
    causes = check_pod_spec(pod["spec"], "spec", pod["metadata"].get("labels") or {})
    if pod["spec"].get("volumes"):
        causes += check_own_claims(pod["metadata"].get("name") or "", pod["spec"], "spec.volumes")
    return causes


def _reader(label: str) -> Any:
    names = label.split(".")

    def read(obj: Document) -> str:
        value = lookup(obj, names)
        if names[-1] == "hostNetwork":
            return "true" if value else "false"
        return value or ""

    return read
