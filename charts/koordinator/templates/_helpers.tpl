{{/* The image of a program, from a list: the root context, and the program's values. */}}
{{- define "koordinator.image" -}}
{{- $root := index . 0 -}}
{{- $image := (index . 1).image -}}
{{- if hasPrefix "koordinator-sh/" $image.repository -}}
{{- fail (printf "image.repository %s is an image of the Go original, which this chart's arguments are not for: leave image, tag and imageRepositoryHost out of your values, or name an image of this project (docs/install.md)" $image.repository) -}}
{{- end -}}
{{- with $root.Values.imageRepositoryHost }}{{ . | trimSuffix "/" }}/{{ end -}}
{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end -}}

{{/* "true" where a list of feature gates switches one on: (list gates name). */}}
{{- define "koordinator.gate" -}}
{{- range splitList "," (index . 0) -}}
{{- if regexMatch (printf "^\\s*%s\\s*=\\s*(?i:true|t|1)\\s*$" (index $ 1)) . }}true{{ end -}}
{{- end -}}
{{- end -}}

{{/* What the pods of the three Deployments have in common: (list root name values). */}}
{{- define "koordinator.pod" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $values := index . 2 -}}
serviceAccountName: {{ $name }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
# Without it the pods that it places, admits or moves could preempt it.
priorityClassName: system-cluster-critical
{{- if $values.hostNetwork }}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
nodeSelector:
  {{- merge (dict) $values.nodeSelector (dict "kubernetes.io/os" "linux") | toYaml | nindent 2 }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.nodeAffinity }}
affinity:
  nodeAffinity:
    {{- toYaml . | nindent 4 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - topologyKey: {{ . }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        koord-app: {{ $name }}
    matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end -}}

{{/* A container that needs no right on its node. */}}
{{- define "koordinator.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* How Deployments are replaced: new replicas first. */}}
{{- define "koordinator.rollout" -}}
minReadySeconds: 3
strategy:
  type: RollingUpdate
  rollingUpdate:
    maxSurge: 100%
    maxUnavailable: 0
{{- end -}}

{{/* One replica at a time may be evicted: (list root name). */}}
{{- define "koordinator.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ index . 1 }}
  namespace: {{ (index . 0).Values.installation.namespace | quote }}
spec:
  maxUnavailable: 1
  # A replica that never gets ready must not keep its node from being drained.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      koord-app: {{ index . 1 }}
{{- end -}}

{{/* Where pods of a DaemonSet run: (list root values). */}}
{{- define "koordinator.nodes" -}}
{{- $values := index . 1 -}}
priorityClassName: system-node-critical
{{- with (index . 0).Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
nodeSelector:
  {{- merge (dict) $values.nodeSelector (dict "kubernetes.io/os" "linux") | toYaml | nindent 2 }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.nodeAffinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Whether a program works, at a port. */}}
{{- define "koordinator.probes" -}}
readinessProbe:
  httpGet:
    path: /readyz
    port: {{ . }}
livenessProbe:
  httpGet:
    path: /livez
    port: {{ . }}
  initialDelaySeconds: 15
  timeoutSeconds: 15
{{- end -}}
