"""What `koord lint` finds in one object: typing mistakes, fields that an API server would drop, and what the webhooks
of koord-manager, or a program at its start, would refuse."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any, Final

from koordinator.api import labels as label_keys
from koordinator.api.codec import DecodeError, convert
from koordinator.api.colocation_profile import ClusterColocationProfile
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.kubernetes_types.table import named
from koordinator.api.manifests import custom_resource_definitions
from koordinator.api.pod import Pod
from koordinator.api.slo_controller_config import DEFAULT_NAME
from koordinator.base.errors import ConfigurationError
from koordinator.base.spelling import did_you_mean
from koordinator.base.strict_yaml import load_document
from koordinator.manager.options import PodEnhancedValidatorOptions
from koordinator.manager.webhook.colocation_profile.compiled import compile_profile
from koordinator.manager.webhook.elastic_quota.changes import check_itself
from koordinator.manager.webhook.elastic_quota.settings import QuotaRefused
from koordinator.manager.webhook.elastic_quota.validating import unreadable_annotations
from koordinator.manager.webhook.pod.enhanced_rules import parse_enhanced_rules
from koordinator.manager.webhook.pod.rules import ColocationRules, DeviceResourceRules, PodReview, ReservedAnnotations
from koordinator.model.slo_configuration.admission_check import check_config_map
from koordinator.model.slo_configuration.configuration_keys import ALL_KEYS
from koordinator.model.slo_configuration.refusal import RefusedConfigurationError
from koordinator.model.typing_mistakes import (
    Document,
    Mistake,
    below,
    member,
    mistakes_of,
    mistakes_of_configuration,
    pods_of,
)

_SCHEDULER: Final = "KubeSchedulerConfiguration"
_DESCHEDULER: Final = "DeschedulerConfiguration"
_IN_CONFIG_MAPS: Final = {"koord-scheduler-config": _SCHEDULER, "koord-descheduler-config": _DESCHEDULER}
_POD_RULES_IN: Final = PodEnhancedValidatorOptions().config_name
_POD_RULES: Final = (ColocationRules(), DeviceResourceRules(), ReservedAnnotations())


def findings(document: Document, quotas: Collection[str] | None) -> Iterator[Mistake]:
    """Everything that is wrong with one object. ``quotas``: the names of the quotas that there are; None where that is
    not known."""
    kind = document.get("kind")
    if kind == "ConfigMap" and member(document, "metadata").get("name") == DEFAULT_NAME:
        yield from _of_configuration(member(document, "data"))
        return
    yield from _of_programs(document)
    if (schema := _schemas().get((str(document.get("apiVersion")), str(kind)))) is not None:
        yield from _unknown_in_schema(document, schema, "")
    yield from mistakes_of(document, quotas)
    for path, pod in pods_of(document):
        yield from _refused(pod, path)
    match kind:
        case "ElasticQuota":
            yield from _of_quota(document)
        case "ClusterColocationProfile":
            yield from _of_profile(document)


def quota_named(document: Document) -> str:
    """The name of the ElasticQuota that the document is; empty for any other object."""
    return str(member(document, "metadata").get("name") or "") if document.get("kind") == "ElasticQuota" else ""


def _of_programs(document: Document) -> Iterator[Mistake]:
    """The error that a program would end with, of its configuration in a file or in a ConfigMap."""
    kind = document.get("kind")
    if kind in _IN_CONFIG_MAPS.values():
        yield from _unusable(document, str(kind))
    if kind == "ConfigMap" and member(document, "metadata").get("name") == _POD_RULES_IN:
        try:
            parse_enhanced_rules(member(document, "data"))
        except ConfigurationError as error:
            yield Mistake(error.field, f"{error.value!r} is not usable: {error.allowed}")
    for key, text in member(document, "data").items() if kind == "ConfigMap" else ():
        if key in _IN_CONFIG_MAPS and isinstance(text, str):
            at = f"data[{key}]"
            try:
                inner = load_document(text, at, _IN_CONFIG_MAPS[key])
            except ConfigurationError as error:
                yield Mistake(at, f"{error.value!r} is not usable: {error.allowed}")
            else:
                found = _unusable(inner, _IN_CONFIG_MAPS[key])
                yield from (Mistake(at, mistake.message, mistake.path) for mistake in found)


def _unusable(document: Document, kind: str) -> Iterator[Mistake]:
    # Loaded where there is such a document: every start of a command would pay for the plugins of both programs.
    from koordinator.descheduler.catalogue import Catalogue
    from koordinator.descheduler.configuration import loading as descheduler
    from koordinator.descheduler.main import BUILT_IN
    from koordinator.scheduler.configuration import loading as scheduler

    try:
        if kind == _SCHEDULER:
            scheduler.resolve(document, "")
        else:
            descheduler.resolve(document, "", Catalogue(BUILT_IN))
    except ConfigurationError as error:
        yield Mistake(error.field, f"{error.value!r} is not usable: {error.allowed}")


def _refused(pod: Document, path: str) -> Iterator[Mistake]:
    try:
        decoded = convert(_with_priority(pod), Pod)
    except DecodeError as error:
        yield Mistake(path, str(error))
        return
    review = PodReview(pod=decoded, old=None, namespace=decoded.metadata.namespace or "default")
    for rule in _POD_RULES:
        yield from (Mistake(below(path, "metadata"), problem) for problem in rule.problems(review))


def _with_priority(pod: Document) -> dict[str, Any]:
    """The priority class by its label: an API server gives the pod the priority that the rules look at."""
    metadata, named = member(pod, "metadata"), member(pod, "spec").get("priorityClassName")
    if not named:
        return dict(pod)
    labels = {label_keys.PRIORITY_CLASS: named, **member(metadata, "labels")}
    return {**pod, "metadata": {**metadata, "labels": labels}}


def _of_quota(document: Document) -> Iterator[Mistake]:
    """Of the quota by itself; its parent and its children may be elsewhere."""
    try:
        quota = convert(document, ElasticQuota)
        check_itself(quota)
    except (DecodeError, QuotaRefused) as error:
        yield Mistake("spec", f"koord-manager would refuse it: {error}")
    else:
        yield from (Mistake("metadata.annotations", text) for text in unreadable_annotations(quota))


def _of_profile(document: Document) -> Iterator[Mistake]:
    try:
        profile = convert(document, ClusterColocationProfile)
    except DecodeError as error:
        yield Mistake("spec", str(error))
        return
    for problem in compile_profile(profile, named("io.k8s.api.core.v1.Pod")).problems:
        yield Mistake(problem.path, f"{problem.message}; the profile would not be applied")


def _of_configuration(data: Mapping[str, Any]) -> Iterator[Mistake]:
    """Of slo-controller-config. What koord-manager would refuse in a key goes before the fields that it does not
    know."""
    refused = set()
    for key in ALL_KEYS:
        try:
            text = data.get(key.name)
            check_config_map({key.name: text} if text else {}, None, config_map=DEFAULT_NAME, names_required=False)
        except RefusedConfigurationError as error:
            refused.add(key.name)
            yield Mistake(f"data[{key.name}]", f"koord-manager would refuse it: {str(error).strip('_')}")
    yield from mistakes_of_configuration({name: text for name, text in data.items() if name not in refused})


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


def _unknown_in_schema(value: Any, schema: Document, path: str) -> Iterator[Mistake]:
    """An API server drops these fields without a word."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown_in_schema(item, schema.get("items") or {}, f"{path}[{index}]")
    properties = schema.get("properties")
    if not isinstance(value, dict) or not properties or schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    for name, each in value.items():
        at = below(path, str(name))
        if name in properties:
            yield from _unknown_in_schema(each, properties[name], at)
        elif path or name not in ("apiVersion", "kind", "metadata"):
            yield Mistake(at, f"no such field, it would be dropped{did_you_mean(str(name), properties)}")
