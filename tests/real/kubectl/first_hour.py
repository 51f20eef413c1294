"""What a new user tries on the embedded API: each command does its work or says in plain words why it cannot."""

from __future__ import annotations

from tests.real.kubectl.runner import Check

NODE = """
apiVersion: v1
kind: Node
metadata: {name: tried}
status:
  allocatable: {cpu: "4", memory: 8Gi, pods: "110"}
  nodeInfo: {containerRuntimeVersion: simulated://1.0.0}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec: {nodeName: tried, terminationGracePeriodSeconds: 0, containers: [{name: main, image: nginx}]}
"""
RUNNING = '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}'
MISTYPED = POD.replace("image: nginx", "image: nginx, imagee: nginx")


def _simulated(command: str, lack: str) -> Check:
    return Check(command, (rf'pod "web" is simulated: it has no containers, so {lack}',), fails=True)


SIMULATED_PODS = [
    Check("apply -f -", (r"created$",), stdin=NODE),
    Check("apply -f -", (r"created$",), stdin=POD),
    Check(f"patch pod web --subresource=status -p {RUNNING}", (r"patched$",)),
    _simulated("logs web", "there are no logs; kubectl describe shows its status and events"),
    _simulated("logs -f web -c main", "there are no logs"),
    _simulated("logs -l app=web", "there are no logs"),
    _simulated("exec web -- ls", "no command can run in it"),
    _simulated("attach web", "there is nothing to attach to"),
    _simulated("port-forward pod/web 17499:80", "there is no port to forward to"),
    _simulated("cp /etc/hostname web:/tmp/x", "no command can run in it"),
    Check("debug web --image=busybox -c helper", ()),
    Check("get pod web -o jsonpath={.spec.ephemeralContainers[*].name}", (r"^helper$",)),
    Check("logs missing", (r'pods "missing" not found',), fails=True),
    Check("get --raw /api/v1/nodes/tried/proxy/stats/summary", (r'node "tried" is simulated',), fails=True),
    Check("create sa robot", (r"created$",)),
    Check("create token robot", (r"^eyJ",)),
    Check("create token nobody", (r'serviceaccounts "nobody" not found',), fails=True),
]
VALIDATION = [
    Check("apply --validate=true -f -", (r'strict decoding error: unknown field "spec.containers\[0\].imagee"',),
          stdin=MISTYPED, fails=True),
    Check("apply --validate=warn -f -", (r'Warning: unknown field "spec.containers\[0\].imagee"', r"^pod/web "),
          stdin=MISTYPED),
    Check("apply --validate=ignore -f -", (r"^pod/web ",), (r"Warning",), stdin=MISTYPED),
    Check("create -f -", (r'strict decoding error: unknown field "spec.containers\[0\].imagee"',),
          stdin=MISTYPED.replace("name: web", "name: other"), fails=True),
    Check("apply -f -", (r'no matches for kind "Pud" in version "v1"', r"ensure CRDs are installed first"),
          stdin=POD.replace("Pod", "Pud"), fails=True),
    Check("apply -f -", (r'no matches for kind "Pod" in version "example.com/v1"',),
          stdin=POD.replace("v1", "example.com/v1"), fails=True),
    Check("apply --server-side -f -", (r"^pod/web serverside-applied$",), stdin=POD),
    Check("explain pod --output=plaintext-openapiv2", (r"^KIND: +Pod$", r"^ +spec\s+<Object>")),
]  # fmt: skip

_NO_PODS = r"Warning: no controller in this cluster creates the pods of a {}: create pods directly"


def _without_pods(command: str, kind: str) -> Check:
    return Check(command, (_NO_PODS.format(kind), r"created$"))


MISSING_CONTROLLERS = [
    _without_pods("create deployment d --image=nginx", "Deployment"),
    _without_pods("create job j --image=busybox", "Job"),
    _without_pods("create cronjob c --image=busybox --schedule=@daily", "CronJob"),
    Check("create service clusterip s --tcp=80:80", (r"Warning: no controller .* as its endpoints", r"created$")),
    Check("expose deployment d --name=e --port=80", (r"Warning: .* as its endpoints", r"exposed$")),
    Check("autoscale deployment d --max=3", (r"Warning: .* change replicas with kubectl scale", r"autoscaled$")),
    Check(
        "get hpa",
        (
            r"^NAME +REFERENCE +TARGETS +MINPODS +MAXPODS +REPLICAS +AGE",
            r"^d +Deployment/d +cpu: <unknown>/80% +1 +3 +0 ",
        ),
    ),
    Check("describe hpa d", (r"^Reference: +Deployment/d$", r"^Max replicas: +3$")),
    Check("rollout status deployment/d --timeout=1s", (r"timed out waiting",), fails=True),
    Check("rollout history deployment/d", (r"No rollout history found",)),
    Check("rollout restart deployment/d", (r"restarted$",)),
    Check("rollout undo deployment/d", (r'no rollout history found for deployment "d"',), fails=True),
]

_LIMITED = "image: nginx, resources: {limits: {memory: 768Mi}}"

