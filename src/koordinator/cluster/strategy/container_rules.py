"""What a container must say beside its name, image, ports and resources: probes, environment, mounts, security."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from koordinator.api.document import Document
from koordinator.api.names import data_key, dns_subdomain, port_name
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import duplicate, forbidden, invalid, not_found, not_supported, required
from koordinator.cluster.strategy.field_reference import environment_fields, field_reference, resource_reference
from koordinator.cluster.strategy.rules import (
    Rules,
    at_least,
    choice,
    name,
    name_or_empty,
    not_negative,
    one_of,
    one_of_if_set,
    port,
)

_HEADER: Final = re.compile("[-A-Za-z0-9]+")
_HEADER_RULE: Final = (
    "a valid HTTP header must consist of alphanumeric characters or '-' "
    "(e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')"
)
_ID: Final = "must be between 0 and 2147483647, inclusive"


def check_settings(container: Document, at: str, volumes: dict[str, Document], grace: Any) -> list[Cause]:
    """``volumes`` are those of the pod by name; ``grace`` is its termination period in seconds."""
    pod = _Pod(volumes, grace)
    return [
        cause
        for member, check in _CHECKS.items()
        if (value := container.get(member)) is not None
        for cause in check(value, f"{at}.{member}", pod)
    ]


class _Pod(NamedTuple):
    """What the checks of a container need of its pod."""

    volumes: dict[str, Document]
    grace: Any


# Environment.


def _environment(variables: list[Document], field: str, pod: _Pod) -> list[Cause]:
    return [
        cause
        for index, variable in enumerate(variables)
        if variable.get("valueFrom") is not None
        for cause in _value_from(variable, f"{field}[{index}].valueFrom")
    ]


def _value_from(variable: Document, field: str) -> list[Cause]:
    source = variable["valueFrom"]
    given = [key for key in _REFERENCES if source.get(key) is not None]
    if not given:
        detail = (
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        )
        return [invalid(field, "", detail)]
    if variable.get("value"):
        return [invalid(field, "", "may not be specified when `value` is not empty")]
    causes = [cause for key in given for cause in _reference(key, source[key], f"{field}.{key}")]
    if len(given) > 1:
        causes.append(invalid(field, "", "may not have more than one field specified at a time"))
    return causes


_REFERENCES: Final = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")


def _reference(key: str, reference: Document, field: str) -> list[Cause]:
    if key == "fieldRef":
        return field_reference(reference, field, environment_fields)
    if key == "resourceFieldRef":
        return resource_reference(reference, field, needs_container=False)
    if key == "fileKeyRef":
        return []
    return _named_key(reference, field)


def _named_key(reference: Document, field: str) -> list[Cause]:
    named, key = reference.get("name") or "", reference.get("key") or ""
    causes = name_or_empty(dns_subdomain)(named, f"{field}.name")
    return causes + (name(data_key)(key, f"{field}.key") if key else [required(f"{field}.key")])


def _env_from(sources: list[Document], field: str, pod: _Pod) -> list[Cause]:
    causes: list[Cause] = []
    for index, source in enumerate(sources):
        given = [key for key in ("configMapRef", "secretRef") if source.get(key) is not None]
        for key in given:
            at, named = f"{field}[{index}].{key}.name", source[key].get("name") or ""
            causes += name(dns_subdomain)(named, at) if named else [required(at)]
        # The real server leaves out the index.
        if not given:
            causes.append(invalid(field, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif len(given) > 1:
            causes.append(invalid(field, "", "may not have more than one field specified at a time"))
    return causes


# Mounts and devices.


def _mounts(mounts: list[Document], whole: str, pod: _Pod) -> list[Cause]:
    causes: list[Cause] = []
    paths: set[str] = set()
    for index, mount in enumerate(mounts):
        field, path = f"{whole}[{index}]", mount.get("mountPath") or ""
        named = mount.get("name") or ""
        causes += [] if named else [required(f"{field}.name")]
        if named not in pod.volumes:
            causes.append(not_found(f"{field}.name", named))
        if not path:
            causes.append(required(f"{field}.mountPath"))
        if path in paths:
            causes.append(invalid(f"{field}.mountPath", path, "must be unique"))
        paths.add(path)
        # The real server leaves out the index.
        causes += one_of_if_set("Bidirectional", "HostToContainer", "None")(
            mount.get("mountPropagation"), f"{whole}.mountPropagation"
        )
    return causes


def _devices(devices: list[Document], field: str, pod: _Pod) -> list[Cause]:
    causes: list[Cause] = []
    names: set[str] = set()
    paths: set[str] = set()
    for index, device in enumerate(devices):
        at, named, path = f"{field}[{index}]", device.get("name") or "", device.get("devicePath") or ""
        if not named:
            causes.append(required(f"{at}.name"))
        if named in names:
            causes.append(invalid(f"{at}.name", named, "must be unique"))
        names.add(named)
        volume = pod.volumes.get(named)
        if volume is None:
            causes.append(not_found(f"{at}.name", named))
        elif volume and not ({"persistentVolumeClaim", "ephemeral"} & volume.keys()):
            detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            causes.append(invalid(f"{at}.name", named, detail))
        causes += _device_path(path, paths, f"{at}.devicePath")
    return causes


def _device_path(path: str, seen: set[str], field: str) -> list[Cause]:
    if not path:
        return [required(field)]
    causes = [invalid(field, path, "must be unique")] if path in seen else []
    seen.add(path)
    return causes


# Probes and hooks.


_PROBE: Final = Rules(
    ("initialDelaySeconds", not_negative),
    ("timeoutSeconds", not_negative),
    ("periodSeconds", not_negative),
    ("successThreshold", not_negative),
    ("failureThreshold", not_negative),
    ("terminationGracePeriodSeconds", at_least(1, "must be greater than 0")),
)


def _probe(probe: Document, field: str, pod: _Pod, *, once: bool) -> list[Cause]:
    """``once``: one success is enough, so that no other number may be asked for."""
    causes = _handler(probe, field) + _PROBE.check(probe, field)
    if once and probe.get("successThreshold") != 1:
        causes.append(invalid(f"{field}.successThreshold", probe.get("successThreshold") or 0, "must be 1"))
    return causes


def _handler(handler: Document, field: str, *, sleeps: Any = None) -> list[Cause]:
    given = [key for key in ("exec", "httpGet", "tcpSocket", "grpc", "sleep") if handler.get(key) is not None]
    if not given:
        return [required(field, "must specify a handler type")]
    causes = [
        forbidden(f"{field}.{key}", "may not specify more than 1 handler type") for key in given[1:]
    ]  # fmt: skip
    key = given[0]
    action, at = handler[key], f"{field}.{key}"
    if key == "exec":
        return causes + ([] if action.get("command") else [required(f"{at}.command")])
    if key == "httpGet":
        return causes + _http_get(action, at)
    if key == "grpc":
        return causes + port(action.get("port"), f"{at}.port")
    if key == "tcpSocket":
        return causes + _port(action.get("port"), f"{at}.port")
    return causes + _sleep(action.get("seconds") or 0, sleeps, at)


def _port(value: Any, field: str) -> list[Cause]:
    return name_or_empty(port_name)(value, field) if isinstance(value, str) else port(value, field)


def _sleep(seconds: int, grace: Any, field: str) -> list[Cause]:
    if grace is None or 0 <= seconds <= grace:
        return []
    detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
    return [invalid(field, seconds, detail)]


def _http_get(action: Document, field: str) -> list[Cause]:
    causes = [] if action.get("path") else [required(f"{field}.path")]
    causes += _port(action.get("port"), f"{field}.port")
    causes += one_of("HTTP", "HTTPS")(action.get("scheme"), f"{field}.scheme")
    return causes + [
        invalid(f"{field}.httpHeaders", header.get("name") or "", _HEADER_RULE)
        for header in action.get("httpHeaders") or ()
        if not _HEADER.fullmatch(header.get("name") or "")
    ]


def _lifecycle(lifecycle: Document, field: str, pod: _Pod) -> list[Cause]:
    return [
        cause
        for hook in ("postStart", "preStop")
        if lifecycle.get(hook) is not None
        for cause in _handler(lifecycle[hook], f"{field}.{hook}", sleeps=pod.grace)
    ]


# Security and resizing.


def user_or_group(value: Any, field: str) -> list[Cause]:
    return [] if value is None or 0 <= value < 2**31 else [invalid(field, value, _ID)]


def seccomp(profile: Any, field: str) -> list[Cause]:
    if profile is None:
        return []
    kind = profile.get("type") or ""
    if not kind:
        return [required(f"{field}.type", "type is required when seccompProfile is set")]
    return choice("Localhost", "RuntimeDefault", "Unconfined")(kind, f"{field}.type")


_SECURITY: Final = Rules(
    ("runAsUser", user_or_group),
    ("runAsGroup", user_or_group),
    ("procMount", one_of_if_set("Default", "Unmasked")),
    ("seccompProfile", seccomp),
)


def _security(context: Document, field: str, pod: _Pod) -> list[Cause]:
    causes = _SECURITY.check(context, field)
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            causes.append(invalid(field, context, detail))
        if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
            detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            causes.append(invalid(field, context, detail))
    return causes


def _resize(policies: list[Document], field: str, pod: _Pod) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        resource, restart = policy.get("resourceName") or "", policy.get("restartPolicy") or ""
        if resource in seen:
            causes.append(duplicate(f"{field}[{index}]", resource))
        seen.add(resource)
        for value, allowed in ((resource, ("cpu", "memory")), (restart, ("NotRequired", "RestartContainer"))):
            if not value:
                causes.append(required(field))
            elif value not in allowed:
                causes.append(not_supported(field, value, allowed))
    return causes


_CHECKS: Final[dict[str, Callable[[Any, str, _Pod], list[Cause]]]] = {
    "env": _environment,
    "envFrom": _env_from,
    "volumeMounts": _mounts,
    "volumeDevices": _devices,
    "lifecycle": _lifecycle,
    "livenessProbe": partial(_probe, once=True),
    "readinessProbe": partial(_probe, once=False),
    "startupProbe": partial(_probe, once=True),
    "securityContext": _security,
    "resizePolicy": _resize,
}
SETTINGS: Final = frozenset(_CHECKS)
"""What ``check_settings`` looks at."""
