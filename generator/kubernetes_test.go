package generator

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/pipelines"
)

// A pod gets its devices by patch where the cluster's owner set nothing aside.
func TestPodSpecPatch(t *testing.T) {
	for name, want := range map[string]string{
		"H100_BK":     "limits:\n                    nvidia.com/gpu: 1\n                    cpu: 8\n                    memory: 64Gi\n",
		"H100_1G10GB": "nvidia.com/mig-1g.10gb: 1\n",
		"MI300_BK":    "amd.com/gpu: 1\n",
		"GOOGLE_TPU":  "google.com/tpu: 1\n",
	} {
		g := row(t, name)
		g.Platform, g.Isolation, g.ShmGiB = pipelines.Kubernetes, pipelines.Step, 0
		if err := g.Validate(); err != nil {
			t.Errorf("%s on Kubernetes: %v", name, err)
		}
		out, err := evaluate(pipelines.Request{GPUs: pipelines.Table{g}})
		if err != nil {
			t.Errorf("Render(%s on Kubernetes) = %v", name, err)
		}
		for _, part := range []string{"    image: " + g.Image, "  - kubernetes:\n", "- name: container-0\n", want} {
			if !bytes.Contains(out, []byte(part)) {
				t.Errorf("Render(%s on Kubernetes) lacks %q:\n%s", name, part, out)
			}
		}
	}
}

// A row without a resource class says itself where its pods go and what they get.
func TestPodOfARow(t *testing.T) {
	g := row(t, "H100_BK")
	g.Platform, g.Isolation, g.ShmGiB = pipelines.Kubernetes, pipelines.Step, 16
	g.Pod = pipelines.Pod{
		NodeSelector: []pipelines.Var{{Name: "nvidia.com/gpu.product", Value: "NVIDIA-H100-80GB-HBM3"}},
		Tolerations:  []pipelines.Toleration{{Key: "nvidia.com/gpu", Effect: "NoSchedule"}, {Key: "team", Value: "kernels"}},
		RuntimeClass: "nvidia",
	}
	out, err := evaluate(pipelines.Request{GPUs: pipelines.Table{g}})
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Steps []struct {
			Retry   struct{ Automatic []map[string]any }
			Plugins []map[string]any
		}
	}
	if err := yaml.Unmarshal(out, &doc); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"checkout": map[string]any{"skip": true},
		"podSpecPatch": map[string]any{
			"automountServiceAccountToken": false,
			"runtimeClassName":             "nvidia",
			"nodeSelector":                 map[string]any{"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
			"tolerations": []any{
				map[string]any{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
				map[string]any{"key": "team", "operator": "Equal", "value": "kernels"},
			},
			"containers": []any{map[string]any{
				"name":         "container-0",
				"resources":    map[string]any{"limits": map[string]any{"nvidia.com/gpu": 1, "cpu": 8, "memory": "64Gi"}},
				"volumeMounts": []any{map[string]any{"name": "kbgen-shm", "mountPath": "/dev/shm"}},
			}},
			"volumes": []any{map[string]any{"name": "kbgen-shm", "emptyDir": map[string]any{"medium": "Memory", "sizeLimit": "16Gi"}}},
		},
	}
	if diff := cmp.Diff(want, doc.Steps[0].Plugins[0]["kubernetes"]); diff != "" {
		t.Errorf("the pod (-want +got):\n%s", diff)
	}
	if !bytes.Contains(out, []byte("-7\n")) {
		t.Errorf("exit status -7 is not retried:\n%s", out)
	}
	// A class holds all of it, and the cluster may prohibit the plugin.
	if out, err = evaluate(pipelines.Request{GPUs: pipelines.Table{row(t, "MI355X")}}); err != nil || bytes.Contains(out, []byte("plugins:")) {
		t.Errorf("a row with a resource class has plugins, %v:\n%s", err, out)
	}
}