NODE_METRIC = """
apiVersion: slo.koordinator.sh/v1alpha1
kind: NodeMetric
metadata: {name: tried}
spec: {metricCollectPolicy: {aggregateDurationSeconds: 300, reportIntervalSeconds: 60}}
"""
_USAGE = (
    '{"status":{"updateTime":"$now",'
    '"nodeMetric":{"nodeUsage":{"resources":{"cpu":"1","memory":"2Gi"}}},'
    '"podsMetric":[{"namespace":"default","name":"web","podUsage":{"resources":{"cpu":"250m","memory":"64Mi"}}}]}}'
)
TOP = [
    Check("top nodes", (r"metrics not available yet",), fails=True),
    Check("apply -f config/crd/slo.koordinator.sh_nodemetrics.yaml", (r"created$",)),
    Check("apply -f -", (r"created$",), stdin=NODE_METRIC),
    Check(f"patch nodemetric tried --subresource=status --type=merge -p {_USAGE}", (r"patched$",)),
    Check(
        "top nodes",
        (r"^NAME +CPU\(cores\) +CPU\(%\) +MEMORY\(bytes\) +MEMORY\(%\)", r"^tried +1000m +25% +2048Mi +25%"),
    ),
    Check("top node tried --sort-by=cpu", (r"^tried +1000m",)),
    Check("top pods", (r"^NAME +CPU\(cores\) +MEMORY\(bytes\)", r"^web +250m +64Mi")),
    Check("top pods -A", (r"^default +web +250m +64Mi",)),
    Check("top pod web --containers", (r"^web +main +250m +64Mi",)),
    Check("top pods -l app=other", (r"No resources found",)),
    Check(
        "top pod missing",
        (r'podmetrics.metrics.k8s.io "default/missing" not found|pods "missing" not found',),
        fails=True,
    ),
    Check("get nodes.metrics.k8s.io", (r"^NAME +CPU +MEMORY +WINDOW", r"^tried +1 +2Gi +5m0s")),
    Check("get nodemetrics", (r"^NAME +CPU +MEMORY +REPORTED +AGE", r"^tried +1 +2Gi +\ds +\d+s"), (r"WINDOW",)),
    Check("get nodes", (r"^NAME +STATUS +ROLES",)),
    Check("explain nodes --api-version=metrics.k8s.io/v1beta1", (r"^ +What one node uses, as its NodeMetric last",)),
]

EXPLAIN = [
    Check("explain pod", (r"^ +Containers that run together on one node",), (r"<empty>",)),
    Check(
        "explain pod.spec.tolerations", (r"^FIELD: tolerations <\[\]Toleration>", r"Taints of nodes that do not keep")
    ),
    Check("explain pod.spec.containers.resources", (r"^ +How much CPU, memory and other resources",), (r"<empty>",)),
    Check("explain pods --recursive", (r"^ +priorityClassName\s<string>",)),
    Check("explain node.spec.taints", (r"^ +Keep pods away that do not tolerate them",)),
    Check("explain priorityclass.value", (r"5000-5999 batch",)),
    Check("explain quota.spec.hard", (r"^ +The most of each: pods, requests.cpu",)),
    Check("explain deployment.spec.replicas", (r"^ +How many; 1 when absent",)),
    Check("explain nodemetric", (r"^ +What one node and its pods use",), (r"<empty>", r"<no description>")),
    Check("explain nodemetrics.status.podsMetric.podUsage", (r"^ +The usage of the whole pod",), (r"<empty>",)),
    Check("explain nosuch", (r"doesn't have a resource type \"nosuch\"",), fails=True),
    Check("explain pod.nosuch", (r'field "nosuch" does not exist',), fails=True),
]
QUOTA = [
    Check("create namespace small", (r"created$",)),
    Check("-n small create quota few --hard=pods=1,limits.memory=1Gi", (r"few created$",), (r"Warning",)),
    Check("-n small run one --image=nginx", (r'failed quota: few: must specify limits.memory for: one',), fails=True),
    Check("-n small create -f -", (r"created$",), stdin=POD.replace("image: nginx", _LIMITED)),
    Check("-n small create -f -", (r"exceeded quota: few, requested: limits.memory=768Mi,pods=1, used:",),
          stdin=POD.replace("image: nginx", _LIMITED).replace("web", "two"), fails=True),
    Check("-n small wait --for=jsonpath={.status.used.pods}=1 quota/few --timeout=10s", (r"condition met",)),
    Check("-n small get quota", (r"^NAME +REQUEST +LIMIT +AGE", r"^few +pods: 1/1 +limits.memory: 768Mi/1Gi +")),
    Check("-n small describe quota few", (r"^limits.memory +768Mi +1Gi$", r"^pods +1 +1$")),
    Check("describe namespace small", (r"^ +pods +1 +1$",)),
]  # fmt: skip

OTHERS = [
    Check("auth can-i create pods", (r"^yes$",)),
    Check("auth can-i create pods --as=bob", (r"impersonation works with --authorization-mode=RBAC",), fails=True),
    Check("auth whoami", (r"^Username +admin$",)),
    Check("api-resources", (r"^pods +po +v1 +true +Pod$", r"^nodes +metrics.k8s.io/v1beta1 +false +NodeMetrics$")),
    Check("cluster-info", (r"Kubernetes control plane is running at",)),
    Check("cluster-info dump", (r'"kind": "NodeList"', r'"kind": "PodList"')),
    Check("diff -f -", (r"^\+ +note: changed$",), stdin=POD.replace("app: web", "app: web, note: changed"), fails=True),
    Check("get events", (r"No resources found|^LAST SEEN",)),
    Check("describe node tried", (r"^Name: +tried$", r"^ +default +web ")),
    Check("describe pod web", (r"^Status: +Running$",)),
    Check("get hpa,quota,limits,netpol,pdb,ingress,endpoints,sc,pv,pvc -A", (r"^NAMESPACE +NAME",)),
]  # fmt: skip

FIRST_HOUR = {
    "simulated pods": SIMULATED_PODS,
    "validation": VALIDATION,
    "missing controllers": MISSING_CONTROLLERS,
    "top": TOP,
    "explain": EXPLAIN,
    "quota": QUOTA,
    "others": OTHERS,
}
