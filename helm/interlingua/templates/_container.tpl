{{/* The gateway's container, which is the same on its own and beside an agent. */}}
{{- define "interlingua.container" -}}
{{- $loopback := eq .Values.host "127.0.0.1" -}}
name: {{ ternary "interlingua" "gateway" (eq .Values.mode "sidecar") }}
image: {{ .Values.image.repository }}{{ ternary (printf "@%s" .Values.image.digest) (printf ":%s" (.Values.image.tag | default .Chart.AppVersion)) (ne .Values.image.digest "") }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- if eq .Values.mode "sidecar" }}
restartPolicy: Always  # a sidecar: it is up before the agent starts, and stops after the agent has
{{- end }}
args:
  - serve
  - /etc/interlingua/routes.yaml
  - --host
  - {{ .Values.host | quote }}
  - --port
  - {{ .Values.port | quote }}
  - --log-format
  - json
  - --log-level
  - {{ .Values.logLevel }}
  {{- if gt (int .Values.workers) 1 }}
  - --workers
  - {{ .Values.workers | quote }}
  {{- end }}
  {{- if .Values.tls.secret }}
  - --tls-cert
  - /tls/tls.crt
  - --tls-key
  - /tls/tls.key
  {{- end }}
  {{- range .Values.extraArgs }}
  - {{ . | quote }}
  {{- end }}
env:
  - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  - {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
  - {name: OTEL_RESOURCE_ATTRIBUTES, value: "k8s.namespace.name=$(POD_NAMESPACE),k8s.pod.name=$(POD_NAME)"}
  {{- with .Values.store.secret }}
  {{- if .name }}
  - name: INTERLINGUA_STORE_URL
    valueFrom: {secretKeyRef: {name: {{ .name }}, key: {{ .key }}}}
  {{- end }}
  {{- end }}
  {{- with .Values.monitoring.secret }}
  {{- if .name }}
  - name: INTERLINGUA_SCRAPE_TOKEN
    valueFrom: {secretKeyRef: {name: {{ .name }}, key: {{ .key }}}}
  {{- end }}
  {{- end }}
  {{- with .Values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if or .Values.secrets .Values.envFrom }}
envFrom:
  {{- range .Values.secrets }}
  - secretRef: {name: {{ . }}}
  {{- end }}
  {{- with .Values.envFrom }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
ports:
  - {name: interlingua, containerPort: {{ .Values.port }}, protocol: TCP}
{{- if and (eq .Values.mode "standalone") .Values.preStopSeconds }}
lifecycle:
  preStop: {sleep: {seconds: {{ .Values.preStopSeconds }}}}  # until no Service sends anybody here any more
{{- end }}
startupProbe:
  {{- include "interlingua.probe" (list . "/healthz") | nindent 2 }}
  periodSeconds: 1
  timeoutSeconds: {{ ternary 5 1 $loopback }}
  failureThreshold: {{ .Values.startupSeconds }}
livenessProbe:
  {{- include "interlingua.probe" (list . "/healthz") | nindent 2 }}
  timeoutSeconds: 5
readinessProbe:
  {{- include "interlingua.probe" (list . "/readyz") | nindent 2 }}
  periodSeconds: 5
  timeoutSeconds: 5
resources: {{- toYaml .Values.resources | nindent 2 }}
securityContext: {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
  - {name: interlingua-routes, mountPath: /etc/interlingua, readOnly: true}
  {{- if not (include "interlingua.shared" .) }}
  - {name: interlingua-store, mountPath: /var/lib/interlingua}
  {{- end }}
  - {name: interlingua-tmp, mountPath: /tmp}
  {{- if .Values.tls.secret }}
  - {name: interlingua-tls, mountPath: /tls, readOnly: true}
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* Asks for a page: from outside, or where no kubelet reaches the port, inside the container. */}}
{{- define "interlingua.probe" -}}
{{- $path := last . -}}
{{- with first . -}}
{{- if eq .Values.host "127.0.0.1" -}}
{{- $context := ternary ", context=ssl._create_unverified_context()" "" (ne .Values.tls.secret "") -}}
exec:
  command:
    - python
    - -c
    - import ssl, urllib.request; urllib.request.urlopen("{{ include "interlingua.scheme" . }}://127.0.0.1:{{ .Values.port }}{{ $path }}", timeout=4{{ $context }})
{{- else -}}
httpGet: {path: {{ $path }}, port: interlingua{{ if .Values.tls.secret }}, scheme: HTTPS{{ end }}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The volumes of that container, but a claim of a StatefulSet. */}}
{{- define "interlingua.podVolumes" -}}
- name: interlingua-routes
  configMap: {name: {{ include "interlingua.fullname" . }}}
- name: interlingua-tmp
  emptyDir: {sizeLimit: {{ .Values.tmpSize }}}
{{- if .Values.tls.secret }}
- name: interlingua-tls
  secret: {secretName: {{ .Values.tls.secret }}}
{{- end }}
{{- if include "interlingua.shared" . }}
{{- else if eq .Values.mode "sidecar" }}
- name: interlingua-store
  emptyDir: {sizeLimit: {{ .Values.sidecar.storeSize }}}  # survives the container, not the pod
{{- else if not .Values.persistence.enabled }}
- name: interlingua-store
  emptyDir: {sizeLimit: {{ .Values.persistence.size }}}
{{- else if .Values.persistence.existingClaim }}
- name: interlingua-store
  persistentVolumeClaim: {claimName: {{ .Values.persistence.existingClaim }}}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
