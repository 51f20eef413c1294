"""One list of what kubectl must do and show, run against the real API server and against the embedded one.

A check is a command and patterns that its output must contain. Checks of a list build on each other, in order.
"""

from __future__ import annotations

from dataclasses import dataclass

NAMESPACE = "kubectl-checks"

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: kubectl-checks, labels: {app: web, tier: front}}
spec:
  containers:
    - name: main
      image: nginx:1.27
      ports: [{containerPort: 80}]
      resources: {requests: {cpu: 500m, memory: 1Gi}, limits: {memory: 1Gi}}
"""
POD_WITHOUT_CONTAINERS = """
apiVersion: v1
kind: Pod
metadata: {name: empty, namespace: kubectl-checks}
spec: {containers: []}
"""
POD_WITH_BAD_QUANTITY = """
apiVersion: v1
kind: Pod
metadata: {name: bad, namespace: kubectl-checks}
spec: {containers: [{name: main, image: a, resources: {requests: {cpu: "2"}, limits: {cpu: "1"}}}]}
"""
POD_WITH_UNKNOWN_CLASS = """
apiVersion: v1
kind: Pod
metadata: {name: classy, namespace: kubectl-checks}
spec: {priorityClassName: nobody, containers: [{name: main, image: a}]}
"""
CONFIG_MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: kubectl-checks}
data: {color: COLOR}
"""
FINALIZED = """
apiVersion: v1
kind: ConfigMap
metadata: {name: held, namespace: kubectl-checks, finalizers: [example.com/hold]}
"""
NODE = """
apiVersion: v1
kind: Node
metadata: {name: kubectl-checks-node, labels: {kubernetes.io/hostname: kubectl-checks-node}}
status:
  capacity: {cpu: "4", memory: 8Gi, pods: "110"}
  allocatable: {cpu: "4", memory: 8Gi, pods: "110"}
  conditions: [{type: Ready, status: "True", reason: KubeletReady}]
"""
DRAINED_NODE = "kubectl-checks-drained"
DRAINED_POD = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: kubectl-checks, labels: {guarded: GUARDED}}
spec:
  nodeName: kubectl-checks-drained
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: a}]
"""
HEALTH = '{"status":{"observedGeneration":1,"currentHealthy":1,"desiredHealthy":1,"expectedPods":1}}'
RUNNING = '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}'
PRIORITY_CLASS = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: kubectl-checks-class}
value: 9000
"""
POD_WITH_CLASS = POD_WITH_UNKNOWN_CLASS.replace("nobody", "kubectl-checks-class")
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.checks.example.com}
spec:
  group: checks.example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList, shortNames: [gd]}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""
GADGET = """
apiVersion: checks.example.com/v1
kind: Gadget
metadata: {name: one, namespace: kubectl-checks}
spec: {size: 3}
"""

WEBHOOKS_OF_NOBODY = """
apiVersion: admissionregistration.k8s.io/v1
kind: KINDWebhookConfiguration
metadata: {name: kubectl-checks-hooks}
webhooks:
  - name: one.checks.example.com
    admissionReviewVersions: [v1]
    sideEffects: None
    clientConfig: {url: "https://127.0.0.1:1/never"}
    rules: [{apiGroups: [none.example.com], apiVersions: [v1], operations: [CREATE], resources: [never], scope: "*"}]
"""


@dataclass(frozen=True, slots=True)
class Check:
    """``command`` is split at spaces. ``fails``: kubectl must end with a status other than zero."""

    command: str
    shows: tuple[str, ...] = ()
    """Patterns (multi-line) that standard output and error together must contain."""
    hides: tuple[str, ...] = ()
    stdin: str = ""
    fails: bool = False


def in_namespace(command: str, *shows: str, stdin: str = "", fails: bool = False, hides: tuple[str, ...] = ()) -> Check:
    return Check(f"-n {NAMESPACE} {command}", shows, hides, stdin, fails)


