"""What is wrong with objects that an API server would take in silence: labels that nothing reads, values that stand for
nothing, fields that no program knows. The rules for pods and for slo-controller-config are those of the webhooks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, get_args, get_origin

import msgspec

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from koordinator.api.codec import DecodeError, convert
from koordinator.api.manifests import custom_resource_definitions
from koordinator.api.meta import EXTENSIONS_MEMBER
from koordinator.api.pod import Pod
from koordinator.api.qos import QoSClass
from koordinator.api.slo_controller_config import DEFAULT_NAME
from koordinator.api.struct_fields import bare_type, struct_fields
from koordinator.base.spelling import did_you_mean, meant
from koordinator.manager.webhook.pod.rules import ColocationRules, DeviceResourceRules, PodReview, ReservedAnnotations
from koordinator.model.slo_configuration.admission_check import check_config_map
from koordinator.model.slo_configuration.configuration_keys import ALL_KEYS, ConfigurationKey
from koordinator.model.slo_configuration.refusal import RefusedConfigurationError

Document = Mapping[str, Any]
_POD_RULES: Final = (ColocationRules(), DeviceResourceRules(), ReservedAnnotations())
_DOMAINS: Final = ("koordinator.sh", "scheduling.sigs.k8s.io")
_EACH_NODES_OWN: Final = frozenset({"name", "nodeSelector"})
_JOB_TEMPLATE: Final = ("spec", "jobTemplate", "spec", "template")
_TEMPLATE: Final = ("spec", "template")


@dataclass(frozen=True, slots=True)
class Finding:
    """``path`` leads from the document to the field; ``inner`` goes on in the JSON text that the field holds."""

    path: str
    message: str
    inner: str = ""


def findings(document: Document, quotas: Collection[str] | None) -> Iterator[Finding]:
    """Everything that is wrong with one object. ``quotas``: the names of the quotas that there are; None where that is
    not known."""
    kind = document.get("kind")
    if kind == "ConfigMap" and _member(document, "metadata").get("name") == DEFAULT_NAME:
        yield from _of_configuration(_member(document, "data"))
        return
    if (schema := _schemas().get((str(document.get("apiVersion")), str(kind)))) is not None:
        yield from _unknown_in_schema(document, schema, "")
    yield from _of_keys(document, "")
    for path, pod in _pods(document):
        yield from _of_keys(pod, path) if path else ()
        yield from _of_pod(pod, path, quotas)


def quota_named(document: Document) -> str:
    """The name of the ElasticQuota that the document is; empty for any other object."""
    return str(_member(document, "metadata").get("name") or "") if document.get("kind") == "ElasticQuota" else ""


def _pods(document: Document) -> Iterator[tuple[str, Document]]:
    """The pod that the document is, or that its template makes, each with its path."""
    if document.get("kind") == "Pod":
        yield "", document
        return
    steps = _JOB_TEMPLATE if document.get("kind") == "CronJob" else _TEMPLATE
    found: Any = document
    for step in steps:
        found = found.get(step) if isinstance(found, dict) else None
    if isinstance(found, dict) and isinstance(found.get("spec"), dict):
        yield ".".join(steps), found


def _of_pod(pod: Document, path: str, quotas: Collection[str] | None) -> Iterator[Finding]:
    labels = _member(_member(pod, "metadata"), "labels")
    at = _below(path, "metadata.labels")
    qos = labels.get(label_keys.QOS_CLASS)
    if qos is not None and qos not in [each.value for each in QoSClass]:
        known = [each.value for each in QoSClass if each.value]
        yield Finding(
            f"{at}[{label_keys.QOS_CLASS}]",
            f"{qos!r} is no quality of service, the pod would have none: {', '.join(known)} are"
            f"{did_you_mean(str(qos), known)}",
        )
    quota = labels.get(label_keys.QUOTA_NAME)
    if quota is not None and quotas is not None and quota not in quotas:
        yield Finding(
            f"{at}[{label_keys.QUOTA_NAME}]",
            f"there is no quota {quota!r}, the pod would be of the default quota{did_you_mean(str(quota), quotas)}",
        )
    try:
        decoded = convert(_with_priority(pod), Pod)
    except DecodeError as error:
        yield Finding(path, str(error))
        return
    review = PodReview(pod=decoded, old=None, namespace=decoded.metadata.namespace or "default")
    for rule in _POD_RULES:
        yield from (Finding(_below(path, "metadata"), problem) for problem in rule.problems(review))


def _with_priority(pod: Document) -> dict[str, Any]:
    """The priority class by its label: an API server gives the pod the priority that the rules look at."""
    metadata, named = _member(pod, "metadata"), _member(pod, "spec").get("priorityClassName")
    if not named:
        return dict(pod)
    labels = {label_keys.PRIORITY_CLASS: named, **_member(metadata, "labels")}
    return {**pod, "metadata": {**metadata, "labels": labels}}


def _of_keys(document: Document, path: str) -> Iterator[Finding]:
    """Labels and annotations of our domains that no program reads, but a letter away from one that some does."""
    metadata = _member(document, "metadata")
    for member, known in (("labels", _keys_of(label_keys)), ("annotations", _keys_of(annotation_keys))):
        other = _keys_of(annotation_keys if member == "labels" else label_keys)
        for key in _member(metadata, member):
            if key in known or not _is_ours(str(key)):
                continue
            at = f"{_below(path, 'metadata')}.{member}[{key}]"
            if key in other:
                place = "annotations" if member == "labels" else "labels"
                yield Finding(at, f"it is read from {place}, not from {member}")
            elif near := meant(str(key), known):
                yield Finding(at, f"no program reads it; did you mean {near}?")


def _is_ours(key: str) -> bool:
    domain = key.partition("/")[0]
    return any(domain == each or domain.endswith(f".{each}") for each in _DOMAINS)


def _keys_of(module: Any) -> list[str]:
    return [value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)]


def _of_configuration(data: Mapping[str, Any]) -> Iterator[Finding]:
    """Of slo-controller-config: its keys, the fields of each, and what koord-manager's webhook would refuse."""
    by_name = {key.name: key for key in ALL_KEYS}
    for name, text in data.items():
        key = by_name.get(name)
        if key is None:
            if near := meant(str(name), by_name):
                yield Finding(f"data[{name}]", f"no program reads it; did you mean {near}?")
            continue
        try:
            check_config_map({name: text}, None, config_map=DEFAULT_NAME, names_required=False)
        except RefusedConfigurationError as error:
            yield Finding(f"data[{name}]", f"koord-manager would refuse it: {str(error).strip('_')}")
            continue
        for path, message in _unknown_in_key(key, msgspec.json.decode(text) if text else {}):
            yield Finding(f"data[{name}]", message, path)


