"""What the classes that other objects name must say: RuntimeClass, IngressClass, VolumeAttributesClass."""

from __future__ import annotations

import re
from typing import Any, Final

from koordinator.api.document import Document, same
from koordinator.api.names import dns_label, dns_subdomain, path_segment
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import duplicate, forbidden, invalid, required, too_long
from koordinator.cluster.strategy.metadata import validate_labels
from koordinator.cluster.strategy.object_strategy import defaults_of
from koordinator.cluster.strategy.pod_validation import check_container_resources, check_tolerations
from koordinator.cluster.strategy.rules import IMMUTABLE, Rules, one_of, qualified, required_name

# Runtime classes.


_TOLERATION: Final = ("key", "operator", "value", "effect")


def runtime_class(obj: Document, old: Document | None) -> list[Cause]:
    handler = obj.get("handler") or ""
    causes = [invalid("handler", handler, detail) for detail in dns_label(handler)]
    if obj.get("overhead") is not None:
        causes += check_container_resources({"limits": obj["overhead"].get("podFixed")}, "overhead")
    if obj.get("scheduling") is not None:
        causes += validate_labels(obj["scheduling"].get("nodeSelector"), "scheduling.nodeSelector")
        causes += _tolerations(obj["scheduling"].get("tolerations") or [], "scheduling.tolerations")
    if old is not None and handler != (old.get("handler") or ""):
        causes.append(invalid("handler", handler, IMMUTABLE))
    return causes


def _tolerations(tolerations: list[Document], field: str) -> list[Cause]:
    causes = check_tolerations(tolerations, field)
    keys = [tuple(each.get(name) or "" for name in _TOLERATION) for each in tolerations]
    for index, (each, key) in enumerate(zip(tolerations, keys, strict=True)):
        if key in keys[:index]:
            # The real server shows the value in its own form.
            shown: Document = {name.title(): text for name, text in zip(_TOLERATION, key, strict=True)}
            shown["TolerationSeconds"] = each.get("tolerationSeconds")
            causes.append(duplicate(f"{field}[{index}]", shown))
    return causes


# Ingress classes.


_CONTROLLER_BYTES: Final = 250
_PATH: Final = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_PATH_PATTERN: Final = re.compile(_PATH)
_NOT_PREFIXED: Final = 'must be a domain-prefixed path (such as "acme.io/foo")'


@defaults_of("io.k8s.api.networking.v1.IngressClassParametersReference")
def _parameters(reference: Document) -> None:
    if reference.get("scope") is None:
        reference["scope"] = "Cluster"


def _controller(value: Any, field: str) -> list[Cause]:
    text = value or ""
    causes = [too_long(field, _CONTROLLER_BYTES)] if len(text.encode()) > _CONTROLLER_BYTES else []
    if not text:
        return [required(field)]
    host, _, path = text.partition("/")
    if not host or not path:
        return [*causes, invalid(field, text, _NOT_PREFIXED)]
    causes += [invalid(field, host, detail) for detail in dns_subdomain(host)]
    if not _PATH_PATTERN.fullmatch(path):
        causes.append(invalid(field, path, f"Invalid path (regex used for validation is '{_PATH}')"))
    return causes


def _group(value: Any, field: str) -> list[Cause]:
    return [] if value is None else [invalid(field, value, detail) for detail in dns_subdomain(value)]


_INGRESS_CLASS: Final = Rules(
    ("spec.controller", _controller),
    ("spec.parameters.apiGroup", _group),
    ("spec.parameters.kind", required_name(path_segment)),
    ("spec.parameters.name", required_name(path_segment)),
    ("spec.parameters.scope", one_of("Cluster", "Namespace")),
)


def ingress_class(obj: Document, old: Document | None) -> list[Cause]:
    controller = obj["spec"].get("controller") or ""
    causes = _INGRESS_CLASS.check(obj)
    if (parameters := obj["spec"].get("parameters")) is not None:
        causes += _namespace(parameters, "spec.parameters.namespace")
    if old is not None and controller != (old["spec"].get("controller") or ""):
        causes.insert(0, invalid("spec.controller", controller, IMMUTABLE))
    return causes


def _namespace(parameters: Document, field: str) -> list[Cause]:
    namespace = parameters.get("namespace")
    if parameters.get("scope") == "Cluster" and namespace is not None:
        return [forbidden(field, "`parameters.scope` is set to 'Cluster'")]
    if parameters.get("scope") != "Namespace":
        return []
    if namespace is None:
        return [required(field, "`parameters.scope` is set to 'Namespace'")]
    return [invalid(field, namespace, detail) for detail in dns_label(namespace)]


# Classes of volume attributes.


_MOST_PARAMETERS: Final = 512
_PARAMETER_BYTES: Final = 256 << 10


def _driver(value: Any, field: str) -> list[Cause]:
    return qualified(value, field) if value else [required(field)]


def _attributes(value: Any, field: str) -> list[Cause]:
    parameters: Document = value or {}
    if len(parameters) > _MOST_PARAMETERS:
        return [too_long(field, _MOST_PARAMETERS)]
    causes = [invalid(field, "", "field can not be empty.")] if "" in parameters else []
    if sum(len(key.encode()) + len(text.encode()) for key, text in parameters.items()) > _PARAMETER_BYTES:
        causes.append(too_long(field, _PARAMETER_BYTES))
    return causes if parameters else [*causes, required(field, "must contain at least one key/value pair")]


_ATTRIBUTES_CLASS: Final = Rules(("driverName", _driver), ("parameters", _attributes))


def volume_attributes_class(obj: Document, old: Document | None) -> list[Cause]:
    changed = [
        forbidden(field, f"updates to {field} are forbidden.")
        for field in ("driverName", "parameters")
        if old is not None and not same(obj.get(field), old.get(field))
    ]
    return changed + _ATTRIBUTES_CLASS.check(obj)
