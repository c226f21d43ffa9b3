{{- /* The objects are those of the kustomize base, files/, with what the values change. */ -}}

{{- /* All documents of a file, as a JSON list under the key items. */ -}}
{{- define "waltz.documents" -}}
{{- $found := list -}}
{{- range splitList "\n---\n" (.root.Files.Get .file) -}}
{{- $found = append $found (fromYaml .) -}}
{{- end -}}
{{- dict "items" $found | toJson -}}
{{- end -}}

{{- /* One object, with the labels of the base, in the namespace of the release. */ -}}
{{- define "waltz.object" -}}
{{- $object := .object -}}
{{- $metadata := $object.metadata -}}
{{- $labels := merge (dict "app.kubernetes.io/name" "waltz-operator") ($metadata.labels | default dict) -}}
{{- $_ := set $metadata "labels" $labels -}}
{{- if $metadata.namespace -}}
{{- $_ := set $metadata "namespace" .root.Release.Namespace -}}
{{- end -}}
{{- range $object.subjects -}}
{{- $_ := set . "namespace" $.root.Release.Namespace -}}
{{- end }}
---
{{ toYaml $object }}
{{ end -}}

{{- define "waltz.image" -}}
{{- $image := .Values.image -}}
{{- with .Values.registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end -}}
{{- end -}}
