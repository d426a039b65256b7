package status

import (
	"context"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/doctor"
	"github.com/prometheus/client_golang/prometheus"
)

// WriteMetrics writes what Prometheus' node exporter reads from its textfile
// directory.
func WriteMetrics(ctx context.Context, m doctor.Machine, config *node.Config, path string) error {
	st, err := Read(ctx, m, config)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kbnode_" + name, Help: help}, labels)
		registry.MustRegister(g)
		return g
	}
	state := gauge("slot_state", "1 for the state that the slot is in.", "slot", "queue", "gpu_type", "state")
	healthy := gauge("slot_device_healthy", "1 when the slot's devices are fit for a job.", "slot")
	restarts := gauge("slot_agent_restarts", "How often systemd started the slot's agent again.", "slot")
	memory := gauge("slot_memory_bytes", "Memory that the slot's slice uses.", "slot")
	image := gauge("slot_image_info", "1 for the images that the slot's steps run in.", "slot", "image")
	gauge("drift_files", "Files that were changed since kbnode wrote them.").WithLabelValues().Set(float64(len(st.Drift)))
	for _, s := range st.Slots {
		for _, name := range []string{"idle", "busy", "paused", "starting", "stopping", "down"} {
			state.WithLabelValues(s.Name, s.Queue, s.GPUType, name).Set(truth(s.State == name))
		}
		healthy.WithLabelValues(s.Name).Set(truth(s.Device == "ok" || s.Device == "none"))
		restarts.WithLabelValues(s.Name).Set(float64(s.Restarts))
		memory.WithLabelValues(s.Name).Set(float64(s.Memory))
		for _, id := range s.Images {
			image.WithLabelValues(s.Name, id).Set(1)
		}
	}
	return prometheus.WriteToTextfile(path, registry) // beside it, then renamed
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
