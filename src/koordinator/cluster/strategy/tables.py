"""The ``kubectl get`` columns of the kinds that need nothing but their own fields."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.cluster.resource import Column
from koordinator.cluster.strategy.table import AGE, NAME, age, computed, human_duration, integer, lookup, table, text

_NONE: Final = "<none>"
_UNSET: Final = "<unset>"
_MODES: Final = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _size(*fields: str) -> Callable[[Document], int]:
    return lambda obj: sum(len(obj.get(field) or {}) for field in fields)


def _containers(obj: Document) -> str:
    return ",".join(c.get("name") or "" for c in _pod_spec(obj).get("containers") or [])


def _images(obj: Document) -> str:
    return ",".join(c.get("image") or "" for c in _pod_spec(obj).get("containers") or [])


def _pod_spec(obj: Document) -> Document:
    spec = lookup(obj, ("spec", "template", "spec")) or lookup(obj, ("template", "spec"))
    return spec or lookup(obj, ("spec", "jobTemplate", "spec", "template", "spec")) or {}


def _selector(obj: Document) -> str:
    selector = lookup(obj, ("spec", "selector"))
    if selector is None:
        return _NONE
    if not selector.keys() & {"matchLabels", "matchExpressions"}:
        return _labels(selector)
    return _label_selector(selector)


def _label_selector(selector: Document) -> str:
    parts = [_labels(selector["matchLabels"])] if selector.get("matchLabels") else []
    for requirement in selector.get("matchExpressions") or []:
        key, operator = requirement["key"], requirement["operator"]
        values = ",".join(sorted(requirement.get("values") or []))
        simple = {"Exists": key, "DoesNotExist": f"!{key}"}
        parts.append(simple.get(operator) or f"{key} {operator.lower()} ({values})")
    return ",".join(parts) or _NONE


def _labels(labels: Document) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or _NONE


_TEMPLATE = (
    computed("Containers", _containers, wide=True),
    computed("Images", _images, wide=True),
    computed("Selector", _selector, wide=True),
)


def _ratio(ready: str, wanted: str) -> Callable[[Document], str]:
    def read(obj: Document) -> str:
        return f"{lookup(obj, ready.split('.')) or 0}/{lookup(obj, wanted.split('.')) or 0}"

    return read


def _counted(name: str, path: str) -> Any:
    return computed(name, lambda obj: lookup(obj, path.split(".")) or 0)


DEPLOYMENT = table(
    NAME,
    computed("Ready", _ratio("status.readyReplicas", "spec.replicas")),
    _counted("Up-to-date", "status.updatedReplicas"),
    _counted("Available", "status.availableReplicas"),
    AGE,
    *_TEMPLATE,
)
REPLICA_SET = table(
    NAME,
    integer("Desired", "spec.replicas"),
    integer("Current", "status.replicas"),
    integer("Ready", "status.readyReplicas"),
    AGE,
    *_TEMPLATE,
)
DAEMON_SET = table(
    NAME,
    integer("Desired", "status.desiredNumberScheduled"),
    integer("Current", "status.currentNumberScheduled"),
    integer("Ready", "status.numberReady"),
    integer("Up-to-date", "status.updatedNumberScheduled"),
    integer("Available", "status.numberAvailable"),
    computed("Node Selector", lambda obj: _labels(_pod_spec(obj).get("nodeSelector") or {})),
    AGE,
    *_TEMPLATE,
)
STATEFUL_SET = table(NAME, computed("Ready", _ratio("status.readyReplicas", "spec.replicas")), AGE, *_TEMPLATE[:2])


def _job_status(job: Document) -> str:
    true = {c.get("type") for c in lookup(job, ("status", "conditions")) or [] if c.get("status") == "True"}
    for condition in ("Complete", "Failed"):
        if condition in true:
            return condition
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return next((c for c in ("Suspended", "FailureTarget", "SuccessCriteriaMet") if c in true), "Running")


def _completions(job: Document) -> str:
    succeeded = lookup(job, ("status", "succeeded")) or 0
    if job["spec"].get("completions") is not None:
        return f"{succeeded}/{job['spec']['completions']}"
    parallelism = job["spec"].get("parallelism") or 0
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _job_duration(job: Document, now: datetime) -> str:
    status = job.get("status") or {}
    if not status.get("startTime"):
        return ""
    end = datetime.fromisoformat(status["completionTime"]) if status.get("completionTime") else now
    return human_duration(end - datetime.fromisoformat(status["startTime"]))


JOB = table(
    NAME,
    computed("Status", _job_status),
    computed("Completions", _completions),
    (Column("Duration"), _job_duration),
    AGE,
    *_TEMPLATE,
)
CRON_JOB = table(
    NAME,
    text("Schedule", "spec.schedule"),
    text("Timezone", "spec.timeZone", absent=_NONE),
    computed("Suspend", lambda obj: str(bool(obj["spec"].get("suspend"))), "boolean"),
    computed("Active", lambda obj: len(lookup(obj, ("status", "active")) or []), "integer"),
    (Column("Last Schedule"), lambda obj, now: _last_schedule(obj, now)),
    AGE,
    *_TEMPLATE,
)


def _last_schedule(obj: Document, now: datetime) -> str:
    last = lookup(obj, ("status", "lastScheduleTime"))
    return age(last, now) if last else _NONE


def _scale_target(obj: Document) -> str:
    reference = obj["spec"].get("scaleTargetRef") or {}
    return f"{reference.get('kind') or ''}/{reference.get('name') or ''}"


def _cpu_target(obj: Document) -> str:
    """Only version 1's one metric, in the real server's words."""
    wanted = obj["spec"].get("targetCPUUtilizationPercentage")
    if wanted is None:
        return "<none>"
    current = lookup(obj, ("status", "currentCPUUtilizationPercentage"))
    return f"cpu: {'<unknown>' if current is None else f'{current}%'}/{wanted}%"


HORIZONTAL_POD_AUTOSCALER = table(
    NAME,
    computed("Reference", _scale_target),
    computed("Targets", _cpu_target),
    computed("MinPods", lambda obj: str(obj["spec"].get("minReplicas") or "<unset>")),
    integer("MaxPods", "spec.maxReplicas"),
    integer("Replicas", "status.currentReplicas"),
    AGE,
)


def _budget(name: str) -> Callable[[Document], str]:
    def read(obj: Document) -> str:
        value = obj["spec"].get(name)
        return "N/A" if value is None else str(value)

    return read


POD_DISRUPTION_BUDGET = table(
    NAME,
    computed("Min Available", _budget("minAvailable")),
    computed("Max Unavailable", _budget("maxUnavailable")),
    integer("Allowed Disruptions", "status.disruptionsAllowed"),
    AGE,
)


def _phase(obj: Document) -> str:
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else lookup(obj, ("status", "phase")) or ""


def _modes(modes: list[str] | None) -> str:
    return ",".join(short for mode, short in _MODES.items() if mode in (modes or []))


def _claim(volume: Document) -> str:
    claim = volume["spec"].get("claimRef")
    return f"{claim.get('namespace') or ''}/{claim.get('name') or ''}" if claim else ""


def _bound(obj: Document, name: str) -> Any:
    return lookup(obj, ("status", name)) if obj["spec"].get("volumeName") else None


PERSISTENT_VOLUME = table(
    NAME,
    computed("Capacity", lambda obj: lookup(obj, ("spec", "capacity", "storage")) or "0"),
    computed("Access Modes", lambda obj: _modes(obj["spec"].get("accessModes"))),
    text("Reclaim Policy", "spec.persistentVolumeReclaimPolicy"),
    computed("Status", _phase),
    computed("Claim", _claim),
    text("StorageClass", "spec.storageClassName"),
    text("VolumeAttributesClass", "spec.volumeAttributesClassName", absent=_UNSET),
    text("Reason", "status.reason"),
    AGE,
    text("VolumeMode", "spec.volumeMode", wide=True, absent=_UNSET),
)
PERSISTENT_VOLUME_CLAIM = table(
    NAME,
    computed("Status", _phase),
    text("Volume", "spec.volumeName"),
    computed("Capacity", lambda obj: (_bound(obj, "capacity") or {}).get("storage") or ""),
    computed("Access Modes", lambda obj: _modes(_bound(obj, "accessModes"))),
    text("StorageClass", "spec.storageClassName"),
    text("VolumeAttributesClass", "spec.volumeAttributesClassName", absent=_UNSET),
    AGE,
    text("VolumeMode", "spec.volumeMode", wide=True, absent=_UNSET),
)


def _storage_class_name(obj: Document) -> str:
    default = "storageclass.kubernetes.io/is-default-class"
    marked = (obj["metadata"].get("annotations") or {}).get(default) == "true"
    return f"{obj['metadata']['name']} (default)" if marked else obj["metadata"]["name"]


STORAGE_CLASS = table(
    (NAME[0], lambda obj, now: _storage_class_name(obj)),
    text("Provisioner", "provisioner"),
    text("ReclaimPolicy", "reclaimPolicy", absent="Delete"),
    text("VolumeBindingMode", "volumeBindingMode", absent=_UNSET),
    text("AllowVolumeExpansion", "allowVolumeExpansion", absent=False),
    AGE,
)
DEVICE_CLASS = table(NAME, AGE)


def _claim_state(claim: Document) -> str:
    status = claim.get("status") or {}
    states = [
        *(["deleted"] if claim["metadata"].get("deletionTimestamp") else []),
        *(["allocated"] if status.get("allocation") else ["pending"]),
        *(["reserved"] if status.get("reservedFor") else []),
    ]
    return ",".join(states)


RESOURCE_CLAIM = table(NAME, computed("State", _claim_state), AGE)
RESOURCE_SLICE = table(
    NAME,
    text("Node", "spec.nodeName", absent=_UNSET),
    text("Driver", "spec.driver"),
    text("Pool", "spec.pool.name"),
    AGE,
)
CSI_NODE = table(NAME, computed("Drivers", lambda obj: len(obj["spec"].get("drivers") or []), "integer"), AGE)


def _ports(service: Document) -> str:
    shown = []
    for port in service["spec"].get("ports") or []:
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port.get('port')}{node_port}/{port.get('protocol')}")
    return ",".join(shown) or _NONE


def _external_address(service: Document) -> str:
    spec = service["spec"]
    if spec.get("type") == "ExternalName":
        return spec.get("externalName") or ""
    addresses = list(spec.get("externalIPs") or [])
    if spec.get("type") == "LoadBalancer":
        ingress = lookup(service, ("status", "loadBalancer", "ingress")) or []
        addresses = [i.get("ip") or i.get("hostname") or "" for i in ingress] + addresses
        return ",".join(addresses) or "<pending>"
    return ",".join(addresses) or _NONE


SERVICE = table(
    NAME,
    text("Type", "spec.type"),
    computed("Cluster-IP", lambda obj: next(iter(obj["spec"].get("clusterIPs") or []), _NONE)),
    computed("External-IP", _external_address),
    computed("Port(s)", _ports),
    AGE,
    computed("Selector", lambda obj: _labels(obj["spec"].get("selector") or {}), wide=True),
)


def _quota(limits: bool) -> Callable[[Document], str]:
    """One of the two columns; what no controller has counted yet is not shown."""

    def read(obj: Document) -> str:
        status = obj.get("status") or {}
        hard, used = status.get("hard") or {}, status.get("used") or {}
        names = sorted(name for name in hard if name.startswith("limits.") == limits)
        return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)

    return read


RESOURCE_QUOTA = table(NAME, computed("Request", _quota(limits=False)), computed("Limit", _quota(limits=True)), AGE)
NETWORK_POLICY = table(
    NAME,
    computed("Pod-Selector", lambda obj: _label_selector(obj["spec"].get("podSelector") or {})),
    AGE,
)
NAMESPACE = table(NAME, text("Status", "status.phase"), AGE)
CONFIG_MAP = table(NAME, computed("Data", _size("data", "binaryData")), AGE)
SECRET = table(NAME, text("Type", "type"), computed("Data", _size("data")), AGE)
SERVICE_ACCOUNT = table(NAME, AGE)


def _role(binding: Document) -> str:
    reference = binding.get("roleRef") or {}
    return f"{reference.get('kind') or ''}/{reference.get('name') or ''}"


def _subjects(kind: str) -> Callable[[Document], str]:
    def read(binding: Document) -> str:
        subjects = [subject for subject in binding.get("subjects") or [] if subject.get("kind") == kind]
        names = (f"{s['namespace']}/{s['name']}" if s.get("namespace") else s.get("name") or "" for s in subjects)
        return ", ".join(names)

    return read


ROLE_BINDING = table(
    NAME,
    computed("Role", _role),
    AGE,
    computed("Users", _subjects("User"), wide=True),
    computed("Groups", _subjects("Group"), wide=True),
    computed("ServiceAccounts", _subjects("ServiceAccount"), wide=True),
)
LEASE = table(NAME, text("Holder", "spec.holderIdentity"), AGE)
CUSTOM_RESOURCE_DEFINITION = table(
    NAME, (Column("Created At", "date"), lambda obj, now: obj["metadata"].get("creationTimestamp"))
)


# The ``kubectl get`` columns of endpoints and ingresses, which show the first few of many.


_SHOWN: Final = 3


def _first_few(texts: Sequence[str], absent: str) -> str:
    if not texts:
        return absent
    shown = ",".join(texts[:_SHOWN])
    return f"{shown} + {len(texts) - _SHOWN} more..." if len(texts) > _SHOWN else shown


def _endpoints(obj: Document) -> str:
    found = []
    for subset in obj.get("subsets") or []:
        ports = subset.get("ports") or [{}]
        for port in ports:
            suffix = f":{port['port']}" if port.get("port") else ""
            found += [f"{address.get('ip') or ''}{suffix}" for address in subset.get("addresses") or []]
    return _first_few(found, _NONE)


def _slice_ports(obj: Document) -> str:
    ports = [str(port.get("port", "*")) for port in obj.get("ports") or []]
    return _first_few(ports, _UNSET)


def _slice_addresses(obj: Document) -> str:
    endpoints = obj.get("endpoints") or []
    return _first_few([address for each in endpoints for address in each.get("addresses") or []], _UNSET)


def _hosts(ingress: Document) -> str:
    rules = ingress["spec"].get("rules") or []
    return _first_few([rule["host"] for rule in rules if rule.get("host")], "*")


def _addresses(ingress: Document) -> str:
    found = lookup(ingress, ("status", "loadBalancer", "ingress")) or []
    return ",".join(each.get("ip") or each.get("hostname") or "" for each in found)


ENDPOINTS = table(NAME, computed("Endpoints", _endpoints), AGE)
ENDPOINT_SLICE = table(
    NAME,
    text("AddressType", "addressType"),
    computed("Ports", _slice_ports),
    computed("Endpoints", _slice_addresses),
    AGE,
)
INGRESS = table(
    NAME,
    text("Class", "spec.ingressClassName", absent=_NONE),
    computed("Hosts", _hosts),
    computed("Address", _addresses),
    computed("Ports", lambda obj: "80, 443" if obj["spec"].get("tls") else "80"),
    AGE,
)