def reset() -> list[Check]:
    """Remove what an interrupted earlier run has left."""
    return [
        Check("delete node kubectl-checks-node --ignore-not-found"),
        Check(f"delete node {DRAINED_NODE} --ignore-not-found"),
        Check("delete priorityclass kubectl-checks-class --ignore-not-found"),
        Check("delete crd gadgets.checks.example.com --ignore-not-found"),
    ]


CREATE_AND_SHOW = [
    Check(f"create namespace {NAMESPACE}", (rf"^namespace/{NAMESPACE} created$",)),
    Check("create -f -", (r"^pod/web created$",), stdin=POD),
    Check("create -f -", (r'Error from server \(AlreadyExists\).*pods "web" already exists',), stdin=POD, fails=True),
    in_namespace("get pods", r"^NAME +READY +STATUS +RESTARTS +AGE$", r"^web +0/1 +Pending +0 +\d+s$"),
    in_namespace(
        "get pods -o wide", r"AGE +IP +NODE +NOMINATED NODE +READINESS GATES$", r"<none> +<none> +<none> +<none>$"
    ),
    in_namespace("get po web -o name", r"^pod/web$"),
    in_namespace("get pods --show-labels", r"LABELS$", r"app=web,tier=front$"),
    in_namespace("get pods -L app", r"APP$", r" web$"),
    in_namespace(
        "get pod web -o jsonpath={.status.phase}/{.status.qosClass}/{.spec.restartPolicy}", r"^Pending/Burstable/Always"
    ),
    in_namespace(
        "get pod web -o yaml",
        r"schedulerName: default-scheduler",
        r"terminationGracePeriodSeconds: 30",
        r"dnsPolicy: ClusterFirst",
    ),
    in_namespace(
        "get pod web -o custom-columns=N:.metadata.name,I:.spec.containers[0].image", r"^N +I$", r"^web +nginx:1.27$"
    ),
    in_namespace(
        "describe pod web",
        r"^Name: +web$",
        r"^Status: +Pending$",
        r"^QoS Class: +Burstable$",
        r"cpu: +500m",
        r"node.kubernetes.io/not-ready:NoExecute op=Exists for 300s",
    ),
    in_namespace("get pods -l app=web,tier!=back", r"^web "),
    in_namespace("get pods -l tier=back", r"No resources found", hides=(r"^web ",)),
    in_namespace("get pods --field-selector=status.phase=Pending,spec.nodeName=", r"^web "),
    in_namespace("get pods --field-selector=spec.nodeName=x", r"No resources found"),
    Check("get pods -A --sort-by=.metadata.name", (r"^NAMESPACE +NAME", rf"^{NAMESPACE} +web ")),
    in_namespace("get pod missing", r'Error from server \(NotFound\): pods "missing" not found', fails=True),
    in_namespace("get all", r"^pod/web +0/1"),
    in_namespace("get pods web -o json --chunk-size=1", r'"kind": "Pod"'),
    Check("get gizmos", (r"the server doesn't have a resource type \"gizmos\"",), fails=True),
]
REFUSALS = [
    Check(
        "create -f -",
        (r'The Pod "empty" is invalid: spec.containers: Required value',),
        stdin=POD_WITHOUT_CONTAINERS,
        fails=True,
    ),
    Check(
        "create -f -",
        (r'spec.containers\[0\].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',),
        stdin=POD_WITH_BAD_QUANTITY,
        fails=True,
    ),
    Check(
        "create -f -",
        (r'pods "classy" is forbidden: no PriorityClass with name nobody was found',),
        stdin=POD_WITH_UNKNOWN_CLASS,
        fails=True,
    ),
    in_namespace(
        'patch pod web --type=merge -p {"metadata":{"labels":{"app":"-bad-"}}}',
        r'metadata.labels: Invalid value: "-bad-": a valid label must be an empty string or consist of alphanumeric',
        fails=True,
    ),
    Check(
        "create -f -",
        (r"Forbidden|forbidden|not found",),
        stdin=POD.replace(f"namespace: {NAMESPACE}", "namespace: nowhere"),
        fails=True,
    ),
    in_namespace(
        'patch pod web --type=merge -p {"spec":{"nodeSelector":{"a":"b"}}}',
        r"Forbidden: (pod updates may not change fields|may only be set|may not be changed)|field is immutable",
        fails=True,
    ),
]
CHANGES = [
    Check("apply -f -", (r"^configmap/settings created$",), stdin=CONFIG_MAP.replace("COLOR", "red")),
    Check("apply -f -", (r"^configmap/settings unchanged$",), stdin=CONFIG_MAP.replace("COLOR", "red")),
    Check("apply -f -", (r"^configmap/settings configured$",), stdin=CONFIG_MAP.replace("COLOR", "blue")),
    Check(
        "apply --dry-run=server -f -",
        (r"^configmap/settings configured \(server dry run\)$",),
        stdin=CONFIG_MAP.replace("COLOR", "green"),
    ),
    in_namespace("get cm settings -o jsonpath={.data.color}", r"^blue"),
    in_namespace('patch cm settings -p {"data":{"shape":"round"}}', r"^configmap/settings patched$"),
    in_namespace('patch cm settings --type=merge -p {"data":{"color":null}}', r"patched$"),
    in_namespace('patch cm settings --type=json -p [{"op":"add","path":"/data/size","value":"9"}]', r"patched$"),
    in_namespace("get cm settings -o jsonpath={.data}", r'^\{"shape":"round","size":"9"\}'),
    in_namespace(
        'patch cm settings --type=json -p [{"op":"remove","path":"/data/none"}]',
        r"the server rejected our request|remove operation does not apply",
        fails=True,
    ),
    in_namespace("replace -f -", r"^configmap/settings replaced$", stdin=CONFIG_MAP.replace("COLOR", "pink")),
    in_namespace("label pod web stage=test", r"^pod/web labeled$"),
    in_namespace("label pod web stage=live", r"already has a value", fails=True),
    in_namespace("label pod web stage=live --overwrite", r"labeled$"),
    in_namespace("label pod web stage-", r"unlabeled$"),
    in_namespace("annotate pod web note=hello", r"^pod/web annotated$"),
    in_namespace(
        "get pod web -o jsonpath={.metadata.annotations.note}{.metadata.labels}",
        r'^hello\{"app":"web","tier":"front"\}',
    ),
    in_namespace("set image pod/web main=nginx:1.28", r"^pod/web image updated$"),
    in_namespace("get pod web -o jsonpath={.spec.containers[0].image}", r"^nginx:1.28"),
    in_namespace("create configmap plain --from-literal=a=b", r"^configmap/plain created$"),
    in_namespace("create secret generic token --from-literal=a=b", r"^secret/token created$"),
    in_namespace("get secrets", r"^NAME +TYPE +DATA +AGE$", r"^token +Opaque +1 "),
    in_namespace("get cm plain", r"^NAME +DATA +AGE$", r"^plain +1 "),
    in_namespace("run quick --image=busybox --restart=Never", r"^pod/quick created$"),
    in_namespace(
        "get pod quick -o jsonpath={.status.qosClass}/{.spec.restartPolicy}/{.spec.containers[0].imagePullPolicy}",
        r"^BestEffort/Never/Always",
    ),
    in_namespace("wait --for=jsonpath={.status.phase}=Pending pod/quick --timeout=10s", r"^pod/quick condition met$"),
]
NODES = [
    Check("create -f -", (r"^node/kubectl-checks-node created$",), stdin=NODE),
    Check("get nodes", (r"^NAME +STATUS +ROLES +AGE +VERSION", r"^kubectl-checks-node +Ready +<none>")),
    Check("cordon kubectl-checks-node", (r"^node/kubectl-checks-node cordoned$",)),
    Check("get node kubectl-checks-node", (r"Ready,SchedulingDisabled",)),
    Check("cordon kubectl-checks-node", (r"already cordoned",)),
    Check("uncordon kubectl-checks-node", (r"^node/kubectl-checks-node uncordoned$",)),
    Check("taint nodes kubectl-checks-node dedicated=batch:NoSchedule", (r"^node/kubectl-checks-node tainted$",)),
    Check("taint nodes kubectl-checks-node dedicated=batch:Sometimes", (r"invalid taint effect",), fails=True),
    Check(
        "describe node kubectl-checks-node",
        (
            r"^Taints: +dedicated=batch:NoSchedule$",
            r"^Unschedulable: +false$",
            r"^ +cpu: +4$",
            r"Non-terminated Pods: +\(0 in total\)",
        ),
    ),
    Check("taint nodes kubectl-checks-node dedicated-", (r"untainted$",)),
    Check("get node kubectl-checks-node -o jsonpath=[{.spec.taints}]", (r"^\[\]",)),
    Check("label node kubectl-checks-node disk=ssd", (r"labeled$",)),
    Check("get nodes -l disk=ssd -o name", (r"^node/kubectl-checks-node$",)),
    Check(
        "get node kubectl-checks-node -o wide",
        (r"INTERNAL-IP +EXTERNAL-IP +OS-IMAGE +KERNEL-VERSION +CONTAINER-RUNTIME$",),
    ),
    Check("delete node kubectl-checks-node", (r'^node "kubectl-checks-node" deleted',)),
]
PRIORITIES = [
    Check("create -f -", (r"^priorityclass.scheduling.k8s.io/kubectl-checks-class created$",), stdin=PRIORITY_CLASS),
    Check(
        "get priorityclasses",
        (
            r"^NAME +VALUE +GLOBAL-DEFAULT +AGE",
            r"^kubectl-checks-class +9000 +false ",
            r"^system-node-critical +2000001000 +false ",
        ),
    ),
    Check("create -f -", (r"^pod/classy created$",), stdin=POD_WITH_CLASS),
    in_namespace("get pod classy -o jsonpath={.spec.priority}/{.spec.preemptionPolicy}", r"^9000/PreemptLowerPriority"),
    Check(
        "apply -f -",
        (r"Forbidden: may not be changed in an update",),
        stdin=PRIORITY_CLASS.replace("9000", "1"),
        fails=True,
    ),
    Check("delete priorityclass kubectl-checks-class", (r"deleted",)),
]
CUSTOM_RESOURCES = [
    Check("apply -f -", (r"gadgets.checks.example.com created$",), stdin=DEFINITION),
    Check("wait --for=condition=Established crd/gadgets.checks.example.com --timeout=10s", (r"condition met$",)),
    Check("api-resources --api-group=checks.example.com", (r"^gadgets +gd +checks.example.com/v1 +true +Gadget$",)),
    Check("apply -f -", (r"^gadget.checks.example.com/one created$",), stdin=GADGET),
    in_namespace("get gd", r"^NAME +SIZE$", r"^one +3$"),
    in_namespace('patch gadget one --type=merge -p {"spec":{"size":4}}', r"patched$"),
    in_namespace(
        'patch gadget one --type=merge --subresource=status -p {"status":{"ready":true},"spec":{"size":9}}', r"patched$"
    ),
    in_namespace("get gadget one -o jsonpath={.spec.size}/{.status.ready}/{.metadata.generation}", r"^4/true/2"),
    Check("apply -f -", (r"^gadget.checks.example.com/one configured$",), stdin=GADGET.replace("size: 3", "size: 5")),
    in_namespace("get gadgets -o name", r"^gadget.checks.example.com/one$"),
    in_namespace("delete gadget one", r"deleted"),
    Check("delete crd gadgets.checks.example.com", (r"deleted",)),
    in_namespace(
        "get gd", r"the server doesn't have a resource type|could not find the requested resource", fails=True
    ),
]


