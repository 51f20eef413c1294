"""The examples of Koordinator's documentation, word for word: its priority classes and its Spark profile."""

from __future__ import annotations

import json

import yaml

from koordinator.api.document import Document
from koordinator.manager.webhook.pod.mutating import PodMutatingHandler
from koordinator.manager.webhook.pod.validating import PodValidatingHandler
from tests.manager.webhook.small_cluster import NoQuotaTrees, SmallCluster, request_for

PRIORITY_CLASSES = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata:
  name: koord-prod
value: 9000
description: "This priority class should be used for prod service pods only."
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata:
  name: koord-mid
value: 7000
description: "This priority class should be used for mid service pods only."
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata:
  name: koord-batch
value: 5000
description: "This priority class should be used for batch service pods only."
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata:
  name: koord-free
value: 3000
description: "This priority class should be used for free service pods only."
"""
PROFILE = """
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata:
  name: spark-demo
spec:
  namespaceSelector:
    matchLabels:
      koordinator.sh/enable-colocation: "true"
  selector:
    matchLabels:
      sparkoperator.k8s.io/launched-by-spark-operator: "true"
  qosClass: BE
  priorityClassName: koord-batch
  koordinatorPriority: 1000
  schedulerName: koord-scheduler
"""
SPARK_EXECUTOR = """
apiVersion: v1
kind: Pod
metadata:
  name: spark-tc-simple-exec-1
  namespace: spark-demo
  labels:
    sparkoperator.k8s.io/launched-by-spark-operator: "true"
    version: 3.2.1
spec:
  containers:
  - name: spark-kubernetes-executor
    image: docker.io/koordinatorsh/spark:v3.2.1-koord-examples
    resources:
      limits:
        cpu: "1"
        memory: 3456Mi
      requests:
        cpu: "1"
        memory: 3456Mi
    volumeMounts:
    - mountPath: /tmp
      name: test-volume
  volumes:
  - name: test-volume
    hostPath:
      path: /tmp
      type: Directory
"""
BATCH = {"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "3456Mi"}


def admitted() -> Document:
    cluster = SmallCluster(yaml.safe_load(PROFILE))
    cluster.namespaces["spark-demo"] = {"koordinator.sh/enable-colocation": "true"}
    for document in yaml.safe_load_all(PRIORITY_CLASSES):
        cluster.add_priority_class(document)
    handler = PodMutatingHandler(cluster, NoQuotaTrees(), lambda: 0)
    response = handler.handle(request_for(yaml.safe_load(SPARK_EXECUTOR)))
    assert response.allowed
    assert not response.warnings
    assert response.changed is not None
    return response.changed


def test_a_plain_spark_pod_becomes_a_batch_pod() -> None:
    wanted = yaml.safe_load(SPARK_EXECUTOR)
    wanted["metadata"]["labels"].update({"koordinator.sh/qosClass": "BE", "koordinator.sh/priority": "1000"})
    recorded = {"containers": {"spark-kubernetes-executor": {"limits": BATCH, "requests": BATCH}}}
    wanted["metadata"]["annotations"] = {
        "node.koordinator.sh/extended-resource-spec": json.dumps(recorded, separators=(",", ":"))
    }
    wanted["spec"].update(priorityClassName="koord-batch", priority=5000, schedulerName="koord-scheduler")
    wanted["spec"]["containers"][0]["resources"] = {"limits": BATCH, "requests": BATCH}
    assert admitted() == wanted


def test_what_it_becomes_is_valid() -> None:
    assert PodValidatingHandler().handle(request_for(admitted())).allowed
