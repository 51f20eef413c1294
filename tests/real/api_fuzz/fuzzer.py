"""A differential fuzzer of the embedded API: one change to a valid object, sent to kube-apiserver and to ours.

``python -m tests.real.api_fuzz.fuzzer REAL_KUBECONFIG [NUMBER [SEED [KIND]]]`` starts an embedded API beside a real one
and prints how they differ. All requests are dry runs: of creations, updates, patches of three kinds, updates of the
status and of the scale, and of bindings, evictions, resizes and ephemeral containers of pods.
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from koordinator.api.document import Document
from koordinator.cluster.server import ServerOptions
from tests.cluster.corpus import resource_of
from tests.cluster.embedded_thread import embedded_server
from tests.real.api_fuzz.mutations import Mutation, choose, encoded, json_patch, shown
from tests.yaml_documents import yaml_documents

NAMESPACE: Final = "fuzz"
OPTIONS: Final = ServerOptions(disruption_controller=False, garbage_collector=False)
"""The real server has no controllers beside it either."""
_OBJECTS: Final = Path(__file__).parent / "objects.yaml"
_SCALED: Final = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController")
_MODES: Final = ("Strict", "Warn", "Ignore")
_JOINED: Final[Document] = {
    "name": "joined",
    "image": "busybox",
    "command": ["sh"],
    "args": ["-c"],
    "workingDir": "/",
    "env": [{"name": "A", "value": "b"}],
    "envFrom": [{"prefix": "P_", "configMapRef": {"name": "c"}}],
    "stdin": True,
    "tty": True,
    "securityContext": {"runAsUser": 5, "capabilities": {"add": ["NET_ADMIN"]}},
}
"""An ephemeral container of each pod."""
_SHARE_OF_ACTIONS: Final = 0.5
"""Of the requests about pods."""
PANIC: Final = 599
"""Stands for the status of a response that did not come, since the server's handler has panicked."""
_UID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_VERSION: Final = re.compile(r'"resourceVersion": ?"\d+"')
_INDEX: Final = re.compile(r"\[\d+\]")
_PATCHED: Final = re.compile(r'(patch: Invalid value: )".*[]}]"')
"""The object that a patch would make: the real server's has managed fields."""
_CONVERTED: Final = re.compile(r"(OBJECT: )(?!strict decoding error).*")
"""What is wrong with the type of a value in a strategic merge patch: there the real server has another converter."""
_REJECTED: Final = re.compile(r"(the server rejected our request due to an error in our request): .*")
"""The real server keeps to itself what is wrong with a JSON patch that does not apply."""
_STRUCT: Final = re.compile(r"((?:Invalid|Unsupported|Duplicate) value: )(?:[{\[].*[}\]]|null)(?=: |$|, |\])")
"""A whole value: the real server shows its internal Go structs, whose fields have other names. In the canonical form,
which ours has by then, an empty list is an absent one."""
_CHANGED: Final = re.compile(r"(Forbidden: [^\n]*)\n.*", re.DOTALL)
"""What a pod or a claim would be is shown by the real server as a comparison of Go structs."""
_DRY_RUN: Final = re.compile(r"StorageError: invalid object, .*AdditionalErrorMsg: ")
"""In front of a failed precondition, where it is a dry run."""
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@dataclass(frozen=True)
class Outcome:
    """How a server responds, without what differs from run to run."""

    code: int
    reason: str
    message: str
    causes: tuple[str, ...] = ()

    def __str__(self) -> str:
        listed = "".join(f"\n                {cause}" for cause in self.causes) if len(self.causes) > 1 else ""
        return f"{self.code} {self.reason} {self.message}{listed}" if self.code >= 300 else str(self.code)


@dataclass(frozen=True)
class Operation:
    method: str
    media: str = "application/json"
    subresource: str = ""

    def __str__(self) -> str:
        patch = self.media.removeprefix("application/").removesuffix("+json") if self.method == "PATCH" else ""
        return " ".join(filter(None, (self.method, patch, self.subresource)))

    def body(self, base: Document, mutation: Mutation) -> bytes:
        return json_patch(mutation, base) if self.media == _JSON_PATCH else mutation.body(base)

    def shown(self, text: str) -> str:
        """A message, without what differs from run to run."""
        return _CONVERTED.sub(r"\1TYPE", normalized(text)) if self.media == _STRATEGIC else normalized(text)

    def suits(self, mutation: Mutation) -> bool:
        """The real server takes a number that is too large in a strategic merge patch for another one."""
        value = mutation.value
        return self.media != _STRATEGIC or not isinstance(value, int) or -(2**31) <= value < 2**31


