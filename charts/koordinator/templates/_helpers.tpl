{{/* The image of a program, from a list: the root context, all values, and the program's. */}}
{{- define "koordinator.image" -}}
{{- $image := (index . 2).image -}}
{{- with (index . 1).imageRepositoryHost }}{{ . | trimSuffix "/" }}/{{ end -}}
{{ $image.repository }}:{{ $image.tag | default (index . 0).Chart.AppVersion }}{{ with $image.digest }}@{{ . }}{{ end }}
{{- end -}}

{{/* The labels of a program beside those that select it: (list root name). */}}
{{- define "koordinator.labels" -}}
app.kubernetes.io/name: {{ index . 1 }}
app.kubernetes.io/part-of: koordinator
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
{{- end -}}

{{/* Those of its pods, which stay the same in an upgrade: (list name program). */}}
{{- define "koordinator.podLabels" -}}
app.kubernetes.io/name: {{ index . 0 }}
app.kubernetes.io/part-of: koordinator
{{- with (index . 1).podLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Prometheus scrapes the pods of a program: (list values name). */}}
{{- define "koordinator.podMonitor" -}}
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: {{ index . 1 }}-metrics-podmonitor
  namespace: {{ (index . 0).installation.namespace | quote }}
spec:
  selector:
    matchLabels:
      koord-app: {{ index . 1 }}
  podMetricsEndpoints:
    - port: metrics
      path: /metrics
      interval: 30s
      {{- if eq (index . 2) "https" }}
      scheme: https
      # The program has made its certificate for itself.
      tlsConfig:
        insecureSkipVerify: true
      bearerTokenSecret:
        name: koordinator-metrics
        key: token
      {{- end }}
{{- end -}}

{{/* "true" where a list of feature gates switches one on: (list gates name). */}}
{{- define "koordinator.gate" -}}
{{- range splitList "," (index . 0) -}}
{{- if regexMatch (printf "^\\s*%s\\s*=\\s*(?i:true|t|1)\\s*$" (index $ 1)) . }}true{{ end -}}
{{- end -}}
{{- end -}}

{{/* What the pods of the Deployments have in common: (list values name program). */}}
{{- define "koordinator.pod" -}}
{{- $name := index . 1 -}}
{{- $program := index . 2 -}}
serviceAccountName: {{ $name }}
{{- with (index . 0).imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- /* Nothing in the cluster depends on the page, and it has one replica. */}}
{{- $works := ne $name "koord-page" }}
{{- if $works }}
# Without it the pods that it places, admits or moves could preempt it.
priorityClassName: system-cluster-critical
{{- end }}
{{- if $program.hostNetwork }}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
nodeSelector:
  {{- merge (dict) $program.nodeSelector (dict "kubernetes.io/os" "linux") | toYaml | nindent 2 }}
{{- with $program.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with merge (dict) $program.affinity (ternary (dict "nodeAffinity" $program.nodeAffinity) (dict) (not (empty $program.nodeAffinity))) }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  {{- if ($program.audit | default dict).persistentVolumeClaim }}
  # A volume is root's, unless it is given to the group of the process.
  fsGroup: 65532
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
{{- if $works }}
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

{{/* One replica at a time may be evicted: (list values name). */}}
{{- define "koordinator.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ index . 1 }}
  namespace: {{ (index . 0).installation.namespace | quote }}
spec:
  maxUnavailable: 1
  # A replica that never gets ready must not keep its node from being drained.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      koord-app: {{ index . 1 }}
{{- end -}}

{{/* Where pods of a DaemonSet run: (list values program). */}}
{{- define "koordinator.nodes" -}}
{{- $program := index . 1 -}}
priorityClassName: system-node-critical
{{- with (index . 0).imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
nodeSelector:
  {{- merge (dict) $program.nodeSelector (dict "kubernetes.io/os" "linux") | toYaml | nindent 2 }}
{{- with $program.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with merge (dict) $program.affinity $program.nodeAffinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Whether a program works: (list port scheme), which is empty for HTTP. */}}
{{- define "koordinator.probes" -}}
readinessProbe:
  httpGet:
    path: /readyz
    port: {{ index . 0 }}
    {{- with index . 1 }}
    scheme: {{ . }}
    {{- end }}
livenessProbe:
  httpGet:
    path: /livez
    port: {{ index . 0 }}
    {{- with index . 1 }}
    scheme: {{ . }}
    {{- end }}
  initialDelaySeconds: 15
  timeoutSeconds: 15
{{- end -}}
