// Package status says what the slots of a machine do now. It asks systemd, the
// agents and the drivers, and changes nothing.
package status

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/doctor"
	"github.com/gpu-mode/kbgen/node/system"
	"github.com/gpu-mode/kbgen/schema/text"
)

// A Node is what kbnode status --json prints.
type Node struct {
	Node   string   `json:"node"`
	Vendor string   `json:"vendor"`
	Slots  []Slot   `json:"slots"`
	Drift  []string `json:"drift" jsonschema:"files that were changed since kbnode wrote them"`

	QueueFile        string `json:"queue_file" jsonschema:"the queue file that the last apply read"`
	Endpoint         string `json:"endpoint" jsonschema:"of the agent API, empty for Buildkite's"`
	VerificationJWKS string `json:"verification_jwks" jsonschema:"file of the keys that steps must be signed with, empty for none"`
	AllowSmall       bool   `json:"allow_small" jsonschema:"whether the machine may be smaller than its rows promise"`
}

// Settings returns what the next apply uses unless it is told otherwise, as a line.
func (n *Node) Settings() string {
	line := fmt.Sprintf("%s of %s; queue file %s; endpoint %s", n.Node, n.Vendor, cmp.Or(n.QueueFile, "not known"), cmp.Or(n.Endpoint, "Buildkite's"))
	if n.VerificationJWKS != "" {
		line += "; steps must be signed"
	}
	if n.AllowSmall {
		line += "; may be small"
	}
	return line
}

// A Slot is the state of one slot.
type Slot struct {
	Name     string   `json:"name"`
	Queue    string   `json:"queue"`
	GPUType  string   `json:"gpu_type"`
	Tags     []string `json:"tags" jsonschema:"what its agent registers with"`
	State    string   `json:"state" jsonschema:"idle, busy, paused, starting, stopping or down"`
	Reason   string   `json:"reason,omitempty" jsonschema:"why it is paused"`
	Job      string   `json:"job,omitempty" jsonschema:"id of the job that runs"`
	Since    string   `json:"since,omitempty" jsonschema:"when its agent was started, RFC 3339"`
	Restarts int      `json:"restarts" jsonschema:"of its agent, by systemd"`
	Device   string   `json:"device" jsonschema:"ok, none, or what is wrong with it"`
	Images   []string `json:"images" jsonschema:"ids of the images that its steps run in"`
	Memory   int64    `json:"memory_bytes" jsonschema:"that its slice uses now"`
}

// Read asks systemd, the agents and the drivers.
func Read(ctx context.Context, m doctor.Machine, config *node.Config) (*Node, error) {
	pins, err := node.ReadPins(m.Root)
	if err != nil {
		return nil, err
	}
	st := &Node{
		Node: config.Node, Vendor: config.Vendor, Slots: make([]Slot, len(config.Slots)), Drift: []string{},
		QueueFile: config.QueueFile, Endpoint: config.Endpoint, VerificationJWKS: config.VerificationJWKS, AllowSmall: config.AllowSmall,
	}
	var reading sync.WaitGroup
	for i, s := range config.Slots { // at once: a driver that hangs keeps each of them for its whole limit
		reading.Go(func() { st.Slots[i] = readSlot(ctx, m, s, pins) })
	}
	reading.Wait()
	for _, r := range doctor.Drift(ctx, m, config) {
		st.Drift = append(st.Drift, r.Text)
	}
	return st, nil
}

func readSlot(ctx context.Context, m doctor.Machine, s *node.Slot, pins *node.Pins) Slot {
	st := Slot{Name: s.Name, Queue: s.Queue, GPUType: s.GPUType, Tags: s.Tags, Device: "ok", Images: []string{}}
	if len(s.Devices) == 0 {
		st.Device = "none"
	} else if err := doctor.Fit(ctx, m, s); err != nil {
		st.Device = text.Line(err.Error(), 200)
	}
	for _, ref := range s.Images {
		if pin, ok := pins.Images[ref]; ok {
			st.Images = append(st.Images, pin.ID)
		}
	}
	if body, err := os.ReadFile(s.CgroupDir() + "/memory.current"); err == nil {
		st.Memory, _ = strconv.ParseInt(strings.TrimSpace(string(body)), 10, 64)
	}
	var unit map[string]string
	if shown, err := m.Run(ctx, "systemctl", "show", "--no-pager", "--timestamp=utc", "--property=ActiveState,NRestarts,ActiveEnterTimestamp", s.Unit()); err == nil {
		unit = system.Properties(string(shown))
	}
	st.Restarts, _ = strconv.Atoi(unit["NRestarts"])
	if at, err := time.Parse("Mon 2006-01-02 15:04:05 MST", unit["ActiveEnterTimestamp"]); err == nil && unit["ActiveState"] == "active" {
		st.Since = at.UTC().Format(time.RFC3339)
	}
	st.State, st.Job = Agent(ctx, m, s, unit["ActiveState"])
	if body, err := os.ReadFile(s.Paused()); err == nil {
		st.Reason = text.Line(string(body), 300)
		if st.State == "down" || st.State == "idle" {
			st.State = "paused"
		}
	}
	return st
}

// Agent returns what the slot's agent does, and its job. The argument unit is the
// ActiveState of its unit.
func Agent(ctx context.Context, m doctor.Machine, s *node.Slot, unit string) (state, job string) {
	switch unit {
	case "active", "deactivating":
	case "activating":
		return "starting", ""
	default:
		return "down", ""
	}
	agent, err := doctor.AskAgent(ctx, m, s)
	switch {
	case err != nil && unit == "active":
		return "starting", ""
	case err == nil && len(agent.Workers) > 0:
		job = agent.Workers[0].Job
	}
	switch {
	case unit == "deactivating":
		return "stopping", job
	case err == nil && agent.State == "busy":
		return "busy", job
	}
	return "idle", job
}

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
	truth := map[bool]float64{true: 1}
	for _, s := range st.Slots {
		for _, name := range []string{"idle", "busy", "paused", "starting", "stopping", "down"} {
			state.WithLabelValues(s.Name, s.Queue, s.GPUType, name).Set(truth[s.State == name])
		}
		healthy.WithLabelValues(s.Name).Set(truth[s.Device == "ok" || s.Device == "none"])
		restarts.WithLabelValues(s.Name).Set(float64(s.Restarts))
		memory.WithLabelValues(s.Name).Set(float64(s.Memory))
		for _, id := range s.Images {
			image.WithLabelValues(s.Name, id).Set(1)
		}
	}
	return prometheus.WriteToTextfile(path, registry) // beside it, then renamed
}