def _webhooks(kind: str) -> list[Check]:
    plural, stdin = f"{kind.lower()}webhookconfigurations", WEBHOOKS_OF_NOBODY.replace("KIND", kind)
    named = f"{plural.removesuffix('s')}.admissionregistration.k8s.io/kubectl-checks-hooks"
    return [
        Check(f"delete {plural} kubectl-checks-hooks --ignore-not-found"),
        Check("apply -f -", (rf"^{named} created$",), stdin=stdin),
        Check("apply -f -", (rf"^{named} unchanged$",), stdin=stdin),
        Check(f"get {plural}", (r"^NAME +WEBHOOKS +AGE$", r"^kubectl-checks-hooks +1 +\d+s$")),
        Check("apply -f -", (rf"^{named} configured$",), stdin=f"{stdin}    timeoutSeconds: 3\n"),
        Check(
            f"get {plural} kubectl-checks-hooks -o jsonpath={{.webhooks[0].timeoutSeconds}}/{{.metadata.generation}}",
            (r"^3/2",),
        ),
        Check(
            "apply -f -",
            (r"webhooks\[0\].timeoutSeconds: Invalid value: 99: the timeout value must be between 1 and 30 seconds",),
            stdin=f"{stdin}    timeoutSeconds: 99\n",
            fails=True,
        ),
        Check(f"describe {plural} kubectl-checks-hooks", (r"Failure Policy: +Fail", r"Match Policy: +Equivalent")),
        Check(f"explain {plural}.webhooks.sideEffects", (r"FIELD: sideEffects <string>",)),
        Check(f"delete {plural} kubectl-checks-hooks", (r"deleted",)),
    ]


