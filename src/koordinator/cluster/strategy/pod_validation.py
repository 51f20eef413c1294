"""What a pod spec must look like, in the real server's words; the parts that scheduling and QoS depend on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.names import dns_label, dns_subdomain, environment_name, label_key, label_value, port_name
from koordinator.api.quantity import Quantity, QuantityError
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import duplicate, forbidden, invalid, not_found, not_supported, required
from koordinator.cluster.strategy.container_rules import SETTINGS
from koordinator.cluster.strategy.container_rules import check_settings as container_settings
from koordinator.cluster.strategy.metadata import validate_labels
from koordinator.cluster.strategy.node_selector import check_node_selector, check_node_term
from koordinator.cluster.strategy.pod_resources import Group, is_of_pods, of_containers, parsed
from koordinator.cluster.strategy.pod_rules import (
    RARE,
    USUAL,
    check_pod_affinity,
    check_settings,
    check_spread_details,
    check_volume,
)
from koordinator.cluster.strategy.resource_names import HUGE_PAGES, check_name_of_container, is_extended
from koordinator.cluster.strategy.rules import required_name

# Resource lists of containers and nodes: names, quantities, and how requests relate to limits.


_MUST_BE_INTEGER = "must be an integer"


def check_container_resources(
    resources: Document, field: str, check: Callable[[str, str], list[Cause]] = check_name_of_container
) -> list[Cause]:
    """The real server's rules for ``resources`` of a container; ``check`` is that of the names of resources."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    causes: list[Cause] = []
    for name, text in limits.items():
        causes += check(name, f"{field}.limits[{name}]")
        causes += check_amount(name, text, f"{field}.limits[{name}]")
        causes += _check_pages(name, text, f"{field}.limits[{name}]")
    for name, text in requests.items():
        causes += check(name, f"{field}.requests[{name}]")
        causes += check_amount(name, text, f"{field}.requests[{name}]")
        causes += _check_against_limit(name, text, limits, f"{field}.requests")
        causes += _check_pages(name, text, f"{field}.requests[{name}]")
    causes += [
        required(f"{field}.limits", "Limit must be set for non overcommitable resources")
        for name in requests
        if not _may_overcommit(name) and name not in limits
    ]
    named = limits.keys() | requests.keys()
    if any(name.startswith(HUGE_PAGES) for name in named) and not named & {"cpu", "memory"}:
        causes.append(forbidden(field, "HugePages require cpu or memory"))
    return causes


def _check_pages(name: str, text: str, field: str) -> list[Cause]:
    """Huge pages come whole; the page's size is in the name of the resource."""
    if not name.startswith(HUGE_PAGES):
        return []
    try:
        size = Quantity.parse(name.removeprefix(HUGE_PAGES))
    except QuantityError:
        size = Quantity(0)
    amount = Quantity.parse(text)
    if size.nanos > 0 and size.milli % 1000 == 0 and amount.value % size.value == 0:
        return []
    return [invalid(field, str(amount), f"{amount} is not positive integer multiple of {name}")]


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
    return not is_extended(name) and not name.startswith(HUGE_PAGES)


def _check_resources(spec: Document, field: str) -> list[Cause]:
    """Those of the pod as a whole: they hold what its containers request together, and each of their limits."""
    resources = spec["resources"]
    limits, requests = parsed(resources, "limits"), parsed(resources, "requests")
    causes = check_container_resources(resources, field, check=_check_name_of_pod)
    groups: tuple[tuple[Group, dict[str, Quantity]], ...] = (("requests", requests), ("limits", limits))
    for group, given in groups:
        for name, total in of_containers(spec, group).items():
            if name in given and given[name] < total and (group == "requests" or name.startswith(HUGE_PAGES)):
                detail = f"must be greater than or equal to aggregate container {group} of {total}"
                causes.append(invalid(f"{field}.{group}[{name}]", str(given[name]), detail))
    for index, container in enumerate(spec.get("containers") or ()):
        for name, limit in parsed(container.get("resources"), "limits").items():
            if name in limits and limits[name] < limit:
                at = f"{field}.containers[{index}][{name}].limits"
                causes.append(invalid(at, str(limit), f"must be less than or equal to pod limits of {limits[name]}"))
    return causes


def _check_name_of_pod(name: str, field: str) -> list[Cause]:
    if causes := [invalid(field, name, detail) for detail in label_key(name)]:
        return causes
    return [] if is_of_pods(name) else [not_supported(field, name, ("cpu", "hugepages-", "memory"))]


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
_TERMINATION: Final = ("File", "FallbackToLogsOnError")
_DNS_POLICIES: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")


