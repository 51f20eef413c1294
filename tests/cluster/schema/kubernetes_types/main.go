// Command types writes the table of Kubernetes' built-in types: what their Go struct tags and OpenAPI say of each field.
//
// usage: kubectl get --raw /openapi/v2 > openapi.json && go run ./types openapi.json > kubernetes.json
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	apidiscovery "k8s.io/api/apidiscovery/v2"
	apps "k8s.io/api/apps/v1"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	autoscaling "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	certificates "k8s.io/api/certificates/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	events "k8s.io/api/events/v1"
	flowcontrol "k8s.io/api/flowcontrol/v1"
	networking "k8s.io/api/networking/v1"
	node "k8s.io/api/node/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	scheduling "k8s.io/api/scheduling/v1"
	storage "k8s.io/api/storage/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

var scalars = map[reflect.Type]string{
	reflect.TypeOf(meta.Time{}):                     "Time",
	reflect.TypeOf(meta.MicroTime{}):                "MicroTime",
	reflect.TypeOf(meta.Duration{}):                 "Duration",
	reflect.TypeOf(meta.FieldsV1{}):                 "Fields",
	reflect.TypeOf(resource.Quantity{}):             "Quantity",
	reflect.TypeOf(intstr.IntOrString{}):            "IntOrString",
	reflect.TypeOf(runtime.RawExtension{}):          "Raw",
	reflect.TypeOf(apiextensions.JSONSchemaProps{}): "Schema",
}

type table struct {
	Types map[string][]map[string]any `json:"types"`
	Kinds map[string]string           `json:"kinds"`
}

var (
	out         = table{Types: map[string][]map[string]any{}, Kinds: map[string]string{}}
	definitions map[string]struct {
		Required   []string
		Properties map[string]map[string]any
		MapType    string `json:"x-kubernetes-map-type"`
	}
)

func openapiName(t reflect.Type) string {
	path := strings.Split(t.PkgPath(), "/")
	host := strings.Split(path[0], ".")
	for i, j := 0, len(host)-1; i < j; i, j = i+1, j-1 {
		host[i], host[j] = host[j], host[i]
	}
	return strings.Join(append(host, path[1:]...), ".") + "." + t.Name()
}

