"""The files of the Helm chart that are made: templates from the types, or from the templates beside this module, and
what templates have to know of the values.

The others are written by hand in ``charts/koordinator``; tests/chart/test_chart.py holds what they render to what
`koord manifests` prints.
"""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path
from typing import Any, Final

import yaml

import koordinator
from koordinator.api.annotations import WEBHOOK_TEMPLATE
from koordinator.api.manifests import custom_resource_definitions
from koordinator.api.manifests.labels import labelled, name_and_component
from koordinator.api.manifests.monitoring import monitoring_files
from koordinator.api.manifests.slo_values import slo_schema
from koordinator.api.manifests.webhooks import webhook_configurations
from koordinator.api.manifests.yaml_text import GENERATED, generated_text

_CHART: Final = "Chart.yaml"
_SCHEMA: Final = "values.schema.json"
_NAMESPACE: Final = "{{ $values.installation.namespace | quote }}"
_KEEP: Final = "helm.sh/resource-policy"
_POLICIES: Final = {
    "melasticquota": "elasticquotas",
    "mnode-status": "nodeStatus",
    "mpod-create": "pods",
    "mpod-update": "pods",
    "mreservation-create": "reservations",
    "velasticquota": "elasticquotas",
    "vnode": "nodes",
    "vpod": "pods",
}
"""Webhook -> the value below ``webhookConfiguration.failurePolicy``; the others have one of their own."""
_ACCOUNT: Final = f"kind: ServiceAccount\nmetadata:\n  name: koord-manager\n  namespace: {_NAMESPACE}\n"
_ACCOUNT_ANNOTATIONS: Final = """\
  {{- with $values.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
"""
_READ_EVENTS: Final = "    resources: [events]\n    verbs: [list, watch, create, patch]\n"
"""Of koord-manager alone, for the audit."""
_READ_EVENTS_IF_AUDITED: Final = _READ_EVENTS.replace(
    "list, watch, ", "{{ if $values.manager.audit.maxMegabytes }}list, watch, {{ end }}"
)
_ANY_DEPLOYMENT: Final = "or $values.scheduler.enabled $values.manager.enabled $values.descheduler.enabled"
_RBAC: Final = {
    "koord-descheduler": "$values.descheduler.enabled",
    "koord-explain": _ANY_DEPLOYMENT,
    "koord-manager": "$values.manager.enabled",
    "koord-manager-feature-gates": 'and $values.manager.enabled (or (include "koordinator.gate" '
    '(list $values.featureGates "ColocationProfileController")) '
    '(has "--quota-update-conflict-fresh-get" $values.manager.extraArgs))',
    "koord-manager-recommender": 'and $values.manager.enabled (include "koordinator.gate" '
    '(list $values.featureGates "Recommender"))',
    "koord-page": "$values.dashboard.enabled",
    "koord-scheduler": "$values.scheduler.enabled",
    "koordlet": "$values.koordlet.enabled",
    "koordlet-confinement": "and $values.koordlet.enabled (.Capabilities.APIVersions.Has "
    '"admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy")',
    "secure-ports": _ANY_DEPLOYMENT,
}
"""The permissions of a program -> when they are granted."""


_VALUES: Final = '{{- $values := include "koordinator.values" . | fromJson }}\n'
"""The start of a template; charts/koordinator/templates/_values.tpl says what it is for."""

_STORAGE: Final = """\
{{{{- /* A version in which objects are stored can only be taken away by hand. A release of before that knew but one
       could not be rolled back to any more. */}}}}
{{{{- $versions := dig "status" "storedVersions" list $live }}}}
{{{{- $stored := ternary (first $versions) "{newest}" (eq (len $versions) 1) }}}}
"""


def chart_files(chart: Path) -> dict[str, str]:
    """Path below the folder of the chart -> text."""
    schema = values_schema(json.loads((chart / _SCHEMA).read_text()))
    templates = {f"templates/{name}": text for name, text in _templates().items()}
    return (
        templates
        | monitoring_files()
        | {
            _CHART: _of_this_version((chart / _CHART).read_text()),
            _SCHEMA: json.dumps(schema, indent=2) + "\n",
            "known-values.yaml": known_values(yaml.safe_load((chart / "values.yaml").read_text()), schema),
        }
    )


def _of_this_version(chart: str) -> str:
    """The chart has the version of the package, and so have the images that it names; the rest is written by hand."""
    return re.sub(r"^((?:appV|v)ersion:) .*$", rf"\1 {koordinator.__version__}", chart, flags=re.MULTILINE)


def values_schema(written: dict[str, Any]) -> dict[str, Any]:
    """The schema of the values, whose ``slo`` and what that refers to are made; the rest is written by hand."""
    slo, definitions = slo_schema()
    by_hand = {name: each for name, each in written["$defs"].items() if name[0].islower()}
    return {**written, "$defs": by_hand | definitions, "properties": {**written["properties"], "slo": slo}}


def known_values(defaults: dict[str, Any], schema: dict[str, Any]) -> str:
    """What Helm gives to no template of its own: the defaults, and the names that values may have."""
    names = _names(schema, schema.get("$defs", {}))
    text = yaml.safe_dump({"defaults": defaults, "names": names}, sort_keys=False, width=120)
    return f"# Written by `make manifests` from values.yaml and values.schema.json; change those instead.\n{text}"


def _names(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any] | None:
    """The names in a mapping; None for what is one value: its schema does not leave other names to the templates."""
    schema = definitions[schema["$ref"].removeprefix("#/$defs/")] if "$ref" in schema else schema
    if "properties" not in schema or "additionalProperties" in schema:
        return None
    return {name: _names(each, definitions) for name, each in schema["properties"].items()}