def check_pod_spec(spec: Document, field: str, labels: Document, other_volumes: tuple[str, ...] = ()) -> list[Cause]:
    """Everything that is wrong with a pod spec at the path ``field``; volumes may also come from elsewhere."""
    causes = _check_containers(spec, field, other_volumes)
    causes += _check_choice(spec.get("restartPolicy"), ("Always", "OnFailure", "Never"), f"{field}.restartPolicy")
    causes += _check_choice(spec.get("dnsPolicy"), _DNS_POLICIES, f"{field}.dnsPolicy")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and deadline < 1:
        detail = "must be between 1 and 2147483647, inclusive"
        causes.append(invalid(f"{field}.activeDeadlineSeconds", deadline, detail))
    for name in ("nodeName", "priorityClassName", "serviceAccountName"):
        if value := spec.get(name):
            causes += [invalid(f"{field}.{name}", value, detail) for detail in dns_subdomain(value)]
    if spec.get("nodeSelector"):
        causes += validate_labels(spec["nodeSelector"], f"{field}.nodeSelector")
    causes += check_tolerations(spec.get("tolerations") or [], f"{field}.tolerations")
    if not RARE.isdisjoint(spec) or any(spec.get(member) not in usual for member, usual in USUAL.items()):
        causes += check_settings(spec, field)
    if affinity := spec.get("affinity"):
        causes += _check_node_affinity(affinity.get("nodeAffinity") or {}, f"{field}.affinity.nodeAffinity")
        for kind in ("podAffinity", "podAntiAffinity"):
            causes += check_pod_affinity(affinity.get(kind) or {}, f"{field}.affinity.{kind}")
    if spec.get("resources") is not None:
        causes += _check_resources(spec, f"{field}.resources")
    if overhead := spec.get("overhead"):
        causes += check_container_resources({"limits": overhead}, f"{field}.overhead")
    if spec.get("topologySpreadConstraints"):
        causes += _check_spread(spec["topologySpreadConstraints"], f"{field}.topologySpreadConstraints")
    return causes + (_check_gates(spec, field) if spec.get("schedulingGates") else [])


def _check_choice(value: Any, allowed: tuple[str, ...], field: str) -> list[Cause]:
    return [not_supported(field, value, allowed)] if value and value not in allowed else []


def _check_containers(spec: Document, field: str, other_volumes: tuple[str, ...]) -> list[Cause]:
    causes: list[Cause] = []
    volumes = _volumes(spec, f"{field}.volumes", causes, other_volumes)
    seen: set[str] = set()
    if not spec.get("containers"):
        causes.append(required(f"{field}.containers"))
    grace = spec.get("terminationGracePeriodSeconds")
    host_ports: set[str] = set()
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or []):
            at = f"{field}.{group}[{index}]"
            causes += _check_container(container, at, bool(spec.get("hostNetwork")))
            if not SETTINGS.isdisjoint(container):
                causes += container_settings(container, at, volumes, grace)
            if group == "initContainers":
                causes += _check_init_container(container, at)
            elif container.get("ports"):
                causes += _check_host_ports(container["ports"], f"{at}.ports", host_ports)
            name = container.get("name")
            if name and name in seen:
                causes.append(duplicate(f"{at}.name", name))
            seen.add(name or "")
    if spec.get("ephemeralContainers"):
        causes += _check_ephemeral(spec, field, volumes, seen)
    return causes


_NOT_OF_EPHEMERAL: Final = (
    "ports", "resources", "resizePolicy", "restartPolicy", "restartPolicyRules", "livenessProbe", "readinessProbe",
    "startupProbe", "lifecycle",
)  # fmt: skip
_OF_LONG_LIFE: Final = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle")


def _check_ephemeral(spec: Document, field: str, volumes: dict[str, Document], others: set[str]) -> list[Cause]:
    """``others`` are the names of the other containers."""
    causes: list[Cause] = []
    names, detail = set(others), "cannot be set for an Ephemeral Container"
    grace = spec.get("terminationGracePeriodSeconds")
    for index, container in enumerate(spec["ephemeralContainers"]):
        at, name = f"{field}.ephemeralContainers[{index}]", container.get("name") or ""
        causes += _check_container(container, at, bool(spec.get("hostNetwork")))
        common = {key: value for key, value in container.items() if key not in _OF_LONG_LIFE}
        causes += container_settings(common, at, volumes, grace)
        if name in names:
            causes.append(duplicate(f"{at}.name", name))
        names.add(name)
        aim = container.get("targetContainerName")
        if aim and aim not in others:
            causes.append(not_found(f"{at}.targetContainerName", aim))
        causes += [forbidden(f"{at}.{key}", detail) for key in _NOT_OF_EPHEMERAL if container.get(key)]
        causes += [
            forbidden(f"{at}.volumeMounts[{place}].{key}", detail)
            for place, mount in enumerate(container.get("volumeMounts") or ())
            for key in ("subPath", "subPathExpr")
            if mount.get(key)
        ]
    return causes


