"""What the kinds of resource.k8s.io/v1 must say: claims of devices, and the slices that drivers publish them in."""

from __future__ import annotations

from typing import Any, Final

from koordinator.api.document import Document, same
from koordinator.api.names import c_identifier, dns_label, dns_subdomain
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import duplicate, invalid, not_supported, required, too_long
from koordinator.cluster.strategy.metadata import validate_labels
from koordinator.cluster.strategy.rules import IMMUTABLE, immutable, longest, required_name
from koordinator.cluster.strategy.storage_rules import driver_name

_ALLOCATION_MODES: Final = ("All", "ExactCount")
_POSITIVE: Final = "must be greater than zero"
_UNKNOWN_REQUEST: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)
_ONE_NODE: Final = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
_POOL_NAME_LIMIT: Final = 253
_IDENTIFIER_LIMIT: Final = 32


# Claims.


def resource_claim(obj: Document, old: Document | None) -> list[Cause]:
    if old is None:
        return _claim_spec(obj["spec"], "spec")
    return [] if same(obj["spec"], old["spec"]) else [invalid("spec", obj["spec"], IMMUTABLE)]


def resource_claim_template(obj: Document, old: Document | None) -> list[Cause]:
    template = obj["spec"]
    causes = validate_labels((template.get("metadata") or {}).get("labels"), "spec.metadata.labels")
    causes += _claim_spec(template["spec"], "spec.spec")
    if old is not None and not same(template, old["spec"]):
        causes.append(invalid("spec", template, IMMUTABLE))
    return causes


def _claim_spec(spec: Document, field: str) -> list[Cause]:
    devices = spec["devices"]
    causes: list[Cause] = []
    names: set[str] = set()
    for index, request in enumerate(devices.get("requests") or ()):
        at, named = f"{field}.devices.requests[{index}]", request.get("name") or ""
        causes += _request(request, at)
        if named in names:
            causes.append(duplicate(at, named))
        names.add(named)
        for sub in request.get("firstAvailable") or ():
            names.add(f"{named}/{sub.get('name') or ''}")
    for index, constraint in enumerate(devices.get("constraints") or ()):
        causes += _constraint(constraint, names, f"{field}.devices.constraints[{index}]")
    return causes


def _request(request: Document, field: str) -> list[Cause]:
    named, exactly = request.get("name") or "", request.get("exactly")
    causes = [invalid(f"{field}.name", named, detail) for detail in dns_label(named)]
    alternatives = request.get("firstAvailable") or []
    if exactly is None and not alternatives:
        causes.append(required(field, "exactly one of `exactly` or `firstAvailable` is required"))
    elif exactly is not None and alternatives:
        causes.append(
            invalid(
                field, None, "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"
            )
        )
    elif exactly is not None:
        causes += _exact_request(exactly, f"{field}.exactly")
    for index, sub in enumerate(alternatives):
        at = f"{field}.firstAvailable[{index}]"
        causes += [invalid(f"{at}.name", sub.get("name") or "", detail) for detail in dns_label(sub.get("name") or "")]
        causes += _exact_request(sub, at)
    return causes


def _exact_request(request: Document, field: str) -> list[Cause]:
    causes = required_name(dns_subdomain)(request.get("deviceClassName"), f"{field}.deviceClassName")
    mode, count = request.get("allocationMode") or "", request.get("count") or 0
    if mode == "All" and count:
        causes.append(invalid(f"{field}.count", count, "must not be specified when allocationMode is 'All'"))
    elif mode == "ExactCount" and count <= 0:
        causes.append(invalid(f"{field}.count", count, _POSITIVE))
    elif mode not in _ALLOCATION_MODES:
        causes.append(not_supported(f"{field}.allocationMode", mode, _ALLOCATION_MODES))
    return causes


