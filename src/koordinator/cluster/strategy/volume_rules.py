"""What the volumes of a pod must say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.names import dns_subdomain
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import go_quoted, invalid, required
from koordinator.cluster.strategy.field_reference import downward_fields, field_reference, resource_reference
from koordinator.cluster.strategy.rules import name
from koordinator.cluster.strategy.storage_rules import claim_spec, driver_name, host_path

_MODE: Final = "must be a number between 0 and 0777 (octal), both inclusive"
_MAX_MODE: Final = 0o777
_LEAST_SECONDS: Final = 600
SourceCheck = Callable[[Document, Document, str], list[Cause]]
"""From the source of a volume and the spec of its pod to what is wrong with the source."""


def check_volume(volume: Document, spec: Document, field: str) -> list[Cause]:
    """What is wrong with where a volume comes from."""
    causes: list[Cause] = []
    for source, check in _SOURCES.items():
        found = volume.get(source)
        if found is not None:
            causes += check(found, spec, f"{field}.{source}")
    return causes


def check_own_claims(pod: str, spec: Document, field: str) -> list[Cause]:
    """The claims that ephemeral volumes make are named after the pod, which may make their names too long."""
    return [
        invalid(f"{field}[{index}].name", volume["name"], f"PVC name {go_quoted(claimed)}: {detail}")
        for index, volume in enumerate(spec.get("volumes") or ())
        if pod and volume.get("name") and volume.get("ephemeral") is not None
        for claimed in (f"{pod}-{volume['name']}",)
        for detail in dns_subdomain(claimed)
    ]


def _mode(value: Any, field: str) -> list[Cause]:
    return [] if value is None or 0 <= value <= _MAX_MODE else [invalid(field, value, _MODE)]


def _keys(items: list[Document], field: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, item in enumerate(items):
        at = f"{field}[{index}]"
        if not item.get("key"):
            causes.append(required(f"{at}.key"))
        causes += _relative(item.get("path") or "", f"{at}.path") + _mode(item.get("mode"), f"{at}.mode")
    return causes


def _relative(path: str, field: str) -> list[Cause]:
    if not path:
        return [required(field)]
    causes = []
    if path.startswith("/"):
        causes.append(invalid(field, path, "must be a relative path"))
    if ".." in path.split("/"):
        causes.append(invalid(field, path, "must not contain '..'"))
    elif path.startswith(".."):
        causes.append(invalid(field, path, "must not start with '..'"))
    return causes


def _of_object(key: str) -> SourceCheck:
    """A ConfigMap, or a Secret, whose name has another field."""

    def check(source: Document, spec: Document, field: str) -> list[Cause]:
        causes = [] if source.get(key) else [required(f"{field}.{key}")]
        return (
            causes
            + _mode(source.get("defaultMode"), f"{field}.defaultMode")
            + _keys(source.get("items") or [], f"{field}.items")
        )

    return check


def _projected(source: Document, spec: Document, field: str) -> list[Cause]:
    causes = _mode(source.get("defaultMode"), f"{field}.defaultMode")
    for index, projection in enumerate(source.get("sources") or ()):
        at = f"{field}.sources[{index}]"
        for key in ("secret", "configMap"):
            found = projection.get(key)
            if found is not None:
                causes += [] if found.get("name") else [required(f"{at}.{key}.name")]
                causes += _keys(found.get("items") or [], f"{at}.{key}.items")
        for position, item in enumerate((projection.get("downwardAPI") or {}).get("items") or ()):
            causes += _downward_file(item, f"{at}.downwardAPI.items[{position}]")
        if projection.get("serviceAccountToken") is not None:
            causes += _token(projection["serviceAccountToken"], spec, field, f"{at}.serviceAccountToken")
    return causes


def _token(token: Document, spec: Document, volume: str, field: str) -> list[Cause]:
    causes: list[Cause] = []
    seconds = token.get("expirationSeconds")
    at = f"{field}.expirationSeconds"
    if seconds is not None and seconds < _LEAST_SECONDS:
        causes.append(invalid(at, seconds, "may not specify a duration less than 10 minutes"))
    if seconds is not None and seconds > 1 << 32:
        causes.append(invalid(at, seconds, "may not specify a duration larger than 2^32 seconds"))
    # The real server names the volume here, not the source.
    return causes + _relative(token.get("path") or "", f"{volume}.path")


def _downward(source: Document, spec: Document, field: str) -> list[Cause]:
    causes = _mode(source.get("defaultMode"), f"{field}.defaultMode")
    for item in source.get("items") or ():
        causes += _downward_file(item, field)
    return causes


def _downward_file(item: Document, field: str) -> list[Cause]:
    causes = _relative(item.get("path") or "", f"{field}.path")
    of_pod, of_resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if of_pod is not None:
        causes += field_reference(of_pod, f"{field}.fieldRef", downward_fields)
        if of_resource is not None:
            causes.append(
                invalid(field, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
            )
    elif of_resource is not None:
        causes += resource_reference(of_resource, f"{field}.resourceFieldRef", needs_container=True)
    else:
        causes.append(required(field, "one of fieldRef and resourceFieldRef is required"))
    return causes + _mode(item.get("mode"), f"{field}.mode")


def _claim(source: Document, spec: Document, field: str) -> list[Cause]:
    return [] if source.get("claimName") else [required(f"{field}.claimName")]


def _csi(source: Document, spec: Document, field: str) -> list[Cause]:
    causes = driver_name(source.get("driver"), f"{field}.driver")
    secret = source.get("nodePublishSecretRef")
    if secret is None:
        return causes
    if not secret.get("name"):
        return [*causes, required(f"{field}.nodePublishSecretRef.name")]
    return causes + name(dns_subdomain)(secret["name"], f"{field}.name")


def _ephemeral(source: Document, spec: Document, field: str) -> list[Cause]:
    template = source.get("volumeClaimTemplate")
    at = f"{field}.volumeClaimTemplate"
    return [required(at)] if template is None else claim_spec.check(template.get("spec") or {}, f"{at}.spec")


_SOURCES: Final[dict[str, SourceCheck]] = {
    "hostPath": lambda source, spec, field: host_path(source, field),
    "secret": _of_object("secretName"),
    "persistentVolumeClaim": _claim,
    "downwardAPI": _downward,
    "configMap": _of_object("name"),
    "projected": _projected,
    "csi": _csi,
    "ephemeral": _ephemeral,
}