func describe(t reflect.Type) string {
	if name, ok := scalars[t]; ok {
		return name
	}
	switch t.Kind() {
	case reflect.Ptr:
		return describe(t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		if t.Name() != "" && t.PkgPath() != "" && t.Elem().Kind() == reflect.String {
			return "[wrapped]" + describe(t.Elem())
		}
		return "[]" + describe(t.Elem())
	case reflect.Map:
		if t.Elem().Kind() == reflect.Slice && t.Elem().Name() == "" {
			return "map[]" + describe(t.Elem())
		}
		return "map[]" + describe(t.Elem())
	case reflect.Struct:
		visit(t)
		return openapiName(t)
	default:
		return t.Kind().String()
	}
}

func visit(t reflect.Type) {
	name := openapiName(t)
	if _, done := out.Types[name]; done {
		return
	}
	out.Types[name] = nil
	fields := []map[string]any{}
	definition := definitions[name]
	required := map[string]bool{}
	for _, r := range definition.Required {
		required[r] = true
	}
	var walk func(t reflect.Type)
	walk = func(t reflect.Type) {
		for i := 0; i < t.NumField(); i++ {
			f := t.Field(i)
			tag := strings.Split(f.Tag.Get("json"), ",")
			if f.Anonymous && tag[0] == "" {
				if f.Type == reflect.TypeOf(meta.TypeMeta{}) {
					continue
				}
				number := strings.Split(f.Tag.Get("protobuf"), ",")
				if len(number) > 1 {
					// The document describes the fields of such a struct where it is embedded, and not by its name.
					if _, known := definitions[openapiName(f.Type)]; !known {
						part := definition
						part.Required, part.MapType = nil, ""
						definitions[openapiName(f.Type)] = part
					}
					visit(f.Type)
					fields = append(fields, map[string]any{"inline": openapiName(f.Type), "number": number[1]})
					continue
				}
				walk(f.Type)
				continue
			}
			if tag[0] == "-" || tag[0] == "" {
				continue
			}
			row := map[string]any{"name": tag[0], "type": describe(f.Type)}
			if p := strings.Split(f.Tag.Get("protobuf"), ","); len(p) > 1 {
				row["number"] = p[1]
			}
			switch f.Type.Kind() {
			case reflect.Ptr:
				row["pointer"] = true
			}
			for _, option := range tag[1:] {
				if option == "omitempty" || option == "omitzero" {
					row[option] = true
				}
			}
			if s := f.Tag.Get("patchStrategy"); s != "" {
				row["strategy"] = s
			}
			if k := f.Tag.Get("patchMergeKey"); k != "" {
				row["key"] = k
			}
			if required[tag[0]] {
				row["required"] = true
			}
			property := definition.Properties[tag[0]]
			if v, ok := property["x-kubernetes-list-type"]; ok {
				row["list"] = v
			}
			if v, ok := property["x-kubernetes-map-type"]; ok {
				row["list"] = v
			}
			if v, ok := property["x-kubernetes-list-map-keys"]; ok {
				row["keys"] = v
			}
			fields = append(fields, row)
		}
	}
	walk(t)
	out.Types[name] = fields
}

func main() {
	raw, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	var doc struct{ Definitions json.RawMessage }
	if err := json.Unmarshal(raw, &doc); err != nil {
		panic(err)
	}
	if err := json.Unmarshal(doc.Definitions, &definitions); err != nil {
		panic(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		admissionregistration.AddToScheme, apps.AddToScheme, authentication.AddToScheme, authorization.AddToScheme,
		autoscaling.AddToScheme, batch.AddToScheme, coordination.AddToScheme, core.AddToScheme, discovery.AddToScheme,
		events.AddToScheme, networking.AddToScheme, policy.AddToScheme, rbac.AddToScheme, resourceapi.AddToScheme,
		scheduling.AddToScheme, storage.AddToScheme, apiextensions.AddToScheme, autoscalingv2.AddToScheme,
		certificates.AddToScheme, node.AddToScheme, apiregistration.AddToScheme, flowcontrol.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	for gvk, t := range scheme.AllKnownTypes() {
		if gvk.Version != "v1" && gvk != autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler") || strings.HasSuffix(gvk.Kind, "List") || strings.HasSuffix(gvk.Kind, "Options") && gvk.Kind != "DeleteOptions" ||
			gvk.Kind == "WatchEvent" || gvk.Kind == "RangeAllocation" || gvk.Kind == "ConversionReview" || gvk.Group != "" && t.PkgPath() == reflect.TypeOf(meta.DeleteOptions{}).PkgPath() {
			continue
		}
		if gvk.Group == "" {
			out.Kinds["v1/"+gvk.Kind] = describe(t)
		} else {
			out.Kinds[gvk.Group+"/"+gvk.Version+"/"+gvk.Kind] = describe(t)
		}
	}
	out.Kinds["v1/DeleteOptions"] = describe(reflect.TypeOf(meta.DeleteOptions{}))
	// What discovery consists of.
	out.Kinds["v1/APIGroupList"] = describe(reflect.TypeOf(meta.APIGroupList{}))
	out.Kinds["v1/APIResourceList"] = describe(reflect.TypeOf(meta.APIResourceList{}))
	out.Kinds["apidiscovery.k8s.io/v2/APIGroupDiscoveryList"] = describe(reflect.TypeOf(apidiscovery.APIGroupDiscoveryList{}))
	emit()
}

// emit writes one field a line: name, type, protobuf number, flags, patch strategy and key, list type and keys;
// and apart from that the types that server-side apply owns as a whole.
func emit() {
	compact := map[string][]string{}
	atomic := []string{}
	for name, fields := range out.Types {
		if definitions[name].MapType == "atomic" {
			atomic = append(atomic, name)
		}
		rows := []string{}
		for _, f := range fields {
			if inline, ok := f["inline"]; ok {
				rows = append(rows, fmt.Sprintf("*|%v|%v|i||", inline, f["number"]))
				continue
			}
			flags := ""
			for _, flag := range [][2]string{{"pointer", "p"}, {"omitempty", "o"}, {"omitzero", "z"}, {"required", "r"}} {
				if f[flag[0]] == true {
					flags += flag[1]
				}
			}
			text := func(k string) string {
				if f[k] == nil {
					return ""
				}
				return fmt.Sprint(f[k])
			}
			patch := text("strategy")
			if text("key") != "" {
				patch += ":" + text("key")
			}
			list := text("list")
			if keys, ok := f["keys"].([]any); ok {
				parts := []string{}
				for _, k := range keys {
					parts = append(parts, fmt.Sprint(k))
				}
				list += ":" + strings.Join(parts, ",")
			}
			rows = append(rows, fmt.Sprintf("%v|%v|%v|%v|%v|%v", f["name"], f["type"], text("number"), flags, patch, list))
		}
		compact[name] = rows
	}
	names := []string{}
	for name := range compact {
		names = append(names, name)
	}
	sort.Strings(names)
	sort.Strings(atomic)
	encoded, err := json.MarshalIndent(map[string]any{"atomic": atomic, "types": compact, "kinds": out.Kinds}, "", " ")
	if err != nil {
		panic(err)
	}
	fmt.Println(string(encoded))
}