_JSON_PATCH: Final = "application/json-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_CREATE: Final = Operation("POST")
_UPDATE: Final = Operation("PUT")
_OPERATIONS: Final = (
    _CREATE,
    _CREATE,
    _UPDATE,
    Operation("PATCH", "application/merge-patch+json"),
    Operation("PATCH", _STRATEGIC),
    Operation("PATCH", _JSON_PATCH),
    Operation("PUT", subresource="status"),
    Operation("PUT", subresource="scale"),
)
_VIEWS: Final = tuple(Operation("PUT", subresource=name) for name in ("resize", "ephemeralcontainers"))
"""On pods, beside the others."""
_ACTIONS: Final = (Operation("POST", subresource="binding"), Operation("POST", subresource="eviction"))
"""On pods; a body of their own says what is to be done."""


@dataclass(frozen=True)
class Case:
    document: Document
    operation: Operation
    mode: str
    mutation: Mutation

    def __str__(self) -> str:
        kind = f"{self.document['kind']} {self.document['metadata']['name']}"
        value = f" {json.dumps(self.mutation.value)[:40]}" if self.mutation.name == "set" else ""
        return f"{self.operation} {kind}: {self.mutation}{value} ({self.mode})"


@dataclass(frozen=True)
class Difference:
    case: Case
    real: Outcome
    ours: Outcome

    @property
    def place(self) -> str:
        """Kind and path, without indexes."""
        kind = _KINDS.get(self.case.operation.subresource, self.case.document["kind"])
        return f"{kind} {_INDEX.sub('[]', shown(self.case.mutation.path))}"


class Server:
    """One API server, with the objects that updates are of."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        address = urlsplit(config["clusters"][0]["cluster"]["server"])
        # Servers on loopback with certificates of their own making.
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
        self._connection = http.client.HTTPSConnection("127.0.0.1", address.port or 443, timeout=60, context=tls)
        self._headers = {
            "Authorization": f"Bearer {config['users'][0]['user']['token']}",
            "Accept": "application/json",
        }
        self.stored: dict[str, Document] = {}
        """Kind and name -> object."""
        self.scales: dict[str, Document] = {}

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def prepare(self, documents: Sequence[Document]) -> None:
        """Store the objects, unless they are there; raises AssertionError where one is refused."""
        self.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        runtime = {"metadata": {"name": "runc"}, "handler": "runc", "overhead": {"podFixed": {"cpu": "100m"}}}
        self.request("POST", "/apis/node.k8s.io/v1/runtimeclasses", runtime)
        for document in documents:
            path, key = f"{path_of(document)}/{document['metadata']['name']}", key_of(document)
            code, made = self.request("POST", path_of(document), document)
            assert code in (201, 409), f"{key}: {made.get('message')}"
            if document.get("status"):
                status = {"status": document["status"]}
                code, made = self.request("PATCH", f"{path}/status", status, "application/merge-patch+json")
                assert code == 200, f"status of {key}: {made.get('message')}"
            if document["kind"] == "Pod":
                joined = {"spec": {"ephemeralContainers": [_JOINED]}}
                code, made = self.request("PATCH", f"{path}/ephemeralcontainers", joined, _STRATEGIC)
                assert code == 200, f"ephemeral containers of {key}: {made.get('message')}"
            self.stored[key] = self._get(path)
            if document["kind"] in _SCALED:
                self.scales[key] = self._get(f"{path}/scale")

    def _get(self, path: str) -> Document:
        _, found = self.request("GET", path)
        found["metadata"].pop("managedFields", None)
        return found

    def request(
        self, method: str, path: str, body: Any = None, media: str = "application/json"
    ) -> tuple[int, Document]:
        data = body if isinstance(body, bytes | None) else encoded(body)
        try:
            self._connection.request(method, path, data, {**self._headers, "Content-Type": media})
            response = self._connection.getresponse()
        except http.client.RemoteDisconnected:
            # The handler has panicked; the next request opens the connection again.
            self._connection.close()
            return PANIC, {}
        found: Document = json.loads(response.read())
        return response.status, found

    def play(self, case: Case) -> Outcome | None:
        """None where the change does not fit the object as this server has stored it."""
        operation, path = case.operation, path_of(case.document)
        if operation == _CREATE:
            base = _new(case.document)
        elif operation in _ACTIONS:
            base = _body(case.document, operation)
            path += f"/{case.document['metadata']['name']}/{operation.subresource}"
        else:
            # As it is now: controllers of ours write the status of budgets and quotas.
            path += f"/{case.document['metadata']['name']}" + (operation.subresource and f"/{operation.subresource}")
            base = self._get(path)
        if not case.mutation.applies(base):
            return None
        body = operation.body(base, case.mutation)
        path = f"{path}?dryRun=All&fieldValidation={case.mode}"
        code, response = self.request(operation.method, path, body, operation.media)
        if code < 300:
            return Outcome(code, "", "")
        causes = (response.get("details") or {}).get("causes") or ()
        texts = sorted({operation.shown(f"{c.get('reason')} {c.get('field')}: {c.get('message')}") for c in causes})
        message = operation.shown(response.get("message") or "")
        return Outcome(code, response.get("reason") or "", message, tuple(texts))


def _new(document: Document) -> Document:
    """Not stored yet and without a status; the name of a CustomResourceDefinition follows from its contents."""
    new = {name: value for name, value in document.items() if name != "status"}
    if document["kind"] == "CustomResourceDefinition":
        return new
    return {**new, "metadata": {**document["metadata"], "name": f"{document['metadata']['name']}-new"}}


_KINDS: Final = {"scale": "Scale", "binding": "Binding", "eviction": "Eviction"}
"""What bodies of subresources are called."""


def _body(pod: Document, operation: Operation) -> Document:
    metadata = {"name": pod["metadata"]["name"], "namespace": NAMESPACE}
    if operation.subresource == "eviction":
        options = {"gracePeriodSeconds": 5, "propagationPolicy": "Background", "preconditions": {}}
        return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}
    marked = {**metadata, "labels": {"a": "b"}, "annotations": {"c": "d"}}
    target = {"apiVersion": "v1", "kind": "Node", "name": "n", "namespace": "", "uid": ""}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": marked, "target": target}


def normalized(text: str) -> str:
    """Without uids, versions and times, which are a server's own."""
    text = _DRY_RUN.sub("", text)
    text = _REJECTED.sub(r"\1", _PATCHED.sub(r"\1OBJECT", text))
    text = _CHANGED.sub(r"\1", _STRUCT.sub(r"\1VALUE", text))
    return _TIME.sub("TIME", _VERSION.sub('"resourceVersion":"N"', _UID.sub("UID", text)))