def _templates() -> dict[str, str]:
    files = {
        f"crd/{definition['spec']['group']}_{definition['spec']['names']['plural']}.yaml": _definition(definition)
        for definition in custom_resource_definitions()
    }
    files |= {f"rbac/{name}.yaml": _rbac(name, condition) for name, condition in _RBAC.items()}
    files["crd/_resources.tpl"] = _custom_resources()
    files["webhook-configurations.yaml"] = _webhooks()
    files["priority-classes.yaml"] = _priority_classes()
    files["gpu-shared-resource-templates.yaml"] = _when(
        "$values.scheduler.enabled", _template("config-maps/gpu-shared-resource-templates.yaml")
    )
    return {path: labelled(text, _labels(path)) for path, text in files.items()}


def _labels(path: str) -> str:
    name, component = name_and_component(path)
    return f'    {{{{- include "koordinator.labels" (list . "{name}" "{component}") | nindent 4 }}}}\n'


def _template(path: str) -> str:
    text = (resources.files(__package__) / "templates" / path).read_text("utf-8")
    return text.replace("${namespace}", _NAMESPACE)


def _when(condition: str, text: str, definitions: str = "") -> str:
    return f"{_VALUES}{definitions}{{{{- if {condition} }}}}\n{GENERATED}{text.removeprefix(GENERATED)}{{{{- end }}}}\n"


def _custom_resources() -> str:
    """For `helm test`: GROUP/VERSION/PLURAL of each."""
    paths = [
        f"{spec['group']}/{version['name']}/{spec['names']['plural']}"
        for spec in (definition["spec"] for definition in custom_resource_definitions())
        for version in spec["versions"]
    ]
    return (
        "{{/* Written by `make manifests` from koordinator.api: what the definitions define. */}}\n"
        '{{- define "koordinator.customResources" -}}\n' + "\n".join(paths) + "\n{{- end -}}\n"
    )


def _definition(definition: dict[str, Any]) -> str:
    """One that is part of the release stays so, whatever the values say: Helm would delete it, with all its objects."""
    metadata = definition["metadata"]
    kept = {**definition, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), _KEEP: "keep"}}}
    line = f"    {_KEEP}: keep\n"
    wanted = f"and $values.crds.managed $values.crds.{definition['spec']['names']['plural']}"
    text = _literally(generated_text(kept)).replace(
        line, f"    {{{{- if or $values.crds.keep (not ({wanted})) }}}}\n{line}    {{{{- end }}}}\n"
    )
    live = f'{{{{- $live := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "{metadata["name"]}" }}}}\n'
    names = [version["name"] for version in definition["spec"]["versions"]]
    if len(names) > 1:
        live += _STORAGE.format(newest=names[-1])
        for name in names:
            text = re.sub(
                rf"(- name: {name}\n    served: true\n    storage:) \w+", rf'\1 {{{{ eq $stored "{name}" }}}}', text
            )
    return _when(f'or ({wanted}) (include "koordinator.isReleased" (list . $live))', text, live)


def _priority_classes() -> str:
    """Those that are part of the release stay so: without its class no pod that names it can be created."""
    parts = []
    for document in _template("priority-classes.yaml").split("---\n"):
        (name,) = re.findall(r"^  name: (\S+)$", document, re.MULTILINE)
        live = f'lookup "scheduling.k8s.io/v1" "PriorityClass" "" "{name}"'
        kept = "{{- if not $values.priorityClasses.managed }}\n  annotations:\n    " + _KEEP + ": keep\n  {{- end }}\n"
        parts.append(
            f'{{{{- if or $values.priorityClasses.managed (include "koordinator.isReleased" (list . ({live}))) }}}}\n'
            + document.replace(f"  name: {name}\n", f"  name: {name}\n  {kept}")
            + "{{- end }}\n"
        )
    return _VALUES + GENERATED + "---\n".join(parts)


def _literally(text: str) -> str:
    """What Helm renders to the text itself."""
    return text.replace("{{", '{{ "{{" }}')


def _rbac(name: str, condition: str) -> str:
    text = _template(f"rbac/{name}.yaml").replace(_ACCOUNT, _ACCOUNT + _ACCOUNT_ANNOTATIONS)
    return _when(condition, text.replace(_READ_EVENTS, _READ_EVENTS_IF_AUDITED))


def _webhooks() -> str:
    """The entries are in the annotation from which koord-manager takes them: without the gate of a webhook it leaves
    its entry out. Before a koord-manager serves them, there is none for the API server to call."""
    parts = []
    for configuration in webhook_configurations("@namespace@"):
        for entry in configuration["webhooks"]:
            policy = _POLICIES.get(entry["name"].removesuffix(".koordinator.sh"))
            if policy is not None:
                entry["failurePolicy"] = f"{{{{ $values.webhookConfiguration.failurePolicy.{policy} }}}}"
            entry["timeoutSeconds"] = "@timeout@"
        entries = _literal_block(json.dumps(configuration["webhooks"], indent=2))
        parts.append(
            f"apiVersion: {configuration['apiVersion']}\n"
            f"kind: {configuration['kind']}\n"
            f"metadata:\n"
            f"  name: {configuration['metadata']['name']}\n"
            f"  annotations:\n"
            f"    {WEBHOOK_TEMPLATE}: |\n{entries}"
        )
    text = "---\n".join(parts).replace("@namespace@", "{{ $values.installation.namespace }}")
    return _when(
        "$values.manager.enabled", text.replace('"@timeout@"', "{{ $values.webhookConfiguration.timeoutSeconds }}")
    )


def _literal_block(text: str) -> str:
    return "".join(f"      {line}\n" for line in text.splitlines())
