"""What volumes, claims and the kinds of CSI drivers must say, and what of them no update may change."""

from __future__ import annotations

from typing import Any, Final

from koordinator.api.document import Document, copied, same
from koordinator.api.names import NameCheck, dns_subdomain, label_key
from koordinator.api.quantity import Quantity
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import duplicate, forbidden, invalid, not_supported, required
from koordinator.cluster.strategy.node_selector import check_node_selector
from koordinator.cluster.strategy.rules import (
    IMMUTABLE,
    Check,
    Rule,
    Rules,
    at_least,
    checked,
    longest,
    name,
    name_or_empty,
    not_negative,
    one_of,
    one_of_if_set,
    optional,
    qualified,
    selector,
)

_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES: Final = ("Block", "Filesystem")
_HOST_PATHS: Final = (
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket",
)  # fmt: skip
_DRIVER_NAME_LIMIT: Final = 63
_NODE_ID_LIMIT: Final = 256


# Claims and volumes.


def _access_modes(detail: str) -> Rule:
    def check(modes: Any, field: str) -> list[Cause]:
        if not modes:
            return [required(field, detail)]
        causes = [not_supported(field, mode, _MODES) for mode in modes if mode not in _MODES]
        if len(set(modes)) > 1 and "ReadWriteOncePod" in modes:
            causes.append(forbidden(field, "may not use ReadWriteOncePod with other access modes"))
        return causes

    return check


def _amount(text: str, field: str) -> list[Cause]:
    amount = Quantity.parse(text).nanos
    causes = [invalid(field, text, "must be greater than or equal to 0")] if amount < 0 else []
    return [*causes, invalid(field, text, "must be greater than zero")] if amount <= 0 else causes


def _requested(requests: Any, field: str) -> list[Cause]:
    # The real server leaves ``requests`` out of the path.
    at_storage = f"{field.removesuffix('.requests')}[storage]"
    amount = (requests or {}).get("storage")
    return [required(at_storage)] if amount is None else _amount(amount, at_storage)


_CLAIM: Final = Rules(
    ("spec.accessModes", _access_modes("at least 1 access mode is required")),
    ("spec.selector", selector),
    ("spec.resources.requests", _requested),
    ("spec.storageClassName", name(dns_subdomain)),
    ("spec.volumeMode", one_of_if_set(*_VOLUME_MODES)),
)
claim_spec: Final = Rules(
    ("accessModes", _access_modes("at least 1 access mode is required")),
    ("selector", selector),
    ("resources.requests", _requested),
    ("storageClassName", name(dns_subdomain)),
    ("volumeMode", one_of_if_set(*_VOLUME_MODES)),
)
"""Of a claim in a template."""


def claim(obj: Document, old: Document | None) -> list[Cause]:
    causes = _CLAIM.check(obj)
    return causes if old is None else causes + _claim_update(obj, old) + _claim_size(obj, old)


def _claim_update(obj: Document, old: Document) -> list[Cause]:
    spec, before = copied(obj["spec"]), old["spec"]
    if not before.get("volumeName"):
        spec.pop("volumeName", None)
    if before.get("storageClassName") is None:
        # The empty name is one: that of no class.
        spec.pop("storageClassName", None)
    spec.pop("volumeAttributesClassName", None)
    if (old.get("status") or {}).get("phase") == "Bound":
        spec["resources"] = {**spec["resources"], "requests": before["resources"].get("requests")}
    kept = {name: value for name, value in before.items() if name != "volumeAttributesClassName"}
    detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
    return ([] if same(spec, kept) else [forbidden("spec", detail)]) + _kept_mode(obj, old)


def _kept_mode(obj: Document, old: Document) -> list[Cause]:
    mode = obj["spec"].get("volumeMode")
    return [] if mode == old["spec"].get("volumeMode") else [invalid("volumeMode", mode, IMMUTABLE)]


def _claim_size(obj: Document, old: Document) -> list[Cause]:
    """A request shrinks at most to more than the claim has got."""
    requested, before, capacity = (
        Quantity.parse((amounts or {}).get("storage") or "0").nanos
        for amounts in (
            obj["spec"]["resources"].get("requests"),
            old["spec"]["resources"].get("requests"),
            (old.get("status") or {}).get("capacity"),
        )
    )
    is_too_little = requested < before and requested <= capacity
    why = "field can not be less than status.capacity"
    return [forbidden("spec.resources.requests.storage", why)] if is_too_little else []


def _capacity(amounts: Any, field: str) -> list[Cause]:
    causes = [] if amounts else [required(field)]
    if set(amounts or ()) != {"storage"}:
        causes.append(not_supported(field, amounts, ("storage",)))
    for name_, text in (amounts or {}).items():
        causes += _amount(text, f"{field}[{name_}]")
    return causes


