{{/* Written by `make manifests` from koordinator.api: what the definitions define. */}}
{{- define "koordinator.customResources" -}}
slo.koordinator.sh/v1alpha1/nodemetrics
slo.koordinator.sh/v1alpha1/nodeslos
config.koordinator.sh/v1alpha1/clustercolocationprofiles
scheduling.koordinator.sh/v1alpha1/reservations
scheduling.koordinator.sh/v1alpha1/devices
scheduling.koordinator.sh/v1alpha1/podmigrationjobs
scheduling.koordinator.sh/v1alpha1/drainnodes
scheduling.koordinator.sh/v1alpha1/drainnodegroups
scheduling.sigs.k8s.io/v1alpha1/podgroups
scheduling.sigs.k8s.io/v1alpha1/elasticquotas
quota.koordinator.sh/v1alpha1/elasticquotaprofiles
topology.node.k8s.io/v1alpha1/noderesourcetopologies
topology.node.k8s.io/v1alpha2/noderesourcetopologies
scheduling.koordinator.sh/v1alpha1/clusternetworktopologies
analysis.koordinator.sh/v1alpha1/recommendations
scheduling.koordinator.sh/v1alpha1/scheduleexplanations
{{- end -}}
