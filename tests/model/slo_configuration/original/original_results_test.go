// Asks the Go original what it makes of the ConfigMaps in original_results.json, and writes its answers there.
//
// Copy this file into pkg/slo-controller/nodeslo of the original's source (its own *_test.go files there may be removed
// to build faster) and run, with the path of the JSON file:
//
//	RESULTS=.../original_results.json go test ./pkg/slo-controller/nodeslo/ -count=1 -run TestWriteOriginalResults
//
// Add a case by adding its name, data, labels, annotations and names_required to the file.
package nodeslo

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"github.com/koordinator-sh/koordinator/pkg/slo-controller/config"
	"github.com/koordinator-sh/koordinator/pkg/util/sloconfig"
	checks "github.com/koordinator-sh/koordinator/pkg/webhook/cm/plugins/sloconfig"
)

type fields map[string]interface{}

type testCase struct {
	Name          string            `json:"name"`
	Data          map[string]string `json:"data"`
	Labels        map[string]string `json:"labels,omitempty"`
	Annotations   map[string]string `json:"annotations,omitempty"`
	NamesRequired bool              `json:"names_required,omitempty"`

	NodeSLO    fields   `json:"nodeSLO"`
	Colocation fields   `json:"colocation"`
	Webhook    string   `json:"webhook"`
	InError    bool     `json:"in_error"`
	Events     []string `json:"events"`
}

func (c *testCase) configMap() *corev1.ConfigMap {
	metadata := metav1.ObjectMeta{Namespace: "koordinator-system", Name: "slo-controller-config"}
	return &corev1.ConfigMap{ObjectMeta: metadata, Data: c.Data}
}

func (c *testCase) node() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: c.Labels, Annotations: c.Annotations}}
}

// answer fills in what the controllers and the webhook say, of the controllers' policies every field.
func (c *testCase) answer() {
	recorder := record.NewFakeRecorder(100)
	slo := NewSLOCfgHandlerForConfigMapEvent(nil, DefaultSLOCfg(), recorder)
	slo.SyncCacheIfChanged(c.configMap())
	spec, _ := (&NodeSLOReconciler{sloCfgCache: slo}).getNodeSLOSpec(c.node(), nil)
	c.NodeSLO = asFields(spec)

	colocation := config.NewColocationHandlerForConfigMapEvent(nil, *sloconfig.NewDefaultColocationCfg(), recorder)
	colocation.SyncCacheIfChanged(c.configMap())
	c.InError = colocation.IsErrorStatus()
	c.Colocation = asFields(sloconfig.GetNodeColocationStrategy(colocation.GetCfgCopy(), c.node()))

	close(recorder.Events)
	c.Events = []string{}
	for event := range recorder.Events {
		c.Events = append(c.Events, strings.TrimPrefix(strings.Split(event, ", err:")[0], "Warning "))
	}
	sort.Strings(c.Events)
	c.Webhook = c.refusal()
}

// refusal is the webhook's text; it is empty where the webhook crashes, which a null in the ConfigMap makes it do.
func (c *testCase) refusal() (text string) {
	defer func() {
		if recover() != nil {
			text = ""
		}
	}()
	sloconfig.NodeStrategyNameNeedCheck = strconv.FormatBool(c.NamesRequired)
	changed := checks.CreateCheckersChanged(nil, c.configMap())
	if err := changed.CheckConfigContents(); err != nil {
		return err.Error()
	}
	for _, checker := range changed {
		if err := checker.ExistNodeConflict(c.node()); err != nil {
			return err.Error()
		}
	}
	return ""
}

func asFields(value interface{}) fields {
	document, _ := json.Marshal(value)
	result := fields{}
	_ = json.Unmarshal(document, &result)
	return result
}

// changes leaves the fields that differ from the defaults; null is a default that is not there.
func changes(given, defaults fields) fields {
	result := fields{}
	for name, value := range given {
		if !reflect.DeepEqual(value, defaults[name]) {
			result[name] = value
		}
	}
	for name := range defaults {
		if _, present := given[name]; !present {
			result[name] = nil
		}
	}
	return result
}

func TestWriteOriginalResults(t *testing.T) {
	path := os.Getenv("RESULTS")
	written, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	results := struct {
		Cases []*testCase `json:"cases"`
	}{}
	if err := json.Unmarshal(written, &results); err != nil {
		t.Fatal(err)
	}
	plain := &testCase{}
	plain.answer()
	var out bytes.Buffer
	defaults, _ := json.Marshal(fields{"nodeSLO": plain.NodeSLO, "colocation": plain.Colocation})
	out.WriteString("{\"defaults\":" + string(defaults) + ",\n\"cases\":[\n")
	for i, c := range results.Cases {
		c.answer()
		c.NodeSLO, c.Colocation = changes(c.NodeSLO, plain.NodeSLO), changes(c.Colocation, plain.Colocation)
		line, _ := json.Marshal(c)
		if i > 0 {
			out.WriteString(",\n")
		}
		out.Write(line)
	}
	out.WriteString("\n]}\n")
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