def host_path(source: Any, field: str) -> list[Cause]:
    """Of a volume on the node's own file system."""
    if source is None:
        return []
    path, kind = source.get("path") or "", source.get("type") or ""
    if not path:
        return [required(f"{field}.path")]
    causes: list[Cause] = []
    if ".." in path.split("/"):
        causes.append(invalid(f"{field}.path", path, "must not contain '..'"))
    return causes if kind in _HOST_PATHS else [*causes, not_supported(f"{field}.type", kind, _HOST_PATHS)]


def _node_affinity(affinity: Any, field: str) -> list[Cause]:
    if affinity is None:
        return []
    if affinity.get("required") is None:
        return [required(f"{field}.required", "must specify required node constraints")]
    return check_node_selector(affinity["required"], f"{field}.required")


_VOLUME: Final = Rules(
    ("spec.accessModes", _access_modes("")),
    ("spec.capacity", _capacity),
    ("spec.persistentVolumeReclaimPolicy", one_of_if_set("Delete", "Recycle", "Retain")),
    ("spec.nodeAffinity", _node_affinity),
    ("spec.hostPath", host_path),
    ("spec.storageClassName", name(dns_subdomain)),
    ("spec.volumeMode", one_of_if_set(*_VOLUME_MODES)),
)
_VOLUME_SETTINGS: Final = frozenset(
    {
        "accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity", "persistentVolumeReclaimPolicy",
        "storageClassName", "volumeAttributesClassName", "volumeMode",
    }
)  # fmt: skip
"""The fields of a volume beside those that say where it is."""


def volume(obj: Document, old: Document | None) -> list[Cause]:
    causes = _VOLUME.check(obj)
    sources = _sources(obj["spec"])
    if not sources:
        causes.append(required("spec", "must specify a volume type"))
    if old is None:
        return causes
    if not same(sources, _sources(old["spec"])):
        field = "spec.persistentvolumesource"
        causes.append(forbidden(field, f"{field} is immutable after creation"))
    causes += _kept_mode(obj, old)
    affinity, before = obj["spec"].get("nodeAffinity"), old["spec"].get("nodeAffinity")
    if before is not None and not same(affinity, before):
        causes.append(invalid("nodeAffinity", affinity, f"{IMMUTABLE}, except for updating from beta label to GA"))
    return causes


def _sources(spec: Document) -> Document:
    return {name_: value for name_, value in spec.items() if name_ not in _VOLUME_SETTINGS}


# Storage classes.


def _topologies(terms: Any, field: str) -> list[Cause]:
    causes: list[Cause] = []
    seen: list[dict[str, frozenset[str]]] = []
    for index, term in enumerate(terms or ()):
        where = f"{field}[{index}].matchLabelExpressions"
        values: dict[str, frozenset[str]] = {}
        for position, expression in enumerate(term.get("matchLabelExpressions") or ()):
            causes += _expression(expression, f"{where}[{position}]", values)
        # An empty term is taken for one that has been there before.
        if not values or values in seen:
            causes.append(duplicate(where, ""))
        seen.append(values)
    return causes


def _expression(expression: Document, field: str, seen: dict[str, frozenset[str]]) -> list[Cause]:
    key, values = expression.get("key") or "", expression.get("values") or []
    causes = [] if values else [required(f"{field}.values")]
    causes += [
        duplicate(f"{field}.values[{index}]", value) for index, value in enumerate(values) if value in values[:index]
    ]
    causes += [invalid(f"{field}.key", key, detail) for detail in label_key(key)]
    if key in seen:
        causes.append(duplicate(f"{field}.key", key))
    seen[key] = frozenset(values)
    return causes


def _provisioner(value: Any, field: str) -> list[Cause]:
    return qualified(value, field) if value else [required(field)]


def _binding_mode(value: Any, field: str) -> list[Cause]:
    return [required(field)] if value is None else one_of("Immediate", "WaitForFirstConsumer")(value, field)


_CLASS: Final = Rules(
    ("provisioner", _provisioner),
    ("reclaimPolicy", optional("Delete", "Retain")),
    ("volumeBindingMode", _binding_mode),
    ("allowedTopologies", _topologies),
)


def _class_update(obj: Document, old: Document | None) -> list[Cause]:
    return [
        forbidden(field, f"updates to {field} are forbidden.")
        for field in ("parameters", "provisioner", "reclaimPolicy")
        if old is not None and not same(obj.get(field), old.get(field))
    ]


storage_class: Final[Check] = checked(_CLASS, _class_update, frozen=("volumeBindingMode",))


# CSI drivers.


def _driver_name(check: NameCheck) -> Rule:
    def rule(value: Any, field: str) -> list[Cause]:
        causes = [] if value else [required(field)]
        causes += longest(_DRIVER_NAME_LIMIT)(value, field)
        return causes + ([invalid(field, value, detail) for detail in check(value.lower())] if value else [])

    return rule


driver_name: Final = _driver_name(dns_subdomain)


