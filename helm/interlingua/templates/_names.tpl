{{/* What things are called, and the labels by which they are found. */}}

{{- define "interlingua.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "interlingua.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "interlingua.name" . -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "interlingua.selector" -}}
app.kubernetes.io/name: {{ include "interlingua.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "interlingua.labels" -}}
{{ include "interlingua.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: gateway
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "interlingua.metadata" -}}
name: {{ include "interlingua.fullname" . }}
namespace: {{ .Release.Namespace }}
labels: {{- include "interlingua.labels" . | nindent 2 }}
{{- end -}}

{{- define "interlingua.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "interlingua.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "interlingua.scheme" -}}
{{- ternary "https" "http" (ne .Values.tls.secret "") -}}
{{- end -}}

{{/* Whether the store is PostgreSQL, and whether there may be more than one pod: "true" or nothing. */}}
{{- define "interlingua.shared" -}}
{{- if or .Values.store.url .Values.store.secret.name }}true{{ end -}}
{{- end -}}

{{- define "interlingua.several" -}}
{{- if or (gt (int .Values.replicas) 1) .Values.autoscaling.enabled }}true{{ end -}}
{{- end -}}

{{/* Which pods have a gateway, as labels. */}}
{{- define "interlingua.watched" -}}
{{- if and (eq .Values.mode "sidecar") .Values.sidecar.podSelector -}}
{{- toYaml .Values.sidecar.podSelector -}}
{{- else if eq .Values.mode "sidecar" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- else -}}
{{- include "interlingua.selector" . -}}
{{- end -}}
{{- end -}}

{{/* Ends with a sentence where values do not fit together. */}}
{{- define "interlingua.refuse" -}}
{{- if include "interlingua.shared" . -}}
{{- if and .Values.store.url .Values.store.secret.name }}{{ fail "store: give url or secret, not both" }}{{ end -}}
{{- $password := regexFind "^[a-z]+://[^/@:]*:[^@]*@" .Values.store.url -}}
{{- if and $password (not (regexMatch ":\\$\\{[^}]+\\}@$" $password)) -}}
{{- fail "store.url has a password in it, and a ConfigMap is no place for one: write it as a variable (postgresql://user:${PASSWORD}@...) that one of `secrets` has, or name the Secret of the whole URL in store.secret" -}}
{{- end -}}
{{- else if include "interlingua.several" . -}}
{{- fail "SQLite has one gateway: give store.url or store.secret (PostgreSQL) for several replicas, or replicas: 1 without autoscaling" -}}
{{- end -}}
{{- if hasKey (.Values.config.store | default dict) "url" }}{{ fail "config.store.url: the chart writes it, of store.url, store.secret or persistence" }}{{ end -}}
{{- if and (eq .Values.mode "standalone") (eq .Values.host "127.0.0.1") }}{{ fail "host: nobody would reach a standalone gateway at 127.0.0.1" }}{{ end -}}
{{- if and .Values.autoscaling.enabled (lt (int .Values.autoscaling.maxReplicas) (int .Values.autoscaling.minReplicas)) }}{{ fail "autoscaling: maxReplicas is less than minReplicas" }}{{ end -}}
{{- if and .Values.autoscaling.enabled (not (or .Values.autoscaling.cpu .Values.autoscaling.activeRuns)) }}{{ fail "autoscaling: give cpu or activeRuns to judge by" }}{{ end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) }}{{ fail "ingress.hosts: name at least one" }}{{ end -}}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) }}{{ fail "httpRoute.parentRefs: name the Gateway, as [{name: ..., namespace: ...}]" }}{{ end -}}
{{- end -}}
