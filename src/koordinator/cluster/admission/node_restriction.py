"""NodeRestriction: a kubelet changes its own Node, the pods that are bound to it, and nothing that draws others there.

What it may do at all is a matter of the Node authorizer, beside which this plugin runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from cryptography import x509
from cryptography.x509.oid import NameOID

from koordinator.api.annotations import CONFIG_MIRROR
from koordinator.api.document import Document, same
from koordinator.api.node import LEASE_NAMESPACE
from koordinator.cluster.access.node_authorizer import NODE_LEASES_ONLY, OWN_CSI_NODE_ONLY, OWN_LEASE_ONLY, node_of
from koordinator.cluster.access.node_graph import references
from koordinator.cluster.admission.chain import Plugin, refused
from koordinator.cluster.errors import ApiError, not_found
from koordinator.cluster.strategy.causes import go_quoted
from koordinator.cluster.strategy.certificate_request import GROUP, parsed_request
from koordinator.cluster.verbs.environment import Attributes, GroupResource

_RESTRICTED: Final[tuple[GroupResource, ...]] = (
    ("", "pods"), ("", "nodes"), ("", "persistentvolumeclaims"), ("", "serviceaccounts"),
    ("coordination.k8s.io", "leases"), ("storage.k8s.io", "csinodes"), ("resource.k8s.io", "resourceslices"),
    (GROUP, "certificatesigningrequests"),
)  # fmt: skip
_SIGNERS: Final = ("kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet")
_KUBELET_LABELS: Final = frozenset(
    {
        "kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region",
        "node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type", "kubernetes.io/os",
        "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch", "node.kubernetes.io/windows-build",
    }
)  # fmt: skip
_KUBELET_DOMAINS: Final = ("kubelet.kubernetes.io", "node.kubernetes.io")
_RESTRICTED_DOMAIN: Final = "node-restriction.kubernetes.io"
_TO_STATUS: Final = ("capacity", "conditions", "allocatedResources", "allocatedResourceStatuses")
"""What a kubelet writes of the status of a claim."""


class NodeRestriction(Plugin):
    name = "NodeRestriction"
    resources = _RESTRICTED
    operations = ("CREATE", "UPDATE", "DELETE")
    subresources = ()

    async def mutate(self, attributes: Attributes) -> None:
        """Raises ApiError 403. Deletions have nothing to change, and come to ``validate`` alone."""
        _check(attributes)

    async def validate(self, attributes: Attributes) -> None:
        if attributes.operation == "DELETE":
            _check(attributes)


def _check(attributes: Attributes) -> None:
    user = attributes.request.user
    node = node_of(user)
    if node is None:
        return
    if not node:
        raise refused(attributes, f"could not determine node from user {go_quoted(user.name)}")
    resource = attributes.target.resource
    why = _CHECKS[resource.group, resource.plural](attributes, node)
    if why:
        raise refused(attributes, why)


# Pods.


def _pod(attributes: Attributes, node: str) -> str:
    operation, quoted = attributes.operation, go_quoted(node)
    match attributes.target.subresource, operation:
        case "", "CREATE":
            return _mirror_pod(attributes, node)
        case "", "DELETE":
            whose = f"node {quoted} can only delete pods with spec.nodeName set to itself"
            return "" if _node_name(attributes.old) == node else whose
        case "", _:
            return f'unexpected operation "{operation}", node {quoted} can only create and delete mirror pods'
        case "status", "UPDATE":
            return _pod_status(attributes, node)
        case "eviction", "CREATE":
            pod = attributes.context.lookup("", "pods", attributes.target.namespace, attributes.target.name)
            if pod is None:
                raise not_found(attributes.target.resource, attributes.target.name)
            return (
                "" if _node_name(pod) == node else f"node {node} can only evict pods with spec.nodeName set to itself"
            )
        case (("status" | "eviction"), _):
            return f'unexpected operation "{operation}"'
    subresource = go_quoted(attributes.target.subresource)
    return f"unexpected pod subresource {subresource}, only 'status' and 'eviction' are allowed"


def _node_name(pod: Document | None) -> str:
    return (pod or {"spec": {}})["spec"].get("nodeName") or ""


def _mirror_pod(attributes: Attributes, node: str) -> str:
    pod, quoted = attributes.obj or {}, go_quoted(node)
    metadata, title = pod["metadata"], f"node {go_quoted(node)} can only create pods with"
    if CONFIG_MIRROR not in (metadata.get("annotations") or {}):
        return f'pod does not have "{CONFIG_MIRROR}" annotation, node {quoted} can only create mirror pods'
    if _node_name(pod) != node:
        return f"{title} spec.nodeName set to itself"
    owners = metadata.get("ownerReferences") or ()
    if len(owners) > 1:
        return f"{title} a single owner reference set to itself"
    owner = owners[0] if owners else {}
    if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node):
        return f"{title} an owner reference set to itself"
    if not owner.get("controller"):
        return f"{title} a controller owner reference set to itself"
    if owner.get("blockOwnerDeletion"):
        return f"node {quoted} must not set blockOwnerDeletion on an owner reference"
    found = attributes.context.lookup("", "nodes", None, node)
    if found is None:
        raise ApiError(404, "NotFound", f'node "{node}" not found', {"name": node, "kind": "node"})
    if owner.get("uid") != found["metadata"]["uid"]:
        return f"node {node} UID mismatch: expected {owner.get('uid') or ''} got {found['metadata']['uid']}"
    kind = next(_referred(pod), "")
    return f"node {quoted} can not create pods that reference {kind}" if kind else ""


def _referred(pod: Document) -> Iterator[str]:
    """The kinds of objects that a pod refers to, as far as its node may not make it."""
    spec = pod["spec"]
    plain = {**spec, "volumes": [], "resourceClaims": []}
    found = {plural for plural, _, name in references({**pod, "spec": plain}) if name}
    yield from (plural for plural in ("serviceaccounts", "secrets", "configmaps") if plural in found)
    yield from ["resourceclaims"] if spec.get("resourceClaims") else []
    for volume in spec.get("volumes") or ():
        yield from (kind for name, kind in _OF_VOLUMES.items() if volume.get(name) is not None)
        for source in (volume.get("projected") or {}).get("sources") or ():
            yield from (kind for name, kind in _OF_PROJECTIONS.items() if source.get(name) is not None)


_OF_VOLUMES: Final = {
    "configMap": "configmaps (via configmap volumes)",
    "secret": "secrets (via secret volumes)",
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azureFile": "secrets (via azureFile volumes)",
}
_OF_PROJECTIONS: Final = {
    "configMap": "configmaps (via projected volumes)",
    "secret": "secrets (via projected volumes)",
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
    "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}


def _pod_status(attributes: Attributes, node: str) -> str:
    new, old, quoted = attributes.obj or {}, attributes.old or {}, go_quoted(node)
    if _node_name(old) != node:
        whose = "for pods with spec.nodeName set to itself"
        return f"node {quoted} can only update pod status {whose}"
    if (new["metadata"].get("labels") or {}) != (old["metadata"].get("labels") or {}):
        return f"node {quoted} cannot update labels through pod status"
    status, before = new.get("status") or {}, old.get("status") or {}
    if not same(status.get("resourceClaimStatuses") or [], before.get("resourceClaimStatuses") or []):
        return f"node {quoted} cannot update resource claim statues"
    if not same(status.get("extendedResourceClaimStatus"), before.get("extendedResourceClaimStatus")):
        return f"node {quoted} cannot update extended resource claim status"
    return ""


# Nodes.


def _node(attributes: Attributes, node: str) -> str:
    new, old, quoted = attributes.obj or {}, attributes.old or {}, go_quoted(node)
    name = _own_name(attributes)
    if name != node:
        return f"node {quoted} is not allowed to modify node {go_quoted(name)}"
    if attributes.operation == "DELETE":
        return ""
    spec, before = new["spec"], (old.get("spec") or {})
    labels = ", ".join(_forbidden_labels(new["metadata"].get("labels") or {}, _labels(old)))
    if attributes.operation == "CREATE":
        if spec.get("configSource") is not None:
            return f"node {quoted} is not allowed to create pods with a non-nil configSource"
        return f"node {quoted} is not allowed to set the following labels: {labels}" if labels else ""
    if spec.get("configSource") is not None and not same(spec["configSource"], before.get("configSource")):
        return f"node {quoted} is not allowed to update configSource to a new non-nil configSource"
    if not same(spec.get("taints") or [], before.get("taints") or []):
        return f"node {quoted} is not allowed to modify taints"
    owners = "ownerReferences"
    if not same(new["metadata"].get(owners) or [], old["metadata"].get(owners) or []):
        return f"node {quoted} is not allowed to modify ownerReferences"
    return f"is not allowed to modify labels: {labels}" if labels else ""


def _labels(obj: Document) -> Mapping[str, str]:
    labels: Mapping[str, str] = (obj.get("metadata") or {}).get("labels") or {}
    return labels


def _forbidden_labels(new: Mapping[str, str], old: Mapping[str, str]) -> list[str]:
    return sorted(key for key in {*new, *old} if new.get(key) != old.get(key) and _is_forbidden(key))


def _is_forbidden(label: str) -> bool:
    domain = label.partition("/")[0] if "/" in label else ""
    if _is_in(domain, _RESTRICTED_DOMAIN):
        return True
    is_ours = _is_in(domain, "kubernetes.io") or _is_in(domain, "k8s.io")
    return is_ours and label not in _KUBELET_LABELS and not any(_is_in(domain, each) for each in _KUBELET_DOMAINS)


def _is_in(domain: str, other: str) -> bool:
    return domain == other or domain.endswith(f".{other}")


# Everything else.


def _claim(attributes: Attributes, node: str) -> str:
    if attributes.target.subresource != "status":
        return "may only update PVC status"
    if attributes.operation != "UPDATE":
        return f'unexpected operation "{attributes.operation}"'
    title = f"node {go_quoted(node)} is not allowed to update fields other than status.quantity and status.conditions"
    new, old = _without_status(attributes.obj or {}), _without_status(attributes.old or {})
    return "" if same(new, old) else title


def _without_status(claim: Document) -> Document:
    hidden = ("resourceVersion", "managedFields")
    metadata = {name: value for name, value in claim["metadata"].items() if name not in hidden}
    status = {name: value for name, value in (claim.get("status") or {}).items() if name not in _TO_STATUS}
    return {**claim, "metadata": metadata, "status": status}


def _account(attributes: Attributes, node: str) -> str:
    if attributes.operation != "CREATE" or attributes.target.subresource != "token":
        return ""
    reference = ((attributes.obj or {}).get("spec") or {}).get("boundObjectRef") or {}
    if (reference.get("apiVersion"), reference.get("kind")) != ("v1", "Pod") or not reference.get("name"):
        return "node requested token not bound to a pod"
    uid = reference.get("uid") or ""
    if not uid:
        return "node requested token with a pod binding without a uid"
    pod = attributes.context.lookup("", "pods", attributes.target.namespace, reference["name"])
    if pod is None or pod["metadata"]["uid"] != uid:
        why = f"the UID in the bound object reference ({uid}) does not match the UID in record"
        return f"{why}. The object might have been deleted and then recreated"
    return "" if _node_name(pod) == node else "node requested token bound to a pod scheduled on a different node"


def _own_name(attributes: Attributes) -> str:
    """Of a new object, which the URL does not name."""
    return attributes.target.name or ((attributes.obj or {}).get("metadata") or {}).get("name") or ""


def _lease(attributes: Attributes, node: str) -> str:
    if attributes.target.namespace != LEASE_NAMESPACE:
        return NODE_LEASES_ONLY
    return "" if _own_name(attributes) == node else OWN_LEASE_ONLY


def _csi_node(attributes: Attributes, node: str) -> str:
    return "" if _own_name(attributes) == node else OWN_CSI_NODE_ONLY


def _slice(attributes: Attributes, node: str) -> str:
    found = attributes.old if attributes.operation == "DELETE" else attributes.obj
    same_node = ((found or {}).get("spec") or {}).get("nodeName") == node
    if same_node or attributes.operation == "UPDATE":
        return ""
    return f"can only {attributes.operation.lower()} ResourceSlice with the same NodeName as the requesting node"


def _certificate(attributes: Attributes, node: str) -> str:
    spec = (attributes.obj or {}).get("spec") or {}
    if attributes.operation != "CREATE" or spec.get("signerName") not in _SIGNERS:
        return ""
    request = parsed_request(spec.get("request") or "")
    if not isinstance(request, x509.CertificateSigningRequest):
        return f"unable to parse csr: {request}"
    names = [str(each.value) for each in request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return "" if names[-1:] == [f"system:node:{node}"] else f"can only create a node CSR with CN=system:node:{node}"


_CHECKS: Final[Mapping[GroupResource, Callable[[Attributes, str], str]]] = dict(
    zip(_RESTRICTED, (_pod, _node, _claim, _account, _lease, _csi_node, _slice, _certificate), strict=True)
)
"""Kind -> why a kubelet may not write it so; empty where it may."""
