{{/* The values, complete and checked. Templates read these alone, as `include "koordinator.values" . | fromJson`: what
     Helm has need not have every key of values.yaml. `helm upgrade --reuse-values` leaves out what the release before
     had not, and null takes a key away. A template that goes by such a key as if it were off leaves objects out, and
     Helm deletes them. known-values.yaml is made from values.yaml and from the names of values.schema.json. */}}
{{- define "koordinator.values" -}}
{{- $known := .Files.Get "known-values.yaml" | fromYaml -}}
{{- $values := .Values | toJson | fromJson -}}
{{- $unknown := include "koordinator.unknown" (list "" $values $known.names) -}}
{{- include "koordinator.complete" (list $values $known.defaults $known.names) -}}
{{- $problems := print $unknown (include "koordinator.unusableGates" (list . $values)) (include "koordinator.foreignImages" $values) -}}
{{- with $problems -}}
{{- fail (printf "values that cannot be used:%s" .) -}}
{{- /* `helm lint` passes over what fails. It stops at a template that is missing, and prints its name. */ -}}
{{- include . $values -}}
{{- end -}}
{{- toJson $values -}}
{{- end -}}

{{/* Adds to a mapping of values what it lacks, or has as null: (list values defaults names). What has no names below it
     is one value, and is left as it is: resources without limits have none. */}}
{{- define "koordinator.complete" -}}
{{- $values := index . 0 -}}
{{- $names := index . 2 -}}
{{- range $name, $default := index . 1 -}}
{{- $value := index $values $name -}}
{{- if kindIs "invalid" $value -}}
{{- $_ := set $values $name $default -}}
{{- else if and (kindIs "map" (index $names $name)) (kindIs "map" $value) -}}
{{- include "koordinator.complete" (list $value $default (index $names $name)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A line for each value whose name is not known: (list prefix values names). */}}
{{- define "koordinator.unknown" -}}
{{- $prefix := index . 0 -}}
{{- $names := index . 2 -}}
{{- range $name, $value := index . 1 -}}
{{- if not (hasKey $names $name) }}
- {{ $prefix }}{{ $name }}: unknown value; {{ include "koordinator.suggestion" (list $prefix $name (keys $names)) }}
{{- else if and (kindIs "map" (index $names $name)) (kindIs "map" $value) -}}
{{- include "koordinator.unknown" (list (printf "%s%s." $prefix $name) $value (index $names $name)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A line for each feature gate that its program does not take: (list root values). */}}
{{- define "koordinator.unusableGates" -}}
{{- $values := index . 1 -}}
{{- range $name, $gates := (index . 0).Files.Get "feature-gates.yaml" | fromYaml -}}
{{- $given := $values -}}
{{- range splitList "." $name }}{{ $given = index $given . }}{{ end -}}
{{- range splitList "," $given -}}
{{- $gate := splitList "=" . | first | trim -}}
{{- if not (regexMatch "^\\s*([^=]+=\\s*(true|True|TRUE|t|T|1|false|False|FALSE|f|F|0)\\s*)?$" .) }}
- {{ $name }}: {{ trim . }} is no feature gate; write NAME=true or NAME=false, with commas in between
{{- else if and $gate (not (has $gate $gates)) }}
- {{ $name }}: unknown feature gate {{ $gate }}; {{ include "koordinator.suggestion" (list "" $gate $gates) }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A line for each image that is not this project's, which has no use for the arguments in this chart. */}}
{{- define "koordinator.foreignImages" -}}
{{- $values := . -}}
{{- $lines := list -}}
{{- range list "manager" "scheduler" "descheduler" "koordlet" "deviceDaemon" "dashboard" -}}
{{- $program := index $values . -}}
{{- if and $program.enabled (regexMatch "(^|/)koordinator-sh/" $program.image.repository) -}}
{{- $lines = append $lines (printf "- %s.image.repository: %s is an image of the Go original" . $program.image.repository) -}}
{{- else if and $program.enabled (eq $values.imageRepositoryHost "registry.cn-beijing.aliyuncs.com") (not (contains "/" $program.image.repository)) -}}
{{- $lines = append $lines (printf "- imageRepositoryHost: %s has the images of the Go original, and no %s" $values.imageRepositoryHost $program.image.repository) -}}
{{- end -}}
{{- end -}}
{{- if $lines }}
{{ uniq $lines | join "\n" }}
  Name images of this project, or leave image out of your values, and imageRepositoryHost of the registry that has them. Where `helm upgrade --reuse-values` keeps those of the release before it, use --reset-then-reuse-values (docs/helm.md, Upgrade).
{{- end -}}
{{- end -}}

{{/* Which of some names may have been meant by another one: (list prefix name names). */}}
{{- define "koordinator.suggestion" -}}
{{- $prefix := index . 0 -}}
{{- $names := index . 2 | sortAlpha -}}
{{- $pairs := include "koordinator.pairs" (index . 1) | splitList "\n" -}}
{{- $nearest := "" -}}
{{- $likeness := 0 -}}
{{- range $names -}}
{{- $others := include "koordinator.pairs" . | splitList "\n" -}}
{{- $shared := 0 -}}
{{- range $pairs }}{{ if has . $others }}{{ $shared = add1 $shared }}{{ end }}{{ end -}}
{{- $found := div (mul 200 $shared) (add (len $pairs) (len $others)) -}}
{{- if gt $found $likeness }}{{ $nearest = . }}{{ $likeness = $found }}{{ end -}}
{{- end -}}
{{- if ge $likeness 50 -}}
did you mean {{ $prefix }}{{ $nearest }}?
{{- else if lt (len $names) 50 -}}
known are {{ join ", " $names }}
{{- else -}}
feature-gates.yaml of the chart has those that are known
{{- end -}}
{{- end -}}

{{/* The pairs of neighbouring letters of a name, one on each line: names that are alike share most of them. */}}
{{- define "koordinator.pairs" -}}
{{- $letters := printf "^%s$" (lower .) | splitList "" -}}
{{- range $place, $letter := rest $letters }}{{ index $letters $place }}{{ $letter }}
{{ end -}}
{{- end -}}

{{/* "true" for a live object that is part of this release, from a list: the root context, and the object. Helm deletes
     it when it is not rendered any more. */}}
{{- define "koordinator.isReleased" -}}
{{- $release := (index . 0).Release -}}
{{- $annotations := dig "metadata" "annotations" dict (index . 1 | default dict) -}}
{{- if and (eq (dig "meta.helm.sh/release-name" "" $annotations) $release.Name) (eq (dig "meta.helm.sh/release-namespace" "" $annotations) $release.Namespace) -}}
true
{{- end -}}
{{- end -}}
