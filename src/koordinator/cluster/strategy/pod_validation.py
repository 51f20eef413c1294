"""What a pod spec must look like, in the real server's words; the parts that scheduling and QoS depend on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.names import dns_label, dns_subdomain, label_key, label_value
from koordinator.api.quantity import Quantity
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import duplicate, forbidden, invalid, not_found, not_supported, required
from koordinator.cluster.strategy.metadata import validate_labels

# Resource lists of containers and nodes: names, quantities, and how requests relate to limits.


_STANDARD = ("cpu", "memory", "ephemeral-storage", "storage")
_MUST_BE_INTEGER = "must be an integer"


def is_extended(name: str) -> bool:
    """Resources of devices and the like: with a prefix that is not Kubernetes' own."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def check_container_resources(resources: Document, field: str) -> list[Cause]:
    """The real server's rules for ``resources`` of a container."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    causes: list[Cause] = []
    for name, text in limits.items():
        causes += check_name(name, f"{field}.limits[{name}]", container=True)
        causes += check_amount(name, text, f"{field}.limits[{name}]")
    for name, text in requests.items():
        causes += check_name(name, f"{field}.requests[{name}]", container=True)
        causes += check_amount(name, text, f"{field}.requests[{name}]")
        causes += _check_against_limit(name, text, limits, f"{field}.requests")
    return causes + [
        required(f"{field}.limits", "Limit must be set for non overcommitable resources")
        for name in requests
        if not _may_overcommit(name) and name not in limits
    ]


def _check_against_limit(name: str, text: str, limits: Document, field: str) -> list[Cause]:
    if name not in limits:
        return []
    request, limit = Quantity.parse(text), Quantity.parse(limits[name])
    if not _may_overcommit(name) and request != limit:
        return [invalid(field, text, f"must be equal to {name} limit of {limits[name]}")]
    if limit < request:
        return [invalid(field, text, f"must be less than or equal to {name} limit of {limits[name]}")]
    return []


def _may_overcommit(name: str) -> bool:
    return not is_extended(name) and not name.startswith("hugepages-")


def check_name(name: str, field: str, *, container: bool = False) -> list[Cause]:
    """Nodes may have resources of any name, containers only known ones and those with a prefix."""
    causes = [invalid(field, name, detail) for detail in label_key(name)]
    if not causes and container and "/" not in name and name not in _STANDARD and not name.startswith("hugepages-"):
        causes.append(invalid(field, name, "must be a standard resource type or fully qualified"))
        causes.append(invalid(field, name, "must be a standard resource for containers"))
    return causes


def check_amount(name: str, text: str, field: str) -> list[Cause]:
    """Never negative; whole numbers where a fraction means nothing."""
    quantity = Quantity.parse(text)
    causes = []
    if quantity.nanos < 0:
        causes.append(invalid(field, text, "must be greater than or equal to 0"))
    if is_extended(name) and quantity.milli % 1000:
        causes.append(invalid(field, text, _MUST_BE_INTEGER))
    return causes


_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NODE_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_DNS_POLICIES: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")


def check_pod_spec(
    spec: Document, field: str, labels: Document, other_volumes: tuple[str, ...] = ()
) -> list[Cause]:
    """Everything that is wrong with a pod spec at the path ``field``; volumes may also come from elsewhere."""
    causes = _check_containers(spec, field, other_volumes)
    causes += _check_choice(spec.get("restartPolicy"), ("Always", "OnFailure", "Never"), f"{field}.restartPolicy")
    causes += _check_choice(spec.get("dnsPolicy"), _DNS_POLICIES, f"{field}.dnsPolicy")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and deadline < 1:
        detail = "must be between 1 and 2147483647, inclusive"
        causes.append(invalid(f"{field}.activeDeadlineSeconds", deadline, detail))
    for name in ("nodeName", "schedulerName", "priorityClassName", "serviceAccountName"):
        if value := spec.get(name):
            causes += [invalid(f"{field}.{name}", value, detail) for detail in dns_subdomain(value)]
    causes += validate_labels(spec.get("nodeSelector"), f"{field}.nodeSelector")
    causes += check_tolerations(spec.get("tolerations") or [], f"{field}.tolerations")
    causes += _check_node_affinity(
        (spec.get("affinity") or {}).get("nodeAffinity") or {}, f"{field}.affinity.nodeAffinity"
    )
    causes += _check_spread(spec.get("topologySpreadConstraints") or [], f"{field}.topologySpreadConstraints")
    return causes + _check_gates(spec, field)


def _check_choice(value: Any, allowed: tuple[str, ...], field: str) -> list[Cause]:
    return [not_supported(field, value, allowed)] if value and value not in allowed else []


def _check_containers(spec: Document, field: str, other_volumes: tuple[str, ...]) -> list[Cause]:
    causes: list[Cause] = []
    volumes = _names(spec.get("volumes") or [], f"{field}.volumes", causes).union(other_volumes)
    seen: set[str] = set()
    if not spec.get("containers"):
        causes.append(required(f"{field}.containers"))
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or []):
            at = f"{field}.{group}[{index}]"
            causes += _check_container(container, at, volumes, bool(spec.get("hostNetwork")))
            name = container.get("name")
            if name and name in seen:
                causes.append(duplicate(f"{at}.name", name))
            seen.add(name or "")
    return causes


def _check_container(container: Document, at: str, volumes: set[str], host_network: bool) -> list[Cause]:
    name, image = container.get("name"), container.get("image") or ""
    causes = [invalid(f"{at}.name", name, text) for text in dns_label(name)] if name else [required(f"{at}.name")]
    if not image:
        causes.append(required(f"{at}.image"))
    elif image != image.strip():
        causes.append(invalid(f"{at}.image", image, "must not have leading or trailing whitespace"))
    policies = ("Always", "IfNotPresent", "Never")
    causes += _check_choice(container.get("imagePullPolicy"), policies, f"{at}.imagePullPolicy")
    causes += _check_ports(container.get("ports") or [], f"{at}.ports", host_network)
    for index, variable in enumerate(container.get("env") or []):
        if not variable.get("name"):
            causes.append(required(f"{at}.env[{index}].name"))
    for index, mount in enumerate(container.get("volumeMounts") or []):
        if mount.get("name") not in volumes:
            causes.append(not_found(f"{at}.volumeMounts[{index}].name", mount.get("name") or ""))
        if not mount.get("mountPath"):
            causes.append(required(f"{at}.volumeMounts[{index}].mountPath"))
    return causes + check_container_resources(container.get("resources") or {}, f"{at}.resources")


def _check_ports(ports: list[Document], field: str, host_network: bool) -> list[Cause]:
    causes = []
    for index, port in enumerate(ports):
        for name in ("containerPort", "hostPort"):
            number = port.get(name)
            if name == "containerPort" and not number:
                causes.append(required(f"{field}[{index}].{name}"))
            elif number and not 0 < number < 65_536:
                causes.append(invalid(f"{field}[{index}].{name}", number, "must be between 1 and 65535, inclusive"))
        # In templates the host port is not defaulted yet, and zero is fine.
        if host_network and port.get("hostPort") and port["hostPort"] != port.get("containerPort"):
            detail = "must match `containerPort` when `hostNetwork` is true"
            causes.append(invalid(f"{field}[{index}].hostPort", port["hostPort"], detail))
        causes += _check_choice(port.get("protocol"), ("TCP", "UDP", "SCTP"), f"{field}[{index}].protocol")
    return causes


def _names(items: Iterable[Document], field: str, causes: list[Cause]) -> set[str]:
    seen: set[str] = set()
    for index, item in enumerate(items):
        name = item.get("name") or ""
        at = f"{field}[{index}].name"
        causes += [invalid(at, name, detail) for detail in dns_label(name)] if name else [required(at)]
        if name in seen:
            causes.append(duplicate(at, name))
        seen.add(name)
    return seen


def check_tolerations(tolerations: list[Document], field: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, toleration in enumerate(tolerations):
        at = f"{field}[{index}]"
        key, operator, value = (toleration.get(name) or "" for name in ("key", "operator", "value"))
        if key:
            causes += [invalid(f"{at}.key", key, detail) for detail in label_key(key)]
        elif operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            causes.append(invalid(f"{at}.operator", operator, detail))
        if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            causes.append(invalid(f"{at}.effect", toleration.get("effect") or "", detail))
        if operator not in ("", "Equal", "Exists"):
            causes.append(not_supported(f"{at}.operator", operator, ("Equal", "Exists")))
        elif operator == "Exists" and value:
            causes.append(invalid(f"{at}.operator", value, "value must be empty when `operator` is 'Exists'"))
        causes += _check_choice(toleration.get("effect"), _EFFECTS, f"{at}.effect")
    return causes


def _check_node_affinity(affinity: Document, field: str) -> list[Cause]:
    causes: list[Cause] = []
    needed = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if needed is not None:
        causes += check_node_selector(needed, f"{field}.requiredDuringSchedulingIgnoredDuringExecution")
    at = f"{field}.preferredDuringSchedulingIgnoredDuringExecution"
    for index, preferred in enumerate(affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or []):
        weight = preferred.get("weight") or 0
        if not 1 <= weight <= 100:
            causes.append(invalid(f"{at}[{index}].weight", weight, "must be in the range 1-100"))
        causes += _check_node_term(preferred.get("preference") or {}, f"{at}[{index}].preference")
    return causes


def check_node_selector(selector: Document, field: str) -> list[Cause]:
    """What is wrong with a NodeSelector, which needs at least one term."""
    terms = selector.get("nodeSelectorTerms") or []
    at = f"{field}.nodeSelectorTerms"
    if not terms:
        return [required(at, "must have at least one node selector term")]
    return [cause for index, term in enumerate(terms) for cause in _check_node_term(term, f"{at}[{index}]")]


def _check_node_term(term: Document, field: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, requirement in enumerate(term.get("matchExpressions") or []):
        at = f"{field}.matchExpressions[{index}]"
        operator, values = requirement.get("operator") or "", requirement.get("values") or []
        causes += _check_node_operator(operator, values, at)
        causes += [invalid(f"{at}.key", requirement.get("key"), c) for c in label_key(requirement.get("key") or "")]
        if operator in ("In", "NotIn"):
            causes += [
                invalid(f"{at}.values[{position}]", value, detail)
                for position, value in enumerate(values)
                for detail in label_value(value)
            ]
    for index, requirement in enumerate(term.get("matchFields") or []):
        causes += _check_node_field(requirement, f"{field}.matchFields[{index}]")
    return causes


def _check_node_operator(operator: str, values: list[str], at: str) -> list[Cause]:
    if operator not in _NODE_OPERATORS:
        return [invalid(f"{at}.operator", operator, "not a valid selector operator")]
    if operator in ("In", "NotIn") and not values:
        return [required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")]
    if operator in ("Exists", "DoesNotExist") and values:
        return [forbidden(f"{at}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")]
    if operator in ("Gt", "Lt") and len(values) != 1:
        return [required(f"{at}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")]
    return []


def _check_node_field(requirement: Document, at: str) -> list[Cause]:
    """Of fields there is the name of the node alone."""
    key, operator, values = (requirement.get(name) or "" for name in ("key", "operator", "values"))
    causes = []
    if operator not in ("In", "NotIn"):
        causes.append(invalid(f"{at}.operator", operator, "not a valid selector operator"))
    elif len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        causes.append(required(f"{at}.values", detail))
    if key != "metadata.name":
        return [*causes, invalid(f"{at}.key", key, "not a valid field selector key")]
    return causes + [
        invalid(f"{at}.values[{position}]", value, detail)
        for position, value in enumerate(values)
        for detail in dns_subdomain(value)
    ]


def _check_spread(constraints: list[Document], field: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, constraint in enumerate(constraints):
        at = f"{field}[{index}]"
        if (constraint.get("maxSkew") or 0) <= 0:
            causes.append(invalid(f"{at}.maxSkew", constraint.get("maxSkew") or 0, "must be greater than zero"))
        if not constraint.get("topologyKey"):
            causes.append(required(f"{at}.topologyKey", "can not be empty"))
        allowed = ("DoNotSchedule", "ScheduleAnyway")
        if constraint.get("whenUnsatisfiable") not in allowed:
            causes.append(not_supported(f"{at}.whenUnsatisfiable", constraint.get("whenUnsatisfiable") or "", allowed))
    return causes


def _check_gates(spec: Document, field: str) -> list[Cause]:
    gates = spec.get("schedulingGates") or []
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name, at = gate.get("name") or "", f"{field}.schedulingGates[{index}]"
        causes += [invalid(at, name, detail) for detail in label_key(name)]
        if name in seen:
            causes.append(duplicate(at, name))
        seen.add(name)
    if gates and spec.get("nodeName"):
        causes.append(forbidden(f"{field}.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return causes
