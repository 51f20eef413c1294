"""The cases of ``cases.py`` on one server, with responses that can be compared with another's."""

from __future__ import annotations

import json
import time
from pathlib import Path

from koordinator.api.document import Document, copied
from tests.cluster.admission_policies.cases import MARKER, NAMESPACE, Case, config_map, make
from tests.cluster.admission_webhooks.api_server import ApiServer, HttpResponse

_REGISTRATION = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
_BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
_SETTLE_SECONDS = 30.0
RECORDED: Document = json.loads((Path(__file__).parent / "responses.json").read_text())
"""What kube-apiserver v1.35 said."""


class Speaker:
    """Whoever talks to one server."""

    def __init__(self, kubeconfig: Path) -> None:
        self._api = ApiServer(kubeconfig)
        self._api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})

    def policy(self, spec: Document) -> Document:
        """What the server says of a policy that does not come to be."""
        return self._dry("ValidatingAdmissionPolicy", _REGISTRATION, spec)

    def binding(self, spec: Document) -> Document:
        return self._dry("ValidatingAdmissionPolicyBinding", _BINDINGS, spec)

    def _dry(self, kind: str, path: str, spec: Document) -> Document:
        body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "a"}, "spec": spec}
        return _heard(self._api.request("POST", f"{path}?dryRun=All", body))

    def case(self, name: str, case: Case) -> list[Document]:
        for request in case.before:
            self._api.request(request.method, request.path, request.body)
        self._bind(name, case)
        try:
            return [_heard(self._api.request(each.method, each.path, each.body)) for each in case.requests]
        finally:
            self._release(name)
            for request in case.before:
                self._api.request("DELETE", f"{request.path}/{request.body['metadata']['name']}")

    def _bind(self, name: str, case: Case) -> None:
        spec = copied(case.policy)
        constraints = spec.setdefault("matchConstraints", {"resourceRules": [copied(_CREATED)]})
        constraints["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
        constraints["objectSelector"] = {"matchExpressions": [{"key": MARKER, "operator": "DoesNotExist"}]}
        policy = {"metadata": {"name": name}, "spec": spec}
        binding = {
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"], **case.binding},
        }
        for path, body in ((_REGISTRATION, policy), (_BINDINGS, binding), *self._marking(name)):
            response = self._api.request("POST", path, body)
            assert response.code == 201, response.message
        self._await(f"marked {name}")

    def _marking(self, name: str) -> list[tuple[str, Document]]:
        """A policy that is last in force, and shows it."""
        validation = {"expression": f"object.metadata.name != '{MARKER}'", "message": f"marked {name}"}
        constraints = {"resourceRules": [copied(_CREATED)]}
        spec = {"matchConstraints": constraints, "validations": [validation]}
        bound = {"policyName": f"0-{name}", "validationActions": ["Deny"]}
        return [(_REGISTRATION, {"metadata": {"name": f"0-{name}"}, "spec": spec}),
                (_BINDINGS, {"metadata": {"name": f"0-{name}"}, "spec": bound})]  # fmt: skip

    def _release(self, name: str) -> None:
        for path in (_BINDINGS, _REGISTRATION):
            for each in (name, f"0-{name}"):
                self._api.request("DELETE", f"{path}/{each}")
        self._await("")

    def _await(self, said: str) -> None:
        end = time.monotonic() + _SETTLE_SECONDS
        while True:
            body = config_map(MARKER)
            body["metadata"]["labels"] = {MARKER: "true"}
            response = self._api.request("POST", make(MARKER).path, body)
            if (said and said in response.message) or (not said and response.code == 201):
                return
            assert time.monotonic() < end, f"the server did not follow the policies in time: {response.message}"
            time.sleep(0.05)


_CREATED: Document = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}


def _heard(response: HttpResponse) -> Document:
    reported: Document = {"code": response.code}
    if response.warnings:
        reported["warnings"] = response.warnings
    if response.code >= 400:
        causes = (response.body.get("details") or {}).get("causes") or []
        reported["reason"] = response.body.get("reason")
        reported["causes"] = [[cause.get(name) or "" for name in ("reason", "field", "message")] for cause in causes]
        reported["message"] = response.message
    return reported