WEBHOOKS = [*_webhooks("Mutating"), *_webhooks("Validating")]
SECRETS = [
    in_namespace("create secret generic plain --from-literal=a=b --type=example.com/own", r"^secret/plain created$"),
    in_namespace("create secret generic plain --from-literal=a=b", r'secrets "plain" already exists', fails=True),
    in_namespace("get secrets", r"^NAME +TYPE +DATA +AGE$", r"^plain +example.com/own +1 "),
    in_namespace("get secrets --field-selector=type=example.com/own -o name", r"^secret/plain$"),
    in_namespace("describe secret plain", r"^Type: +example.com/own$", r"^a: +1 bytes$"),
    in_namespace(
        "create secret docker-registry pull --docker-server=s --docker-username=u --docker-password=p", r"created$"
    ),
    in_namespace("get secret pull", r"^pull +kubernetes.io/dockerconfigjson +1 "),
    in_namespace(
        "create secret generic bad --type=kubernetes.io/tls --from-literal=tls.crt=x",
        r'Secret "bad" is invalid: data\[tls.key\]: Required value',
        fails=True,
    ),
    in_namespace(
        'patch secret plain -p {"data":{"a":"?"}}',
        r"error decoding from json: illegal base64 data at input byte 0",
        fails=True,
    ),
    in_namespace('patch secret plain -p {"stringData":{"c":"d"}}', r"patched$"),
    in_namespace("get secret plain -o jsonpath={.data}{.stringData}", r'^\{"a":"Yg==","c":"ZA=="\}$'),
    in_namespace("create configmap fixed --from-literal=a=b", r"created$"),
    in_namespace('patch cm fixed -p {"immutable":true}', r"patched$"),
    in_namespace(
        'patch cm fixed -p {"data":{"a":"c"}}',
        r"data: Forbidden: field is immutable when `immutable` is set",
        fails=True,
    ),
    in_namespace("label cm fixed a=b", r"labeled$"),
    in_namespace(
        'patch cm fixed --type=merge -p {"metadata":{"labels":null},"data":{"no/good":"x"}}',
        r"data\[no/good\]: Invalid value: \"no/good\": a valid config key must consist of",
        fails=True,
    ),
]
SCALE = [
    in_namespace("create deployment scaled --image=a --replicas=2", r"^deployment.apps/scaled created$"),
    in_namespace("scale deployment scaled --replicas=5", r"^deployment.apps/scaled scaled$"),
    in_namespace("get deployment scaled -o jsonpath={.spec.replicas}", r"^5$"),
    in_namespace("scale deployment scaled --current-replicas=4 --replicas=6", r"[Ee]xpected replicas", fails=True),
    in_namespace("scale deployment scaled --current-replicas=5 --replicas=6", r"scaled$"),
    in_namespace("scale deployment scaled --replicas=7 --dry-run=server", r"scaled \(server dry run\)$"),
    in_namespace("get deployment scaled --subresource=scale", r"^NAME +DESIRED +AVAILABLE +AGE$", r"^scaled +6 +0 "),
    in_namespace(
        'patch deployment scaled --subresource=scale --type=merge -p {"spec":{"replicas":-1}}',
        r"spec.replicas: Invalid value: -1: must be greater than or equal to 0",
        fails=True,
    ),
    in_namespace("scale deployment missing --replicas=1", r'deployments.apps "missing" not found', fails=True),
    in_namespace("delete deployment scaled", r"deleted"),
]
DRAIN = [
    Check("create -f -", (r"created$",), stdin=NODE.replace("kubectl-checks-node", DRAINED_NODE)),
    *(
        Check(
            "create -f -",
            (rf"^pod/{name} created$",),
            stdin=DRAINED_POD.replace("NAME", name).replace("GUARDED", guarded),
        )
        for name, guarded in (("drained-one", "never"), ("drained-two", "always"))
    ),
    *(
        in_namespace(f"patch pod {name} --subresource=status -p {RUNNING}", r"patched$")
        for name in ("drained-one", "drained-two")
    ),
    in_namespace("create pdb guard --selector=guarded=always --min-available=1", r"^poddisruptionbudget.policy/guard"),
    in_namespace(f"patch pdb guard --subresource=status --type=merge -p {HEALTH}", r"patched"),
    in_namespace("get pdb", r"^NAME +MIN AVAILABLE +MAX UNAVAILABLE +ALLOWED DISRUPTIONS +AGE$", r"^guard +1 +N/A +0 "),
    Check(f"drain {DRAINED_NODE}", (r"cannot delete cannot delete Pods that declare no controller",), fails=True),
    Check(
        f"drain {DRAINED_NODE} --force --timeout=2s",
        (
            r"evicting pod kubectl-checks/drained-one",
            r"^pod/drained-one evicted$",
            r"drained-two.*will retry after 5s.*Cannot evict pod as it would violate the pod's disruption budget",
        ),
        fails=True,
    ),
    in_namespace("get pods -l guarded=never", r"No resources found"),
    in_namespace("get pod drained-two", r"^drained-two +0/1 +Running "),
    in_namespace("delete pdb guard", r"deleted"),
    Check(f"drain {DRAINED_NODE} --force --timeout=20s", (r"^pod/drained-two evicted$", r"drained$")),
    Check(f"get node {DRAINED_NODE}", (r"SchedulingDisabled",)),
    Check(f"delete node {DRAINED_NODE}", (r"deleted",)),
]
REMOVAL = [
    Check("create -f -", (r"^configmap/held created$",), stdin=FINALIZED),
    in_namespace("delete cm held --wait=false", r"deleted"),
    in_namespace("get cm held -o jsonpath={.metadata.deletionTimestamp}", r"^20\d\d-"),
    in_namespace('patch cm held --type=merge -p {"metadata":{"finalizers":null}}', r"patched"),
    in_namespace("get cm held", r"NotFound", fails=True),
    in_namespace("delete pod web", r'^pod "web" deleted'),
    in_namespace("get pod web", r"NotFound", fails=True),
    in_namespace("delete pods --all", r'pod "quick" deleted', r'pod "classy" deleted'),
    in_namespace("get pods", r"No resources found"),
    in_namespace("delete cm -l none=such", r"No resources found"),
    in_namespace("get events", r"No resources found"),
]
_OWNED = """
apiVersion: v1
kind: ConfigMap
metadata: {name: owned, namespace: kubectl-checks}
data: {a: "1", b: "1"}
"""
_OTHER = _OWNED.replace('a: "1"', 'a: "2"')
_ALONE = _OWNED.replace(', b: "1"', "")
_MANAGERS = "get cm owned -o jsonpath={.metadata.managedFields[*].manager}"
_CONFLICT = r'Apply failed with 1 conflict: conflict with "{}": .data.a'
SERVER_SIDE_APPLY = [
    Check("apply --server-side -f -", (r"^configmap/owned serverside-applied$",), stdin=_OWNED),
    Check("diff --server-side -f -", (), (r"data",), stdin=_OWNED),
    Check("diff --server-side -f -", (r'^-  a: "1"$', r'^\+  a: "2"$'), stdin=_OTHER, fails=True),
    Check("diff --server-side --field-manager=other -f -", (_CONFLICT.format("kubectl"),), stdin=_OTHER, fails=True),
    Check("apply --server-side --field-manager=other -f -", (_CONFLICT.format("kubectl"),), stdin=_OTHER, fails=True),
    Check("apply --server-side --field-manager=other --force-conflicts -f -", (r"serverside-applied$",), stdin=_OTHER),
    in_namespace(_MANAGERS, r"^kubectl other$|^other kubectl$"),
    Check("apply --server-side -f -", (_CONFLICT.format("other"),), stdin=_ALONE, fails=True),
    Check("apply --server-side --force-conflicts -f -", (r"serverside-applied$",), stdin=_ALONE),
    in_namespace("get cm owned -o jsonpath={.data}", r'^{"a":"1","b":"1"}$'),
    in_namespace("delete cm owned", r"deleted"),
    # What kubectl has applied by itself goes over to the server.
    Check("apply -f -", (r"created$",), stdin=_OWNED),
    in_namespace(_MANAGERS, r"^kubectl-client-side-apply$"),
    Check("apply --server-side -f -", (r"serverside-applied$",), stdin=_ALONE),
    in_namespace(_MANAGERS, r"^kubectl-last-applied kubectl$"),
    in_namespace("get cm owned -o jsonpath={.data}", r'^{"a":"1"}$'),
    in_namespace("get cm owned -o yaml --show-managed-fields", r"f:data:", r"operation: Apply"),
    Check("apply --server-side -f -", (r"field not declared in schema",), stdin=f"{_OWNED}other: 1", fails=True),
    in_namespace("delete cm owned", r"deleted"),
]
SERVER = [
    Check("version", (r"Server Version: v1\.35",)),
    Check("get --raw /healthz", (r"^ok",)),
    Check("get --raw /readyz", (r"^ok",)),
    Check("api-versions", (r"^v1$", r"^scheduling.k8s.io/v1$", r"^coordination.k8s.io/v1$")),
    Check(
        "api-resources",
        (
            r"^pods +po +v1 +true +Pod$",
            r"^nodes +no +v1 +false +Node$",
            r"^leases +coordination.k8s.io/v1 +true +Lease$",
        ),
    ),
    Check("auth can-i create pods", (r"^yes$",)),
    Check("get namespaces", (r"^NAME +STATUS +AGE$", r"^default +Active ", r"^kube-system +Active ")),
]

CHECKS = {
    "server": SERVER,
    "create and show": CREATE_AND_SHOW,
    "refusals": REFUSALS,
    "changes": CHANGES,
    "nodes": NODES,
    "priorities": PRIORITIES,
    "custom resources": CUSTOM_RESOURCES,
    "webhooks": WEBHOOKS,
    "secrets": SECRETS,
    "scale": SCALE,
    "drain": DRAIN,
    "server-side apply": SERVER_SIDE_APPLY,
    "removal": REMOVAL,
}
