"""The templates of the Helm chart that are made from the types, or from the templates beside this module.

The others are written by hand in ``charts/koordinator/templates``; tests/chart/test_chart.py holds what they render to
what `koord manifests` prints.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any, Final

from koordinator.api.annotations import WEBHOOK_TEMPLATE
from koordinator.api.manifests import custom_resource_definitions
from koordinator.api.manifests.webhooks import webhook_configurations
from koordinator.api.manifests.yaml_text import GENERATED, generated_text

_NAMESPACE: Final = "{{ .Values.installation.namespace | quote }}"
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
  {{- with .Values.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
"""
_RBAC: Final = {
    "koord-descheduler": ".Values.descheduler.enabled",
    "koord-manager": ".Values.manager.enabled",
    "koord-manager-recommender": 'and .Values.manager.enabled (include "koordinator.gate" '
    '(list .Values.featureGates "Recommender"))',
    "koord-scheduler": ".Values.scheduler.enabled",
    "koordlet": ".Values.koordlet.enabled",
}
"""The permissions of a program -> when they are granted."""


def chart_files() -> dict[str, str]:
    """Path below ``charts/koordinator/templates`` -> text."""
    files = {
        f"crd/{definition['spec']['group']}_{definition['spec']['names']['plural']}.yaml": _definition(definition)
        for definition in custom_resource_definitions()
    }
    files |= {f"rbac/{name}.yaml": _rbac(name, condition) for name, condition in _RBAC.items()}
    files["webhook-configurations.yaml"] = _webhooks()
    files["priority-classes.yaml"] = GENERATED + _template("priority-classes.yaml")
    files["gpu-shared-resource-templates.yaml"] = _when(
        ".Values.scheduler.enabled", _template("config-maps/gpu-shared-resource-templates.yaml")
    )
    return files


def _template(path: str) -> str:
    text = (resources.files(__package__) / "templates" / path).read_text("utf-8")
    return text.replace("${namespace}", _NAMESPACE)


def _when(condition: str, text: str) -> str:
    return f"{{{{- if {condition} }}}}\n{GENERATED}{text.removeprefix(GENERATED)}{{{{- end }}}}\n"


def _definition(definition: dict[str, Any]) -> str:
    metadata = definition["metadata"]
    kept = {**definition, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), _KEEP: "keep"}}}
    line = f"    {_KEEP}: keep\n"
    text = _literally(generated_text(kept)).replace(
        line, f"    {{{{- if .Values.crds.keep }}}}\n{line}    {{{{- end }}}}\n"
    )
    plural = definition["spec"]["names"]["plural"]
    return _when(f"and .Values.crds.managed .Values.crds.{plural}", text)


def _literally(text: str) -> str:
    """What Helm renders to the text itself."""
    return text.replace("{{", '{{ "{{" }}')


def _rbac(name: str, condition: str) -> str:
    return _when(condition, _template(f"rbac/{name}.yaml").replace(_ACCOUNT, _ACCOUNT + _ACCOUNT_ANNOTATIONS))


def _webhooks() -> str:
    """The entries are in the annotation from which koord-manager takes them: without the gate of a webhook it leaves
    its entry out. Before a koord-manager serves them, there is none for the API server to call."""
    parts = []
    for configuration in webhook_configurations("@namespace@"):
        for entry in configuration["webhooks"]:
            policy = _POLICIES.get(entry["name"].removesuffix(".koordinator.sh"))
            if policy is not None:
                entry["failurePolicy"] = f"{{{{ .Values.webhookConfiguration.failurePolicy.{policy} }}}}"
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
    text = "---\n".join(parts).replace("@namespace@", "{{ .Values.installation.namespace }}")
    return _when(
        ".Values.manager.enabled", text.replace('"@timeout@"', "{{ .Values.webhookConfiguration.timeoutSeconds }}")
    )


def _literal_block(text: str) -> str:
    return "".join(f"      {line}\n" for line in text.splitlines())