def _volumes(spec: Document, field: str, causes: list[Cause], other_volumes: tuple[str, ...]) -> dict[str, Document]:
    """The well-formed volumes by name; a volume that is not counts as absent for what mounts it."""
    found: dict[str, Document] = dict.fromkeys(other_volumes, _FROM_ELSEWHERE)
    seen: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or []):
        at, name = f"{field}[{index}]", volume.get("name") or ""
        wrong = check_volume(volume, spec, at)
        wrong += (
            [invalid(f"{at}.name", name, detail) for detail in dns_label(name)] if name else [required(f"{at}.name")]
        )
        if name in seen:
            wrong.append(duplicate(f"{at}.name", name))
        seen.add(name)
        causes += wrong
        if not wrong:
            found[name] = volume
    return found


_FROM_ELSEWHERE: Final[Document] = {"persistentVolumeClaim": {}}


def _check_host_ports(ports: Iterable[Document], field: str, taken: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    for index, port in enumerate(ports):
        if number := port.get("hostPort"):
            shown = f"{port.get('protocol') or ''}/{port.get('hostIP') or ''}/{number}"
            if shown in taken:
                causes.append(duplicate(f"{field}[{index}].hostPort", shown))
            taken.add(shown)
    return causes


def _check_init_container(container: Document, at: str) -> list[Cause]:
    policy = container.get("restartPolicy")
    causes = _check_choice(policy, ("Always", "Never", "OnFailure"), f"{at}.restartPolicy")
    if policy == "Always":
        return causes
    detail = "may not be set for init containers without restartPolicy=Always"
    return causes + [
        forbidden(f"{at}.{name}", detail)
        for name in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
        if container.get(name) is not None
    ]


_variable_name = required_name(environment_name)


def _check_container(container: Document, at: str, host_network: bool) -> list[Cause]:
    name, image = container.get("name"), container.get("image") or ""
    causes = [invalid(f"{at}.name", name, text) for text in dns_label(name)] if name else [required(f"{at}.name")]
    if not image:
        causes.append(required(f"{at}.image"))
    elif image != image.strip():
        causes.append(invalid(f"{at}.image", image, "must not have leading or trailing whitespace"))
    policies = ("Always", "IfNotPresent", "Never")
    causes += _check_choice(container.get("imagePullPolicy"), policies, f"{at}.imagePullPolicy")
    if container.get("ports"):
        causes += _check_ports(container["ports"], f"{at}.ports", host_network)
    for index, variable in enumerate(container.get("env") or []):
        named = variable.get("name") or ""
        causes += _variable_name(named, f"{at}.env[{index}].name")
    if resources := container.get("resources"):
        causes += check_container_resources(resources, f"{at}.resources")
    policy = container.get("terminationMessagePolicy")
    return causes + _check_choice(policy, _TERMINATION, f"{at}.terminationMessagePolicy")


def _check_ports(ports: list[Document], field: str, host_network: bool) -> list[Cause]:
    causes = []
    named: set[str] = set()
    for index, port in enumerate(ports):
        causes += _check_port_name(port.get("name") or "", f"{field}[{index}].name", named)
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
        causes += _check_choice(port.get("protocol"), ("SCTP", "TCP", "UDP"), f"{field}[{index}].protocol")
    return causes


def _check_port_name(text: str, field: str, seen: set[str]) -> list[Cause]:
    """One name is that of one port of the container."""
    if not text:
        return []
    if wrong := port_name(text):
        return [invalid(field, text, detail) for detail in wrong]
    causes = [duplicate(field, text)] if text in seen else []
    seen.add(text)
    return causes


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
        elif operator != "Exists" and value:
            causes += [invalid(f"{at}.operator", value, detail) for detail in label_value(value)]
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
        causes += check_node_term(preferred.get("preference") or {}, f"{at}[{index}].preference")
    return causes


def _check_spread(constraints: list[Document], field: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, constraint in enumerate(constraints):
        at = f"{field}[{index}]"
        causes += check_spread_details(constraint, at, constraints[index + 1 :])
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