def agree(real: Outcome, ours: Outcome) -> bool:
    """The order of causes does not count: the real server walks maps in a random one."""
    if (real.code, real.reason) != (ours.code, ours.reason):
        return False
    if real.causes or ours.causes:
        prefixes = [outcome.message.partition(" is invalid: ")[0] for outcome in (real, ours)]
        return real.causes == ours.causes and prefixes[0] == prefixes[1]
    return real.message == ours.message


def key_of(document: Document) -> str:
    return f"{document['apiVersion']} {document['kind']} {document['metadata']['name']}"


def path_of(document: Document) -> str:
    """The collection of the object's kind."""
    resource = resource_of(document)
    root = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
    return f"{root}/namespaces/{NAMESPACE}/{resource.plural}" if resource.namespaced else f"{root}/{resource.plural}"


def objects() -> list[Document]:
    return [json.loads(json.dumps(document)) for document in yaml_documents(_OBJECTS.read_text()) if document]


def cases(number: int, seed: int, real: Server, documents: Sequence[Document]) -> Iterator[Case]:
    """Kinds take turns; what is changed is chosen by chance."""
    random = Random(seed)
    for count in range(number):
        document = documents[count % len(documents)]
        key, operation = key_of(document), random.choice(_OPERATIONS)
        bases = {"": real.stored[key], "status": real.stored[key], "scale": real.scales.get(key)}
        if document["kind"] == "Pod" and random.random() < _SHARE_OF_ACTIONS:
            operation = random.choice((*_ACTIONS, *_VIEWS))
        if operation in _ACTIONS:
            yield Case(document, operation, random.choice(_MODES), choose(_body(document, operation), random))
            continue
        base = _new(document) if operation == _CREATE else bases.get(operation.subresource, real.stored[key])
        if base is None or (operation.subresource == "status" and not document.get("status")):
            base, operation = real.stored[key], _UPDATE
        root = "status" if operation.subresource == "status" else ""
        mutation = choose(base, random, root)
        yield Case(document, operation if operation.suits(mutation) else _UPDATE, random.choice(_MODES), mutation)


def differences(real: Server, ours: Server, number: int, seed: int, kind: str = "") -> list[Difference]:
    """Play ``number`` changes on both servers; what the real one fails at says nothing of ours."""
    documents = [document for document in objects() if kind in ("", document["kind"])]
    real.prepare(documents)
    ours.prepare(documents)
    found = []
    for case in cases(number, seed, real, documents):
        expected, actual = real.play(case), ours.play(case)
        if expected is None or actual is None or expected.code >= 500:
            continue
        if not agree(expected, actual):
            found.append(Difference(case, expected, actual))
    return found


def report(found: Sequence[Difference]) -> str:
    """Grouped by kind and path, the most frequent first."""
    groups: dict[str, list[Difference]] = defaultdict(list)
    for difference in found:
        groups[difference.place].append(difference)
    lines = []
    for place, members in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        lines.append(f"{len(members)} {place}")
        for difference in members:
            lines += [f"    {difference.case}", f"        real: {difference.real}", f"        ours: {difference.ours}"]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    number, seed = int((arguments[1:] or ["500"])[0]), int((arguments[2:] or ["1"])[0])
    kind = (arguments[3:] or [""])[0]
    with (
        tempfile.TemporaryDirectory() as folder,
        embedded_server(Path(folder), OPTIONS) as kubeconfig,
        Server(Path(arguments[0])) as real,
        Server(kubeconfig) as ours,
    ):
        found = differences(real, ours, number, seed, kind)
    sys.stdout.write(f"{report(found)}\n{len(found)} of {number} differ\n")


if __name__ == "__main__":
    main(sys.argv[1:])
