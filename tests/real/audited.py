"""A control plane that grants what roles say, and keeps books of what is requested of it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.real.control_plane import SERVES_WORKLOADS, ControlPlane

NAMESPACE = "koordinator-system"
TOKEN = "programtoken"
_ROLES = Path(__file__).resolve().parents[2] / "config/rbac"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
_PATHS = {
    "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
    "ClusterRole": f"{_RBAC}/clusterroles",
    "ClusterRoleBinding": f"{_RBAC}/clusterrolebindings",
    "Role": f"{_RBAC}/namespaces/{NAMESPACE}/roles",
    "RoleBinding": f"{_RBAC}/namespaces/{NAMESPACE}/rolebindings",
    "MutatingWebhookConfiguration": f"{_REGISTRATION}/mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": f"{_REGISTRATION}/validatingwebhookconfigurations",
}
Right = tuple[str, str, str]
"""Verb, group, resource (with a subresource after a slash)."""


class Audited:
    """One program's rights, as its file in config/rbac has them, and what it has done with them."""

    def __init__(self, plane: ControlPlane, log: Path, files: Sequence[str]) -> None:
        self.plane = plane
        self._log = log
        texts = [(_ROLES / f"{file}.yaml").read_text() for file in files]
        self._documents = [document for text in texts for document in yaml.safe_load_all(text)]

    @property
    def kubeconfig(self) -> Path:
        """Of the program's service account."""
        return self.plane.kubeconfig_for(TOKEN)

    def create(self, path: str, document: dict[str, Any]) -> None:
        status, response = self.plane.request("POST", path, document)
        assert status == 201, f"{path}: {response.get('message')}"

    def install(self, *more: dict[str, Any]) -> None:
        """The roles, and ``more``."""
        for document in (*self._documents, *more):
            self.create(_PATHS[document["kind"]], document)

    def granted(self, but_for: Collection[str] = ()) -> set[Right]:
        """All rights, without those of the ClusterRoles that are named."""
        rights = set()
        for document in self._documents:
            if document["metadata"]["name"] in but_for:
                continue
            for rule in document.get("rules", ()):
                for group in rule["apiGroups"]:
                    rights |= {(verb, group, resource) for verb in rule["verbs"] for resource in rule["resources"]}
        return rights

    def used(self) -> set[Right]:
        rights = set()
        for entry in self._entries():
            about = entry.get("objectRef")
            if about is not None:
                subresource = f"/{about['subresource']}" if "subresource" in about else ""
                rights.add((entry["verb"], about.get("apiGroup", ""), about["resource"] + subresource))
        return rights

    def idle(self, but_for: Collection[str] = ()) -> set[Right]:
        """What nobody has made use of yet. A watch is in the books once it has ended: with the process."""
        return {right for right in self.granted(but_for) - self.used() if right[0] != "watch"}

    def refused(self) -> list[str]:
        return [
            f"{entry['verb']} {entry['requestURI']}"
            for entry in self._entries()
            if entry.get("responseStatus", {}).get("code") in (401, 403)
        ]

    def _entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_text().splitlines()] if self._log.exists() else []


@contextmanager
def audited(programs: Path, folder: Path, program: str, *more: str) -> Iterator[Audited]:
    """A control plane in RBAC mode that keeps books of the service account named like ``program``. Its rights are in
    the file of that name, and in ``more`` files."""
    user = f"system:serviceaccount:{NAMESPACE}:{program}"
    policy, log = folder / "policy.yaml", folder / "audit.log"
    rules = [{"level": "Metadata", "users": [user]}]
    stages = ["RequestReceived", "ResponseStarted", "Panic"]
    document = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": stages, "rules": rules}
    policy.write_text(yaml.safe_dump(document))
    with ControlPlane(
        programs,
        folder / "cluster",
        authorization_mode="RBAC",
        tokens={TOKEN: (user, ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}"))},
        extra_arguments=(
            *(f"--audit-policy-file={policy}", f"--audit-log-path={log}", "--audit-log-mode=blocking"),
            *SERVES_WORKLOADS,
        ),
    ) as plane:
        yield Audited(plane, log, (program, *more))
