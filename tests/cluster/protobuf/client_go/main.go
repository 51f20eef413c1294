// Command wire prints objects as client-go sends them in protobuf: one JSON line with the base64 bytes and the JSON form.
package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	apps "k8s.io/api/apps/v1"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	events "k8s.io/api/events/v1"
	policy "k8s.io/api/policy/v1"
	scheduling "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func ptr[T any](v T) *T { return &v }

func main() {
	at := meta.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	micro := meta.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC))
	om := meta.ObjectMeta{Name: "n", Namespace: "default", Labels: map[string]string{"a": "b", "empty": ""}, CreationTimestamp: at,
		OwnerReferences: []meta.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "x", UID: "u", Controller: ptr(false)}},
		ManagedFields:   []meta.ManagedFieldsEntry{{Manager: "m", Operation: meta.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &at, FieldsType: "FieldsV1", FieldsV1: &meta.FieldsV1{Raw: []byte(`{"f:spec":{}}`)}}}}
	t := func(v, k string) meta.TypeMeta { return meta.TypeMeta{APIVersion: v, Kind: k} }
	uid := "11111111-2222-3333-4444-555555555555"
	objects := []runtime.Object{
		&core.Binding{TypeMeta: t("v1", "Binding"), ObjectMeta: meta.ObjectMeta{Name: "p", Namespace: "d", UID: "u"}, Target: core.ObjectReference{Kind: "Node", Name: "node-1"}},
		&coordination.Lease{TypeMeta: t("coordination.k8s.io/v1", "Lease"), ObjectMeta: om, Spec: coordination.LeaseSpec{HolderIdentity: ptr("h"), LeaseDurationSeconds: ptr(int32(15)), AcquireTime: &micro, RenewTime: &micro, LeaseTransitions: ptr(int32(0))}},
		&core.Event{TypeMeta: t("v1", "Event"), ObjectMeta: om, InvolvedObject: core.ObjectReference{Kind: "Pod", Name: "p"}, Reason: "R", Message: "m ü", Source: core.EventSource{Component: "c"}, FirstTimestamp: at, LastTimestamp: at, Count: 3, Type: "Normal"},
		&events.Event{TypeMeta: t("events.k8s.io/v1", "Event"), ObjectMeta: om, EventTime: micro, Series: &events.EventSeries{Count: 2, LastObservedTime: micro}, ReportingController: "c", ReportingInstance: "i", Action: "a", Reason: "R", Regarding: core.ObjectReference{Kind: "Pod"}, Note: "n", Type: "Warning"},
		&meta.DeleteOptions{TypeMeta: t("v1", "DeleteOptions"), GracePeriodSeconds: ptr(int64(0)), Preconditions: &meta.Preconditions{UID: ptr(om.UID)}, PropagationPolicy: ptr(meta.DeletePropagationBackground), DryRun: []string{"All"}},
		&core.Pod{TypeMeta: t("v1", "Pod"), ObjectMeta: om, Spec: core.PodSpec{NodeName: "n", HostNetwork: true, Priority: ptr(int32(-5)), TerminationGracePeriodSeconds: ptr(int64(30)),
			Tolerations: []core.Toleration{{Operator: core.TolerationOpExists, TolerationSeconds: ptr(int64(0))}},
			Volumes:     []core.Volume{{Name: "v", VolumeSource: core.VolumeSource{EmptyDir: &core.EmptyDirVolumeSource{SizeLimit: ptr(resource.MustParse("1Gi"))}}}, {Name: "s", VolumeSource: core.VolumeSource{Secret: &core.SecretVolumeSource{SecretName: "x", DefaultMode: ptr(int32(420))}}}},
			Containers: []core.Container{{Name: "c", Image: "i", Args: []string{"a", ""}, Resources: core.ResourceRequirements{Requests: core.ResourceList{"cpu": resource.MustParse("1500m"), "memory": resource.MustParse("1Gi")}},
				Ports:          []core.ContainerPort{{ContainerPort: 80}},
				LivenessProbe:  &core.Probe{ProbeHandler: core.ProbeHandler{HTTPGet: &core.HTTPGetAction{Port: intstr.FromString("http")}}},
				ReadinessProbe: &core.Probe{ProbeHandler: core.ProbeHandler{TCPSocket: &core.TCPSocketAction{Port: intstr.FromInt32(8080)}}}}}},
			Status: core.PodStatus{Phase: "Running", StartTime: &at, Conditions: []core.PodCondition{{Type: "Ready", Status: "True"}}, ContainerStatuses: []core.ContainerStatus{{Name: "c", Ready: true, Started: ptr(false), State: core.ContainerState{Running: &core.ContainerStateRunning{StartedAt: at}}}}}},
		&core.Node{TypeMeta: t("v1", "Node"), ObjectMeta: meta.ObjectMeta{Name: "n"}, Spec: core.NodeSpec{PodCIDRs: []string{"10.0.0.0/24"}, Taints: []core.Taint{{Key: "k", Effect: "NoSchedule", TimeAdded: &at}}}, Status: core.NodeStatus{Capacity: core.ResourceList{"cpu": resource.MustParse("4")}, Conditions: []core.NodeCondition{{Type: "Ready", Status: "True", LastHeartbeatTime: at}}, DaemonEndpoints: core.NodeDaemonEndpoints{KubeletEndpoint: core.DaemonEndpoint{Port: 10250}}, Images: []core.ContainerImage{{Names: []string{"a"}, SizeBytes: 1 << 40}}}},
		&core.Namespace{TypeMeta: t("v1", "Namespace"), ObjectMeta: meta.ObjectMeta{Name: "n"}, Spec: core.NamespaceSpec{Finalizers: []core.FinalizerName{"kubernetes"}}},
		&core.ConfigMap{TypeMeta: t("v1", "ConfigMap"), ObjectMeta: meta.ObjectMeta{Name: "n"}, Immutable: ptr(false), Data: map[string]string{"a": "b"}, BinaryData: map[string][]byte{"x": {0, 255}}},
		&scheduling.PriorityClass{TypeMeta: t("scheduling.k8s.io/v1", "PriorityClass"), ObjectMeta: meta.ObjectMeta{Name: "n"}, Value: -1000, PreemptionPolicy: ptr(core.PreemptNever)},
		&policy.Eviction{TypeMeta: t("policy/v1", "Eviction"), ObjectMeta: meta.ObjectMeta{Name: "p", Namespace: "d"}, DeleteOptions: &meta.DeleteOptions{GracePeriodSeconds: ptr(int64(1))}},
		&authentication.TokenReview{TypeMeta: t("authentication.k8s.io/v1", "TokenReview"), Spec: authentication.TokenReviewSpec{Token: "t", Audiences: []string{"a"}}, Status: authentication.TokenReviewStatus{User: authentication.UserInfo{Username: "u", Extra: map[string]authentication.ExtraValue{"k": {"v", "w"}}}}},
		&authorization.SubjectAccessReview{TypeMeta: t("authorization.k8s.io/v1", "SubjectAccessReview"), Spec: authorization.SubjectAccessReviewSpec{User: "u", ResourceAttributes: &authorization.ResourceAttributes{Verb: "get", Resource: "pods"}, Extra: map[string]authorization.ExtraValue{"k": {"v"}}}},
		&apps.Deployment{TypeMeta: t("apps/v1", "Deployment"), ObjectMeta: meta.ObjectMeta{Name: "d"}, Spec: apps.DeploymentSpec{Replicas: ptr(int32(0)), Selector: &meta.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, Strategy: apps.DeploymentStrategy{RollingUpdate: &apps.RollingUpdateDeployment{MaxSurge: ptr(intstr.FromString("25%"))}}}},
	}
	_ = uid
	serializer := protobuf.NewSerializer(nil, nil)
	for _, object := range objects {
		var buffer bytes.Buffer
		if err := serializer.Encode(object, &buffer); err != nil {
			panic(err)
		}
		line, err := json.Marshal(map[string]any{"base64": base64.StdEncoding.EncodeToString(buffer.Bytes()), "json": object})
		if err != nil {
			panic(err)
		}
		fmt.Println(string(line))
	}
}
