"""The ``kubectl get`` columns of volumes, services, quotas and other kinds that need nothing but their own fields."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.volume import DEFAULT_CLASS
from koordinator.cluster.strategy.table import (
    AGE,
    NAME,
    NONE,
    UNSET,
    computed,
    integer,
    labels_text,
    lookup,
    selector_text,
    table,
    text,
)

_MODES: Final = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _size(*fields: str) -> Callable[[Document], int]:
    return lambda obj: sum(len(obj.get(field) or {}) for field in fields)


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
    text("VolumeAttributesClass", "spec.volumeAttributesClassName", absent=UNSET),
    text("Reason", "status.reason"),
    AGE,
    text("VolumeMode", "spec.volumeMode", wide=True, absent=UNSET),
)
PERSISTENT_VOLUME_CLAIM = table(
    NAME,
    computed("Status", _phase),
    text("Volume", "spec.volumeName"),
    computed("Capacity", lambda obj: (_bound(obj, "capacity") or {}).get("storage") or ""),
    computed("Access Modes", lambda obj: _modes(_bound(obj, "accessModes"))),
    text("StorageClass", "spec.storageClassName"),
    text("VolumeAttributesClass", "spec.volumeAttributesClassName", absent=UNSET),
    AGE,
    text("VolumeMode", "spec.volumeMode", wide=True, absent=UNSET),
)


def _storage_class_name(obj: Document) -> str:
    marked = (obj["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"
    return f"{obj['metadata']['name']} (default)" if marked else obj["metadata"]["name"]


STORAGE_CLASS = table(
    (NAME[0], lambda obj, now: _storage_class_name(obj)),
    text("Provisioner", "provisioner"),
    text("ReclaimPolicy", "reclaimPolicy", absent="Delete"),
    text("VolumeBindingMode", "volumeBindingMode", absent=UNSET),
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
    text("Node", "spec.nodeName", absent=UNSET),
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
    return ",".join(shown) or NONE


def _external_address(service: Document) -> str:
    spec = service["spec"]
    if spec.get("type") == "ExternalName":
        return spec.get("externalName") or ""
    addresses = list(spec.get("externalIPs") or [])
    if spec.get("type") == "LoadBalancer":
        ingress = lookup(service, ("status", "loadBalancer", "ingress")) or []
        addresses = [i.get("ip") or i.get("hostname") or "" for i in ingress] + addresses
        return ",".join(addresses) or "<pending>"
    return ",".join(addresses) or NONE


SERVICE = table(
    NAME,
    text("Type", "spec.type"),
    computed("Cluster-IP", lambda obj: next(iter(obj["spec"].get("clusterIPs") or []), NONE)),
    computed("External-IP", _external_address),
    computed("Port(s)", _ports),
    AGE,
    computed("Selector", lambda obj: labels_text(obj["spec"].get("selector") or {}), wide=True),
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
    computed("Pod-Selector", lambda obj: selector_text(obj["spec"].get("podSelector") or {})),
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


_SHOWN: Final = 3
"""How many endpoints, ports or hosts are named before the rest is only counted."""


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
    return _first_few(found, NONE)


def _slice_ports(obj: Document) -> str:
    ports = [str(port.get("port", "*")) for port in obj.get("ports") or []]
    return _first_few(ports, UNSET)


def _slice_addresses(obj: Document) -> str:
    endpoints = obj.get("endpoints") or []
    return _first_few([address for each in endpoints for address in each.get("addresses") or []], UNSET)


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
    text("Class", "spec.ingressClassName", absent=NONE),
    computed("Hosts", _hosts),
    computed("Address", _addresses),
    computed("Ports", lambda obj: "80, 443" if obj["spec"].get("tls") else "80"),
    AGE,
)
