{{/* The agent's container. It listens on the pod's loopback alone, in its own protocol. */}}
{{- define "agent.container" -}}
name: agent
image: {{ .Values.image }}
args: [--host, 127.0.0.1, --port, "9001"]
startupProbe:  # from inside, since no kubelet reaches the loopback
  exec: {command: [python, -c, "import socket; socket.create_connection(('127.0.0.1', 9001), 1)"]}
  periodSeconds: 1
  timeoutSeconds: 5
  failureThreshold: 60
resources: {requests: {cpu: 100m, memory: 128Mi}, limits: {memory: 256Mi}}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
{{- end -}}