def _constraint(constraint: Document, names: set[str], field: str) -> list[Cause]:
    causes: list[Cause] = []
    requests = constraint.get("requests") or []
    for index, named in enumerate(requests):
        at = f"{field}.requests[{index}]"
        for part in (named or "").split("/")[:2]:
            causes += [invalid(at, named or "", detail) for detail in dns_label(part)]
        if named not in names:
            causes.append(invalid(at, named or "", _UNKNOWN_REQUEST))
        if named in requests[:index]:
            causes.append(duplicate(at, named))
    if constraint.get("distinctAttribute") is not None:
        return causes
    attribute = constraint.get("matchAttribute")
    at = f"{field}.matchAttribute"
    return causes + (_fully_qualified(attribute, at) if attribute is not None else [required(at)])


def _fully_qualified(text: str, field: str) -> list[Cause]:
    domain, slash, name = text.partition("/")
    if not slash:
        detail = "a fully qualified name must be a domain and a name separated by a slash"
        return [*_identifier(text, field), invalid(field, text, detail)]
    causes = [invalid(field, domain, wrong) for wrong in dns_subdomain(domain)] if domain else [required(field)]
    return causes + (_identifier(name, field) if name else [required(field)])


def _identifier(text: str, field: str) -> list[Cause]:
    return longest(_IDENTIFIER_LIMIT)(text, field) + [invalid(field, text, wrong) for wrong in c_identifier(text)]


# Slices.


_NODE_FIELDS: Final = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")


def resource_slice(obj: Document, old: Document | None) -> list[Cause]:
    spec = obj["spec"]
    causes = (
        immutable(obj, old, ("spec.pool.name", "spec.driver", "spec.nodeName"), ("spec.pool.name", "spec.driver"))
        if old is not None
        else []
    )
    causes += driver_name(spec.get("driver"), "spec.driver") + _pool(spec["pool"], "spec.pool") + _node(spec)
    names: set[str] = set()
    for index, device in enumerate(spec.get("devices") or ()):
        field, named = f"spec.devices[{index}]", device.get("name") or ""
        causes += [invalid(f"{field}.name", named, detail) for detail in dns_label(named)]
        if named in names:
            causes.append(duplicate(field, named))
        names.add(named)
        causes += _attributes(device.get("attributes") or {}, f"{field}.attributes")
    return causes


def _pool(pool: Document, field: str) -> list[Cause]:
    named, generation, count = pool.get("name") or "", pool.get("generation") or 0, pool.get("resourceSliceCount") or 0
    causes = [] if named else [required(f"{field}.name")]
    if len(named) > _POOL_NAME_LIMIT:
        causes.append(too_long(f"{field}.name", _POOL_NAME_LIMIT))
    if named:
        causes += [
            invalid(f"{field}.name", part, detail) for part in named.split("/") for detail in dns_subdomain(part)
        ]
    if count <= 0:
        causes.append(invalid(f"{field}.resourceSliceCount", count, _POSITIVE))
    if generation < 0:
        causes.append(invalid(f"{field}.generation", generation, "must be greater than or equal to zero"))
    return causes


def _node(spec: Document) -> list[Cause]:
    named = spec.get("nodeName")
    causes: list[Cause] = []
    if named == "":
        causes.append(invalid("spec.nodeName", "", "must be either unset or set to a non-empty string"))
    elif named:
        causes += [invalid("spec.nodeName", named, detail) for detail in dns_subdomain(named)]
    given = [name for name in _NODE_FIELDS if spec.get(name)]
    if len(given) == 1:
        return causes
    if not given:
        return [*causes, required("spec", _ONE_NODE)]
    listed = ", ".join(f"`{name}`" for name in given)
    return [*causes, invalid("spec", f"{{{listed}}}", f"{_ONE_NODE}, but multiple fields are set")]


def _attributes(attributes: dict[str, Any], field: str) -> list[Cause]:
    causes: list[Cause] = []
    for name, value in attributes.items():
        given = [kind for kind in ("int", "bool", "string", "version") if (value or {}).get(kind) is not None]
        if len(given) != 1:
            shown = value if given else ""
            causes.append(invalid(f"{field}[{name}]", shown, "exactly one value must be specified"))
    return causes
