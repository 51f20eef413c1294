"""What a bundle has of a cluster: what its API server stores, and what it forwards of our pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from koordinator.api import kinds
from koordinator.api.codec import DecodeError, decode_any
from koordinator.api.installation import MANAGER_LEASE, MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION
from koordinator.api.kinds import Kind
from koordinator.api.manifests.definitions import DEFINITIONS
from koordinator.api.meta import Object
from koordinator.cli.support_bundle.anonymity import Names
from koordinator.cli.support_bundle.collector import Content, Part, reason
from koordinator.kube.client import KubeClient
from koordinator.kube.errors import KubeError

_PAGE: Final = 250
_APP_LABEL: Final = "koord-app"
PROGRAMS: Final = ("koord-scheduler", "koord-manager", "koord-descheduler", "koordlet", "koord-device-daemon")
_CONFIG_MAPS: Final = (
    "slo-controller-config",
    "koord-scheduler-config",
    "koord-descheduler-config",
    "koordlet-config",
    "gpu-shared-resource-templates",
)
_LEASES: Final = ("koord-scheduler", MANAGER_LEASE, "koord-descheduler")
_ENDPOINT_SLICES: Final = Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", Object)
_ROLES: Final = Kind("rbac.authorization.k8s.io", "v1", "roles", "Role", Object)
_ROLE_BINDINGS: Final = Kind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", Object)
_OF_OUR_NAMESPACE: Final[tuple[tuple[Kind[Any], str], ...]] = (
    (kinds.PODS, "our pods"),
    (kinds.DEPLOYMENTS, "the Deployments of the programs: arguments, conditions"),
    (kinds.DAEMON_SETS, "the DaemonSets of the programs: arguments, on how many nodes they are"),
    (kinds.EVENTS, "events of the installation's namespace"),
    (kinds.SERVICES, "the Service of the webhooks"),
    (_ENDPOINT_SLICES, "where the webhooks are served"),
    (kinds.POD_DISRUPTION_BUDGETS, "the disruption budgets of the programs"),
    (_ROLES, "what the programs may do in their namespace"),
    (_ROLE_BINDINGS, "who has those roles"),
)
_PENDING: Final = urlencode({"fieldSelector": "spec.nodeName=,status.phase=Pending"})
_LOG_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class ClusterParts:
    """``namespace`` is that of the installation; ``lines`` of each log, of ``most_pods`` pods; ``most_bytes`` of one
    listing."""

    client: KubeClient
    namespace: str
    lines: int
    most_pods: int
    most_bytes: int

    def installed(self) -> list[Part]:
        """What is read first, since the others need it: our pods, our workloads and what they are told."""
        return [
            *(
                self._listing(f"installation/{kind.plural}.json", kind.path(self.namespace), says, ours=True)
                for kind, says in _OF_OUR_NAMESPACE
            ),
            *(
                self._object(f"configuration/{name}.json", kinds.CONFIG_MAPS.path(self.namespace, name),
                             f"the ConfigMap {name}")
                for name in _CONFIG_MAPS
            ),
            *(
                self._object(f"installation/lease-{name}.json", kinds.LEASES.path(self.namespace, name),
                             f"who leads by the Lease {name}")
                for name in _LEASES
            ),
        ]  # fmt: skip

    def stored(self) -> list[Part]:
        """The cluster itself, and all objects of our kinds."""
        return [
            Part("cluster/version.json", "the version of Kubernetes", partial(self._document, "/version"),
                 public=True),
            Part("cluster/api-groups.json", "which APIs are served", partial(self._document, "/apis")),
            Part("cluster/ready.txt", "whether the API server is ready", partial(self._text, "/readyz?verbose")),
            self._listing("cluster/nodes.json", kinds.NODES.path(), "the nodes: labels, conditions, capacity"),
            self._listing("cluster/events.json", kinds.EVENTS.path("default"),
                          "events about nodes and other objects without a namespace"),
            self._listing("cluster/pending-pods.json", f"{kinds.PODS.path()}?{_PENDING}",
                          "pods without a node, of all namespaces"),
            self._listing("cluster/priority-classes.json", kinds.PRIORITY_CLASSES.path(), "the PriorityClasses"),
            Part("cluster/definitions.json", "our CustomResourceDefinitions: versions and conditions",
                 self._definitions),
            *(
                self._object(f"installation/{name}.json", kind.path(name=name), "our webhooks")
                for kind, name in (
                    (kinds.MUTATING_WEBHOOK_CONFIGURATIONS, MUTATING_CONFIGURATION),
                    (kinds.VALIDATING_WEBHOOK_CONFIGURATIONS, VALIDATING_CONFIGURATION),
                )
            ),
            *(self._listing(f"objects/{kind.plural}.json", kind.path(), f"all {kind.plural}") for kind in _our_kinds()),
        ]  # fmt: skip

    def named(self, pods: Sequence[tuple[str, str]], nodes: Sequence[str]) -> Iterator[Part]:
        """What was asked for by name: ``pods`` are namespace and name."""
        for namespace, name in pods:
            folder = f"pods/{namespace}/{name}"
            yield self._object(f"{folder}/pod.json", kinds.PODS.path(namespace, name), f"the pod {namespace}/{name}")
            yield self._events(folder, namespace, "Pod", name)
        for name in nodes:
            folder = f"nodes/{name}"
            for kind in (
                kinds.NODES,
                kinds.NODE_METRICS,
                kinds.NODE_SLOS,
                kinds.DEVICES,
                kinds.NODE_RESOURCE_TOPOLOGIES,
            ):
                yield self._object(f"{folder}/{kind.plural}.json", kind.path(name=name), f"the {kind.name} of {name}")
            on_node = urlencode({"fieldSelector": f"spec.nodeName={name}"})
            yield self._listing(f"{folder}/pods.json", f"{kinds.PODS.path()}?{on_node}", f"the pods on {name}")
            yield self._events(folder, "default", "Node", name)

    def logs(self, pods: Any, nodes: Sequence[str]) -> list[Part]:
        """Of our pods, those that do badly and those of the ``nodes`` first: a DaemonSet has one on every node."""
        ours = [each for each in items(pods) if is_ours(each)]
        ours.sort(key=lambda pod: (pod["spec"].get("nodeName") not in nodes, not _is_unwell(pod), _is_of_node(pod)))
        parts = []
        for pod in ours[: self.most_pods]:
            name = pod["metadata"]["name"]
            for container in pod["spec"].get("containers") or ():
                parts.append(self._log(name, container["name"], previous=False))
                if container["name"] in _restarted(pod):
                    parts.append(self._log(name, container["name"], previous=True))
        return parts

    def _log(self, pod: str, container: str, *, previous: bool) -> Part:
        before = {"previous": "true"} if previous else {}
        path = f"{kinds.PODS.path(self.namespace, pod, 'log')}?{urlencode({'container': container} | before)}"
        which = "as it ended before its last restart" if previous else "now"
        return Part(
            f"logs/{pod}/{container}{'.previous' if previous else ''}.log",
            f"the last {self.lines} lines of {container} of {pod}, {which}",
            partial(self._lines, path),
        )

    async def _lines(self, target: str) -> Content:
        """As many of the last lines as fit: the API counts bytes from their beginning, and would cut off the newest."""
        lines = self.lines
        while True:
            query = urlencode({"tailLines": lines, "limitBytes": _LOG_BYTES, "timestamps": "true"})
            body = await self.client.raw("GET", f"{target}&{query}")
            is_cut = len(body) >= _LOG_BYTES
            if not is_cut or lines <= 1:
                break
            lines = max(1, min(lines * 3 // 4, body.count(b"\n")))
        note = f"the last {lines} lines alone: more than {_LOG_BYTES >> 20} MiB" if lines < self.lines else ""
        if is_cut:
            note = f"the beginning of the last line alone: more than {_LOG_BYTES >> 20} MiB"
        return Content(body.decode("utf-8", "replace"), note)

    def _events(self, folder: str, namespace: str, kind: str, name: str) -> Part:
        about = urlencode({"fieldSelector": f"involvedObject.kind={kind},involvedObject.name={name}"})
        return self._listing(f"{folder}/events.json", f"{kinds.EVENTS.path(namespace)}?{about}", "its events")

    def _object(self, path: str, target: str, says: str) -> Part:
        return Part(path, says, partial(self._document, target))

    def _listing(self, path: str, target: str, says: str, *, ours: bool = False) -> Part:
        return Part(path, says, partial(self.listed, target, ours=ours))

    async def _document(self, target: str) -> Content:
        return Content(decode_any(await self.client.raw("GET", target)))

    async def _text(self, target: str) -> Content:
        return Content((await self.client.raw("GET", target)).decode("utf-8", "replace"))

    async def listed(self, target: str, *, ours: bool = False) -> Content:
        """As many pages as fit into the bytes of a listing."""
        found: list[Any] = []
        size, token, first = 0, "", None
        while True:
            page, page_size, token = await self._page(target, token)
            first = first or page
            found += items(page)
            size += page_size
            if not token or size > self.most_bytes:
                break
        note = f"the first {len(found)} alone: more than {self.most_bytes >> 20} MiB" if token else ""
        return Content({"kind": first.get("kind"), "apiVersion": first.get("apiVersion"), "items": found}, note, ours)

    async def _page(self, target: str, token: str) -> tuple[Any, int, str]:
        """With the bytes that it has, and the token of the next."""
        query = urlencode({"limit": _PAGE} | ({"continue": token} if token else {}))
        body = await self.client.raw("GET", f"{target}{'&' if '?' in target else '?'}{query}")
        page = decode_any(body)
        return page, len(body), (page.get("metadata") or {}).get("continue") or ""

    async def learn(self, names: Names) -> None:
        """The names of all that a bundle may speak of; ``names`` is told when not all of them can be known."""
        needed: tuple[Kind[Any], ...] = (kinds.NAMESPACES, kinds.NODES, kinds.PODS)
        for kind in (*needed, kinds.PRIORITY_CLASSES, *_our_kinds()):
            try:
                await self._learn_kind(kind, names)
            except (KubeError, DecodeError) as error:
                # Where others cannot be listed, their own part is left out, too.
                if kind in needed:
                    names.unknown = reason(error)

    async def _learn_kind(self, kind: Kind[Any], names: Names) -> None:
        token = ""
        while True:
            page, _, token = await self._page(kind.path(), token)
            for each in items(page):
                names.learn_object(kind.name.lower(), each)
            if not token:
                return

    async def _definitions(self) -> Content:
        """Without their schemas, which are those of `koord manifests` in most cases, and large in all."""
        content = await self.listed(kinds.CUSTOM_RESOURCE_DEFINITIONS.path())
        groups = {kind.group for kind in _our_kinds()}
        shown = []
        for each in items(content.value):
            if each["spec"]["group"] in groups:
                versions = [{key: value for key, value in version.items() if key != "schema"}
                            for version in each["spec"]["versions"]]  # fmt: skip
                shown.append({**each, "spec": {**each["spec"], "versions": versions}})
        return Content({**content.value, "items": shown}, content.note)


def items(listing: Any) -> list[Any]:
    """Of a list; none where it could not be read."""
    return list(listing.get("items") or ()) if isinstance(listing, Mapping) else []


def is_ours(pod: Mapping[str, Any]) -> bool:
    """Whether a pod of the installation's namespace runs one of our programs."""
    return ((pod.get("metadata") or {}).get("labels") or {}).get(_APP_LABEL) in PROGRAMS


def _our_kinds() -> list[Kind[Any]]:
    return [definition.versions[0] for definition in DEFINITIONS]


def _restarted(pod: Mapping[str, Any]) -> set[str]:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return {each["name"] for each in statuses if each.get("restartCount")}


def _is_unwell(pod: Mapping[str, Any]) -> bool:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return bool(_restarted(pod)) or not statuses or not all(each.get("ready") for each in statuses)


def _is_of_node(pod: Mapping[str, Any]) -> bool:
    return any(owner.get("kind") == "DaemonSet" for owner in pod["metadata"].get("ownerReferences") or ())