def _token_requests(requests: Any, field: str) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, request in enumerate(requests or ()):
        audience, seconds = request.get("audience") or "", request.get("expirationSeconds")
        if audience in seen:
            causes.append(duplicate(f"{field}[{index}].audience", audience))
        seen.add(audience)
        if seconds is not None and seconds < 600:
            detail = "may not specify a duration less than 10 minutes"
            causes.append(invalid(f"{field}[{index}].expirationSeconds", seconds, detail))
        if seconds is not None and seconds > 1 << 32:
            detail = "may not specify a duration larger than 2^32 seconds"
            causes.append(invalid(f"{field}[{index}].expirationSeconds", seconds, detail))
    return causes


def _lifecycles(modes: Any, field: str) -> list[Cause]:
    allowed = ("Persistent", "Ephemeral")
    return [not_supported(field, mode, allowed) for mode in modes or () if mode not in allowed]


_DRIVER: Final = Rules(
    ("spec.fsGroupPolicy", one_of_if_set("File", "None", "ReadWriteOnceWithFSType")),
    ("spec.tokenRequests", _token_requests),
    ("spec.volumeLifecycleModes", _lifecycles),
)


def csi_driver(obj: Document, old: Document | None) -> list[Cause]:
    causes = _DRIVER.check(obj)
    if old is None:
        return causes
    # The real server calls the first of these by another name.
    for field, shown in (("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")):
        if not same(obj["spec"].get(field), old["spec"].get(field)):
            causes.append(invalid(f"spec.{shown}", obj["spec"].get(field), IMMUTABLE))
    return causes


_NODE_DRIVER: Final = Rules(
    ("name", driver_name),
    ("nodeID", lambda value, field: _node_id(value or "", field)),
    ("allocatable.count", not_negative),
)


def _node_id(value: str, field: str) -> list[Cause]:
    if not value:
        return [required(field)]
    return [invalid(field, value, "must be 256 characters or less")] if len(value) > _NODE_ID_LIMIT else []


def csi_node(obj: Document, old: Document | None) -> list[Cause]:
    causes: list[Cause] = []
    drivers = obj["spec"].get("drivers") or []
    names: set[str] = set()
    for index, driver in enumerate(drivers):
        field = f"spec.drivers[{index}]"
        causes += _NODE_DRIVER.check(driver, field)
        causes += _topology_keys(driver.get("topologyKeys") or [], field)
        named = driver.get("name") or ""
        if named in names:
            causes.append(duplicate(f"{field}.name", named))
        names.add(named)
    before = {driver.get("name"): driver for driver in (old["spec"].get("drivers") or [] if old is not None else [])}
    return causes + [
        invalid("spec.drivers", driver, IMMUTABLE)
        for driver in drivers
        if driver.get("name") in before and not same(_fixed(driver), _fixed(before[driver.get("name")]))
    ]


def _fixed(driver: Document) -> Document:
    """How many volumes a node takes may change."""
    return {name_: value for name_, value in driver.items() if name_ != "allocatable"}


def _topology_keys(keys: list[str], field: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, key in enumerate(keys):
        causes += [] if key else [required(field)]
        causes += [duplicate(field, key)] if key in keys[:index] else []
        causes += [invalid(field, key, detail) for detail in label_key(key)]
    return causes


def _attachment_source(source: Any, field: str) -> list[Cause]:
    source = source or {}
    inline, named = source.get("inlineVolumeSpec"), source.get("persistentVolumeName")
    if (inline is None) == (named is None):
        return [required(field, "must specify exactly one of inlineVolumeSpec and persistentVolumeName")]
    detail = "must specify non empty persistentVolumeName"
    return [required(f"{field}.persistentVolumeName", detail)] if named == "" else []


_ATTACHMENT: Final = Rules(
    ("spec.attacher", lambda value, field: [] if value else [required(field)]),
    ("spec.source", _attachment_source),
    ("spec.nodeName", name_or_empty(dns_subdomain)),
)


def _attacher(obj: Document, old: Document | None) -> list[Cause]:
    spec = obj["spec"]
    if old is not None:
        return []
    causes = driver_name(spec["attacher"], "spec.attacher") if spec.get("attacher") else []
    named = (spec.get("source") or {}).get("persistentVolumeName")
    if named is None:
        return causes
    return causes + name_or_empty(dns_subdomain)(named, "spec.source.persistentVolumeName")


volume_attachment: Final[Check] = checked(_ATTACHMENT, _attacher, frozen=("spec",))


def _not_negative_amount(value: Any, field: str) -> list[Cause]:
    return at_least(0, "must be greater than or equal to 0")(Quantity.parse(value).nanos, field) if value else []


_CAPACITY: Final = Rules(
    ("nodeTopology", selector),
    ("storageClassName", name_or_empty(dns_subdomain)),
    ("capacity", _not_negative_amount),
    ("maximumVolumeSize", _not_negative_amount),
)
csi_storage_capacity: Final[Check] = checked(
    _CAPACITY, frozen=("nodeTopology", "storageClassName"), texts=("storageClassName",)
)
