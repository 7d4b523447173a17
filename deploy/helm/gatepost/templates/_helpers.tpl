{{/* What tells a part from the others: a dict of `root` and `part`. */}}
{{- define "gatepost.labels" -}}
app.kubernetes.io/name: gatepost
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{/* A value as text. Numbers of a file of values are floating-point, of which large ones would get an exponent. */}}
{{- define "gatepost.text" -}}
{{- if and (kindIs "float64" .) (eq (toString (floor .)) (toString .)) }}{{ printf "%.0f" . }}{{ else }}{{ toString . }}{{ end }}
{{- end }}

{{/*
A list of settings as one, as JSON: of those with one name the last holds, also one that is 0 or empty, over which
`merge` goes.
*/}}
{{- define "gatepost.settings" -}}
{{- $all := dict }}
{{- range . }}
{{- range $name, $value := . }}
{{- $_ := set $all $name $value }}
{{- end }}
{{- end }}
{{- toJson $all }}
{{- end }}

{{/* All environment variables of a part: a dict of `settings`, and of `secrets`, which are files. */}}
{{- define "gatepost.env" -}}
- { name: NODE_ENV, value: production }
{{- range $name, $value := .settings }}
- { name: {{ $name }}, value: {{ include "gatepost.text" $value | quote }} }
{{- end }}
{{- range .secrets }}
- { name: {{ . }}_FILE, value: /run/secrets/gatepost/{{ . }} }
{{- end }}
{{- end }}

{{/*
How the Pods of a part are run: what is said of all, and above it what is said of the part; as JSON. A dict of `root` and
`own`. Both are copied, as merging writes into what it is given, which other parts read too.
*/}}
{{- define "gatepost.placement" -}}
{{- mergeOverwrite (deepCopy .root.Values.pod) (deepCopy (.own.pod | default dict)) | toJson }}
{{- end }}

{{/* What every Pod has: a dict of `root`, `placement` and `secrets`. */}}
{{- define "gatepost.pod" -}}
{{- range $name := list "imagePullSecrets" "nodeSelector" "tolerations" "affinity" }}
{{- with index $.placement $name }}
{{ $name }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with .placement.serviceAccountName }}
serviceAccountName: {{ . }}
{{- end }}
automountServiceAccountToken: false
# Or Kubernetes sets variables for each Service of the namespace, such as DB_PORT for one that is called db.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  # The user `node` of the image.
  runAsUser: 1000
  runAsGroup: 1000
  fsGroup: 1000
  seccompProfile: { type: RuntimeDefault }
volumes:
  - name: secrets
    secret:
      secretName: {{ .root.Values.secretName }}
      defaultMode: 0440
      items:
        {{- range .secrets }}
        - { key: {{ . }}, path: {{ . }} }
        {{- end }}
  - name: tmp
    emptyDir: {}
  {{- with .placement.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* What every container has: a dict of `root`, `placement`, `settings` and `secrets`. */}}
{{- define "gatepost.container" -}}
image: {{ .root.Values.image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
volumeMounts:
  - { name: secrets, mountPath: /run/secrets/gatepost, readOnly: true }
  - { name: tmp, mountPath: /tmp }
  {{- with .placement.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
env: {{- include "gatepost.env" . | nindent 2 }}
  {{- with .placement.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .placement.envFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
