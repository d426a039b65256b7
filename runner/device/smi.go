package device

import (
	"context"
	"encoding/csv"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// smiFields are the columns asked of nvidia-smi, all of them old.
func smiFields() []string {
	return []string{
		"index", "name", "uuid", "pci.bus_id", "driver_version", "memory.total", "clocks.sm", "clocks.mem",
		"clocks.max.sm", "clocks.max.mem", "temperature.gpu", "power.draw", "enforced.power.limit", "compute_mode",
		"ecc.mode.current", "ecc.errors.uncorrected.volatile.total", "clocks_throttle_reasons.active",
	}
}

// readSMI asks nvidia-smi, where NVML cannot be called.
func readSMI(ctx context.Context, path string, environ []string, limit time.Duration) (*schema.DeviceReport, error) {
	rows, err := runSMI(ctx, limit, environ, path, "--query-gpu="+strings.Join(smiFields(), ","))
	if err != nil {
		return nil, err
	}
	out := &schema.DeviceReport{Source: SourceSMI, Vendor: NVIDIA}
	for _, row := range rows {
		d, driver, ok := smiDevice(row)
		if !ok {
			return nil, fmt.Errorf("nvidia-smi: a line of %d fields, want %d", len(row), len(smiFields()))
		}
		out.Driver, out.Devices = driver, append(out.Devices, d)
	}
	holders, err := runSMI(ctx, limit, environ, path, "--query-compute-apps=gpu_uuid,pid,process_name,used_memory")
	if err != nil {
		out.Faults = append(out.Faults, err.Error())
		return out, nil
	}
	for _, row := range holders {
		for i := range out.Devices {
			if len(row) == 4 && out.Devices[i].UUID == row[0] {
				h := schema.Holder{PID: int(smiNumber(row[1])), Name: row[2], Bytes: uint64(smiNumber(row[3])) << 20}
				out.Devices[i].ProcessBefore = append(out.Devices[i].ProcessBefore, h)
			}
		}
	}
	return out, nil
}

func runSMI(ctx context.Context, limit time.Duration, environ []string, path, query string) ([][]string, error) {
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	cmd := exec.CommandContext(ctx, path, query, "--format=csv,noheader,nounits")
	cmd.Env, cmd.WaitDelay = environ, time.Second
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("nvidia-smi: %w: %.200s", err, firstLine(string(text)))
	}
	return smiRows(string(text))
}

func smiRows(text string) ([][]string, error) {
	lines := csv.NewReader(strings.NewReader(schema.Clean(text)))
	lines.TrimLeadingSpace, lines.FieldsPerRecord, lines.LazyQuotes = true, -1, true
	rows, err := lines.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("nvidia-smi: %w", err)
	}
	return rows, nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

func smiDevice(row []string) (d schema.Device, driver string, ok bool) {
	if len(row) != len(smiFields()) {
		return d, "", false
	}
	n := func(i int) int { return int(smiNumber(row[i])) }
	d = schema.Device{
		Index: n(0), Name: row[1], UUID: row[2], PCI: shortPCI(row[3]), MemoryBytes: uint64(smiNumber(row[5])) << 20,
		ClockSM: n(6), ClockMemory: n(7), MaxClockSM: n(8), MaxClockMem: n(9), Temperature: n(10),
		PowerW: smiNumber(row[11]), PowerLimitW: smiNumber(row[12]), ComputeMode: smiMode(row[13]),
	}
	if row[14] == "Enabled" || row[14] == "Disabled" {
		d.ECC = &schema.ECC{Enabled: row[14] == "Enabled"}
		if count, err := strconv.ParseUint(row[15], 10, 64); err == nil {
			d.ECC.Uncorrected = &count
		}
	}
	if bits, err := strconv.ParseUint(row[16], 0, 64); err == nil {
		d.Throttle = reasons(bits)
	}
	return d, row[4], true
}

// smiNumber is 0 for "[N/A]" and its kin.
func smiNumber(s string) float64 {
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || !(f >= 0 && f < 1e15) {
		return 0
	}
	return f
}

func smiMode(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "-")) }

// shortPCI is "0000:3b:00.0" of nvidia-smi's "00000000:3B:00.0".
func shortPCI(s string) string {
	s = strings.ToLower(s)
	if len(s) == len("00000000:3b:00.0") && strings.HasPrefix(s, "0000") {
		return s[4:]
	}
	return s
}
