"""The Node authorizer: a kubelet may do what it must for its node and the pods on it, and reads nothing of others."""

from __future__ import annotations

from typing import Final

from koordinator.api.node import LEASE_NAMESPACE
from koordinator.cluster.access.authorizer import Authorizer
from koordinator.cluster.access.bootstrap import bootstrap_objects
from koordinator.cluster.access.identity import User
from koordinator.cluster.access.node_graph import NodeGraph
from koordinator.cluster.access.policy import RBAC_GROUP, Decision, Policy
from koordinator.cluster.access.rules import AccessRequest, PolicyRule

NODES: Final = "system:nodes"
"""The group of kubelets."""
_PREFIX: Final = "system:node:"
_ROLE: Final = "system:node"
_READ: Final = ("get", "list", "watch")
_WRITE: Final = ("get", "create", "update", "patch", "delete")
OWN_LEASE_ONLY: Final = "can only access node lease with the same name as the requesting node"
NODE_LEASES_ONLY: Final = f'can only access leases in the "{LEASE_NAMESPACE}" system namespace'
OWN_CSI_NODE_ONLY: Final = "can only access CSINode with the same name as the requesting node"
_NO_RULES: Final = "node authorizer does not support user rule resolution"


def node_of(user: User) -> str | None:
    """The name of the node whose kubelet the user is; None for all others."""
    return user.name.removeprefix(_PREFIX) if user.name.startswith(_PREFIX) and NODES in user.groups else None


class NodesAndRoles:
    """Implements ``Authorizer``: kubelets by what belongs to their nodes, and everybody by roles."""

    permits_all = False

    def __init__(self, graph: NodeGraph, roles: Authorizer) -> None:
        self._graph = graph
        self._roles = roles
        self._rules = _node_rules()

    def decide(self, user: User, request: AccessRequest) -> Decision:
        node = node_of(user)
        if node is None:
            return self._roles.decide(user, request)
        refusal = self._refusal(node, user, request) if node else f'unknown node for user "{user.name}"'
        if refusal is None:
            return Decision(True)
        decision = self._roles.decide(user, request)
        if decision.allowed:
            return decision
        return Decision(False, "\n".join(reason for reason in (refusal, decision.reason) if reason))

    def rules_for(self, user: User, namespace: str) -> tuple[list[PolicyRule], list[str]]:
        rules, missing = self._roles.rules_for(user, namespace)
        return rules, missing if node_of(user) is None else [_NO_RULES, *missing]

    def _refusal(self, node: str, user: User, request: AccessRequest) -> str | None:
        """Why the node authorizer does not permit a request, which may be no reason at all; None when it does."""
        kind, verb, subresource = (request.group, request.resource), request.verb, request.subresource
        match kind:
            case ("", "secrets" | "configmaps"):
                return self._readable(node, request)
            case ("", "serviceaccounts"):
                return (
                    self._readable(node, request) if verb == "get" and not subresource else self._token(node, request)
                )
            case ("", "persistentvolumeclaims") if subresource == "status":
                refused = "can only get/update/patch this type"
                return self._related(node, request) if verb in ("update", "patch") else refused
            case (
                ("", "persistentvolumeclaims" | "persistentvolumes")
                | ("resource.k8s.io", "resourceclaims")
                | ("storage.k8s.io", "volumeattachments")
            ):
                return self._gettable(node, request)
            case ("coordination.k8s.io", "leases"):
                return _lease_refusal(node, request)
            case ("storage.k8s.io", "csinodes"):
                return _csi_node_refusal(node, request)
            case ("resource.k8s.io", "resourceslices"):
                return self._slice(node, request)
            case ("", "nodes"):
                return _node_refusal(node, request)
            case ("", "pods"):
                return self._pod(node, request)
        return None if self._rules.decide(user, request).allowed else ""

    def _related(self, node: str, request: AccessRequest) -> str | None:
        if not request.name:
            return "No Object name found"
        if self._graph.belongs(node, request.resource, request.namespace, request.name):
            return None
        return f"no relationship found between node '{node}' and this object"

    def _readable(self, node: str, request: AccessRequest) -> str | None:
        if request.verb not in _READ:
            return "can only read resources of this type"
        if request.subresource:
            return "cannot read subresource"
        if not request.namespace:
            return "can only read namespaced object of this type"
        return self._related(node, request)

    def _gettable(self, node: str, request: AccessRequest) -> str | None:
        if request.verb != "get":
            return "can only get individual resources of this type"
        return "cannot get subresource" if request.subresource else self._related(node, request)

    def _token(self, node: str, request: AccessRequest) -> str | None:
        if request.verb != "create" or not request.name:
            return "can only create tokens for individual service accounts"
        if request.subresource != "token":
            return "can only create token subresource of serviceaccount"
        return self._related(node, request)

    def _slice(self, node: str, request: AccessRequest) -> str | None:
        if request.subresource:
            return "cannot authorize ResourceSlice subresources"
        if request.verb == "create":
            return None
        if request.verb in ("get", "update", "patch", "delete"):
            return self._related(node, request)
        if request.verb in ("watch", "list", "deletecollection"):
            refused = "can only list/watch/deletecollection resourceslices with nodeName field selector"
            return None if request.node == node else refused
        return (
            "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, "
            "delete, deletecollection"
        )

    def _pod(self, node: str, request: AccessRequest) -> str | None:
        match request.subresource, request.verb:
            case "", "get":
                return self._gettable(node, request)
            case "", "list" | "watch":
                if request.node == node:
                    return None
                refused = "can only list/watch pods with spec.nodeName field selector"
                return self._related(node, request) if request.name else refused
            case ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create"):
                return None
        return ""


def _node_refusal(node: str, request: AccessRequest) -> str | None:
    match request.subresource, request.verb:
        case ("", "create" | "update" | "patch") | ("status", "update" | "patch"):
            return None
        case "", "get" | "list" | "watch":
            if request.name == node:
                return None
            wanted = f"'{request.name}'" if request.name else "all nodes"
            return f"node '{node}' cannot read {wanted}, only its own Node object"
    return ""


def _lease_refusal(node: str, request: AccessRequest) -> str | None:
    if request.verb not in _WRITE:
        return "can only get, create, update, patch, or delete a node lease"
    if request.namespace != LEASE_NAMESPACE:
        return NODE_LEASES_ONLY
    return None if request.verb == "create" or request.name == node else OWN_LEASE_ONLY


def _csi_node_refusal(node: str, request: AccessRequest) -> str | None:
    if request.verb not in _WRITE:
        return "can only get, create, update, patch, or delete a CSINode"
    if request.subresource:
        return "cannot authorize CSINode subresources"
    return None if request.verb == "create" or request.name == node else OWN_CSI_NODE_ONLY


def _node_rules() -> Policy:
    """What is not a matter of the single object: the rules of the role that no binding gives to anybody."""
    (role,) = [
        each.document
        for each in bootstrap_objects()
        if each.document["metadata"]["name"] == _ROLE and "rules" in each.document
    ]
    reference = {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": _ROLE}
    subjects = [{"apiGroup": RBAC_GROUP, "kind": "Group", "name": NODES}]
    policy = Policy()
    policy.put("clusterroles", role)
    policy.put("clusterrolebindings", {"metadata": {"name": _ROLE}, "roleRef": reference, "subjects": subjects})
    return policy