def _unknown_in_key(key: ConfigurationKey[Any], document: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(document, dict):
        return
    groups = "nodeConfigs" if key.inline else "nodeStrategies"
    if key.inline:
        cluster = {name: each for name, each in document.items() if name != groups}
        yield from _unknown_in_struct(cluster, key.strategy, "")
    else:
        yield from _unknown_names(document, ("clusterStrategy", groups), "")
        yield from _unknown_in_struct(document.get("clusterStrategy"), key.strategy, "clusterStrategy")
    for index, entry in enumerate(document.get(groups) or ()):
        if isinstance(entry, dict):
            rest = {name: each for name, each in entry.items() if name not in _EACH_NODES_OWN}
            yield from _unknown_in_struct(rest, key.strategy, f"{groups}[{index}]")


def _unknown_in_struct(value: Any, expected: Any, path: str) -> Iterator[tuple[str, str]]:
    bare, _, _ = bare_type(expected)
    if isinstance(value, dict) and isinstance(bare, type) and issubclass(bare, msgspec.Struct):
        yield from _unknown_names(value, {*_wire_names(bare), EXTENSIONS_MEMBER}, path)
        for field in struct_fields(bare):
            yield from _unknown_in_struct(value.get(field.wire_name), field.type, _below(path, field.wire_name))
    elif isinstance(value, list) and get_origin(bare) is list:
        for index, item in enumerate(value):
            yield from _unknown_in_struct(item, get_args(bare)[0], f"{path}[{index}]")


def _unknown_names(value: Mapping[str, Any], known: Collection[str], path: str) -> Iterator[tuple[str, str]]:
    for name in value:
        if name not in known:
            yield _below(path, str(name)), f"no such field{did_you_mean(str(name), known)}"


def _wire_names(struct: type[msgspec.Struct]) -> list[str]:
    return [field.wire_name for field in struct_fields(struct)]


@cache
def _schemas() -> dict[tuple[str, str], Document]:
    """(apiVersion, kind) of each of our CustomResourceDefinitions -> its schema."""
    found = {}
    for definition in custom_resource_definitions():
        spec = definition["spec"]
        for version in spec["versions"]:
            api_version = f"{spec['group']}/{version['name']}"
            found[api_version, spec["names"]["kind"]] = version["schema"]["openAPIV3Schema"]
    return found


def _unknown_in_schema(value: Any, schema: Document, path: str) -> Iterator[Finding]:
    """An API server drops these fields without a word."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown_in_schema(item, schema.get("items") or {}, f"{path}[{index}]")
    properties = schema.get("properties")
    if not isinstance(value, dict) or not properties or schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    for name, each in value.items():
        at = _below(path, str(name))
        if name in properties:
            yield from _unknown_in_schema(each, properties[name], at)
        elif path or name not in ("apiVersion", "kind", "metadata"):
            yield Finding(at, f"no such field, it would be dropped{did_you_mean(str(name), properties)}")


def _member(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
