{{/*
For charts that have this one among their dependencies, with `mode: sidecar`. Each is given the including chart's own
context, or `.Subcharts.ALIAS` where the dependency has another name:

    template:
      metadata:
        annotations: {{- include "interlingua.annotations" . | nindent 8 }}
      spec:
        initContainers: {{- include "interlingua.sidecar" . | nindent 8 }}
        volumes: {{- include "interlingua.volumes" . | nindent 8 }}
*/}}

{{/* An item of `initContainers`: the gateway, as a native sidecar. */}}
{{- define "interlingua.sidecar" -}}
{{- $here := . -}}
{{- if hasKey .Subcharts "interlingua" }}{{ $here = .Subcharts.interlingua }}{{ end -}}
{{- if ne $here.Values.mode "sidecar" }}{{ fail (printf "%s.mode: it is included in a pod, so say sidecar" $here.Chart.Name) }}{{ end -}}
{{- include "interlingua.refuse" $here -}}
- {{ include "interlingua.container" $here | indent 2 | trim }}
{{- end -}}

{{/* Items of `volumes`. */}}
{{- define "interlingua.volumes" -}}
{{- $here := . -}}
{{- if hasKey .Subcharts "interlingua" }}{{ $here = .Subcharts.interlingua }}{{ end -}}
{{- include "interlingua.podVolumes" $here -}}
{{- end -}}

{{/* Annotations of the pod, by which it is replaced when a section changes that is not taken without a restart. */}}
{{- define "interlingua.annotations" -}}
{{- $here := . -}}
{{- if hasKey .Subcharts "interlingua" }}{{ $here = .Subcharts.interlingua }}{{ end -}}
checksum/interlingua: {{ include "interlingua.checksum" $here }}
{{- end -}}

{{/* For `terminationGracePeriodSeconds`: the agent's end, and then the gateway's. */}}
{{- define "interlingua.gracePeriod" -}}
{{- $here := . -}}
{{- if hasKey .Subcharts "interlingua" }}{{ $here = .Subcharts.interlingua }}{{ end -}}
{{- include "interlingua.grace" $here -}}
{{- end -}}
