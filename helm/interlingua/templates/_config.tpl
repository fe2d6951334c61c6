{{/* Seconds of a duration of routes.yaml (20s, 1m30s, 500ms, 2.5), rounded up. */}}
{{- define "interlingua.seconds" -}}
{{- $text := toString . -}}
{{- $sum := 0.0 -}}
{{- if contains "$" $text -}}
{{- fail (printf "config.limits.shutdown: %s is not known before the gateway runs, and terminationGracePeriodSeconds follows from it: write the duration itself" $text) -}}
{{- else if regexMatch "^\\s*[0-9.]+(e\\+?[0-9]+)?\\s*$" $text -}}
{{- $sum = float64 (trim $text) -}}
{{- else -}}
{{- $units := dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 "d" 86400.0 -}}
{{- range regexFindAll "[0-9]+(\\.[0-9]+)?(ms|s|m|h|d)" $text -1 -}}
{{- $sum = addf $sum (mulf (float64 (regexFind "^[0-9.]+" .)) (get $units (regexFind "[a-z]+$" .))) -}}
{{- end -}}
{{- end -}}
{{- ceil $sum | int -}}
{{- end -}}

{{/* Four fifths of a quantity (10Gi), as a size of routes.yaml (8192MiB). */}}
{{- define "interlingua.fourFifths" -}}
{{- $each := get (dict "Mi" 1 "Gi" 1024 "Ti" 1048576) (regexFind "[A-Za-z]+$" .) -}}
{{- printf "%dMiB" (div (mul (int64 (regexFind "^[0-9]+" .)) $each 4) 5) -}}
{{- end -}}

{{- define "interlingua.publicUrl" -}}
{{- if and .Values.ingress.enabled .Values.ingress.hosts -}}
{{- ternary "https" "http" (ne .Values.ingress.tlsSecret "") }}://{{ first .Values.ingress.hosts }}{{ trimSuffix "/" .Values.ingress.path }}
{{- else if and .Values.httpRoute.enabled .Values.httpRoute.hostnames -}}
https://{{ first .Values.httpRoute.hostnames }}
{{- else if eq .Values.mode "standalone" -}}
{{ include "interlingua.inside" . }}
{{- end -}}
{{- end -}}

{{/* The Service's URL. */}}
{{- define "interlingua.inside" -}}
{{ include "interlingua.scheme" . }}://{{ include "interlingua.fullname" . }}.{{ .Release.Namespace }}:{{ .Values.service.port }}
{{- end -}}

{{/* routes.yaml. */}}
{{- define "interlingua.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $store := $config.store | default dict -}}
{{- if .Values.store.secret.name -}}
{{- $_ := set $store "url" "${INTERLINGUA_STORE_URL}" -}}
{{- else if .Values.store.url -}}
{{- $_ := set $store "url" .Values.store.url -}}
{{- else -}}
{{- $_ := set $store "url" "sqlite:////var/lib/interlingua/store.db" -}}
{{- $size := ternary .Values.sidecar.storeSize .Values.persistence.size (eq .Values.mode "sidecar") -}}
{{- $_ := set $store "retention" (merge ($store.retention | default dict) (dict "age" "7d" "size" (include "interlingua.fourFifths" $size))) -}}
{{- end -}}
{{- $_ := set $config "store" $store -}}
{{- $url := include "interlingua.publicUrl" . -}}
{{- if and $url (not $config.public_url) }}{{- $_ := set $config "public_url" $url -}}{{- end -}}
{{- if .Values.monitoring.secret.name -}}
{{- $telemetry := $config.telemetry | default dict -}}
{{- $monitors := $telemetry.monitors | default dict -}}
{{- $_ := set $monitors "tokens" (append ($monitors.tokens | default list) "${INTERLINGUA_SCRAPE_TOKEN}") -}}
{{- $_ := set $telemetry "monitors" $monitors -}}
{{- $_ := set $config "telemetry" $telemetry -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* A pod is replaced when this changes: everything but what is taken without a restart. */}}
{{- define "interlingua.checksum" -}}
{{- omit (include "interlingua.config" . | fromYaml) "routes" | toJson | sha256sum -}}
{{- end -}}

{{/* Seconds between the moment the gateway's pod is told to stop and the moment it is killed. */}}
{{- define "interlingua.grace" -}}
{{- if .Values.terminationGracePeriodSeconds -}}
{{- .Values.terminationGracePeriodSeconds | int -}}
{{- else -}}
{{- $shutdown := include "interlingua.seconds" (dig "limits" "shutdown" "10s" .Values.config) | int -}}
{{- $agent := ternary (int .Values.sidecar.agentSeconds) 0 (eq .Values.mode "sidecar") -}}
{{- add (int .Values.preStopSeconds) $agent $shutdown (int .Values.sparedSeconds) -}}
{{- end -}}
{{- end -}}
