package device

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// smiFields are the columns asked of nvidia-smi, all of them old.
var smiFields = []string{
	"index", "name", "uuid", "pci.bus_id", "driver_version", "memory.total", "clocks.sm", "clocks.mem",
	"clocks.max.sm", "clocks.max.mem", "temperature.gpu", "power.draw", "enforced.power.limit", "compute_mode",
	"ecc.mode.current", "ecc.errors.uncorrected.volatile.total", "clocks_throttle_reasons.active",
}

// readSMI asks nvidia-smi, where NVML cannot be called, all of it within limit.
// Other lines than those about GPUs, and its exit status, become faults.
//
// An error that is [unanswered] says nothing about the machine.
func readSMI(ctx context.Context, path string, environ []string, limit time.Duration) (*schema.DeviceReport, error) {
	ctx, stop := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
	defer stop()
	ask := func(query string) (string, error) { return runSMI(ctx, environ, limit, path, query) }
	text, err := ask("--query-gpu=" + strings.Join(smiFields, ","))
	out, odd := smiReport(text)
	switch {
	case len(out.Devices) > 0:
		for _, line := range odd {
			out.Faults = append(out.Faults, "nvidia-smi: "+line)
		}
		if err != nil { // 14 says that some infoROM is damaged: its device works
			out.Faults = append(out.Faults, err.Error())
		}
	case err != nil && len(odd) > 0:
		return nil, fmt.Errorf("%w: %s", err, strings.Join(odd, "; "))
	case err != nil:
		return nil, err
	case len(odd) > 0:
		return nil, fmt.Errorf("nvidia-smi: got %q, want lines of %d fields", odd[0], len(smiFields))
	}
	text, err = ask("--query-compute-apps=gpu_uuid,pid,process_name,used_memory")
	if err != nil && !tellsHolders(err) { // a device in use would pass for a free one
		return nil, &noAnswer{fmt.Errorf("%w: it does not say who uses the GPUs", err)}
	}
	if err != nil && !slices.Contains(out.Faults, err.Error()) {
		out.Faults = append(out.Faults, err.Error())
	}
	smiHolders(out.Devices, text)
	for _, more := range []struct {
		query string
		enter func(d *schema.Device, first, second string)
	}{
		{"--query-remapped-rows=gpu_uuid,remapped_rows.pending,remapped_rows.failure", smiRemapped},
		{"--query-gpu=uuid,compute_cap,mig.mode.current", smiKinds},
	} {
		switch text, err := ask(more.query); {
		case err == nil:
			smiPairs(out.Devices, text, more.enter)
		case unanswered(err): // older drivers do not know the question, and say so
			return nil, err
		}
	}
	return out, nil
}

// A noAnswer is a question whose answer never came, or leaves out what was asked:
// the tool was too slow, was killed, or could not be started. It says nothing
// about the machine. An exit status of the tool's own is an answer.
type noAnswer struct{ error }

func (e *noAnswer) Unwrap() error { return e.error }

// unanswered reports whether err says nothing about the machine.
func unanswered(err error) bool {
	_, none := errors.AsType[*noAnswer](err)
	return none
}

// tellsHolders reports whether nvidia-smi, with that error, has said who uses the
// GPUs, or that it may not tell: 3 and 4 are "not available" and "no permission",
// 14 and 15 trouble with some other thing or GPU.
//
// Source: nvidia-smi(1), return value.
func tellsHolders(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	return ok && slices.Contains([]int{3, 4, 14, 15}, exit.ExitCode())
}

// runSMI returns what nvidia-smi prints. When the error is an exit status, there
// may be useful text beside it.
func runSMI(ctx context.Context, environ []string, limit time.Duration, path, query string) (string, error) {
	printed, err := within(ctx, func() ([]byte, error) {
		cmd := exec.CommandContext(ctx, path, query, "--format=csv,noheader,nounits")
		// What it printed is complete when it has ended, however long reading
		// takes on a busy machine; within gives up before.
		cmd.Env, cmd.WaitDelay = environ, limit
		return cmd.Output()
	})
	if err == nil {
		return text.Storable(string(printed)), nil
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || !exit.Exited() || exit.ExitCode() == 126 || exit.ExitCode() == 127 { // those of a shell that could not start it
		return "", &noAnswer{fmt.Errorf("nvidia-smi: %w", err)}
	}
	if len(printed) == 0 {
		printed = exit.Stderr
	}
	return text.Storable(string(printed)), fmt.Errorf("nvidia-smi: %w", err)
}

// asks is how often a question without an answer is asked, and patience how many
// limits all of it may take.
const asks, patience = 3, 3

// insist asks again while there is no answer. The first time may take one limit,
// a later one what is left of the patience: a tool that is slow gets longer, one
// that cannot be started is tried at once.
func insist[T any](ctx context.Context, limit time.Duration, ask func(limit time.Duration) (T, error)) (T, error) {
	end := time.Now().Add(patience * limit)
	answer, err := ask(limit)
	for n := 2; n <= asks && unanswered(err) && ctx.Err() == nil; n++ {
		left := time.Until(end).Round(limit / 10)
		if left < limit { // the last time had all of it
			break
		}
		if answer, err = ask(left); unanswered(err) {
			err = &noAnswer{fmt.Errorf("%w, asked %d times", err, n)}
		}
	}
	return answer, err
}

// within returns what ask returns, and gives up when ctx is done: a program that
// hangs inside a driver cannot be killed, and must not hold this one up.
func within(ctx context.Context, ask func() ([]byte, error)) ([]byte, error) {
	var text []byte
	var err error
	done := make(chan struct{})
	go func() { // ends with the program
		defer close(done)
		text, err = ask()
	}()
	select {
	case <-done:
		if ctx.Err() == nil {
			return text, err
		}
	case <-ctx.Done():
	}
	return nil, context.Cause(ctx)
}

// maxOdd bounds how many lines about something else are kept.
const maxOdd = 8

// smiReport reads the lines about GPUs, and returns the first of the others,
// like "WARNING: infoROM is corrupted at gpu 0000:3B:00.0", shortened.
func smiReport(text string) (out *schema.DeviceReport, odd []string) {
	out = &schema.DeviceReport{Source: SourceSMI, Vendor: NVIDIA}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		row, ok := smiRow(line)
		switch {
		case ok:
			d, driver := smiDevice(row)
			out.Driver, out.Devices = cmp.Or(driver, out.Driver), append(out.Devices, d)
			if fault := smiFault(row); fault != "" {
				out.Faults = append(out.Faults, deviceFault(d.Index, fault))
			}
		case line != "" && len(odd) < maxOdd:
			odd = append(odd, fmt.Sprintf("%.200s", line))
		}
	}
	return out, odd
}

// smiRow splits a line about a GPU. nvidia-smi quotes nothing, so commas
// beyond its own are the name's.
func smiRow(line string) ([]string, bool) {
	fields := strings.Split(line, ",")
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
	}
	more := len(fields) - len(smiFields)
	if more < 0 {
		return nil, false
	}
	if n, err := strconv.Atoi(fields[0]); err != nil || n < 0 {
		return nil, false
	}
	name := strings.Join(fields[1:2+more], ", ")
	return slices.Concat(fields[:1], []string{name}, fields[2+more:]), true
}

func smiDevice(row []string) (d schema.Device, driver string) {
	n := func(i int) int { return int(figure(row[i])) }
	d = schema.Device{
		Index: n(0), Name: smiText(row[1]), UUID: smiText(row[2]), PCI: shortPCI(smiText(row[3])), MemoryBytes: uint64(figure(row[5])) << 20,
		ClockSM: n(6), ClockMemory: n(7), MaxClockSM: n(8), MaxClockMem: n(9), Temperature: n(10),
		PowerW: figure(row[11]), PowerLimitW: figure(row[12]), ComputeMode: strings.ToLower(strings.ReplaceAll(smiText(row[13]), "_", "-")),
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
	return d, smiText(row[4])
}

// smiFault is the word in a GPU's line that shows that it does not work. On
// healthy GPUs, too, a single value other than name and UUID can be missing.
func smiFault(row []string) string {
	unknown := 0
	for i, field := range row {
		switch word := smiExcuse(field); word {
		case "", "N/A", "Not Supported", "Insufficient Permissions":
		case "GPU is lost", "GPU requires reset":
			return word
		default:
			switch smiFields[i] {
			case "name", "uuid":
				return word
			case "temperature.gpu", "power.draw":
				unknown++
			}
			if unknown == 2 {
				return "neither temperature nor power can be read: " + word
			}
		}
	}
	return ""
}

// smiExcuse is what nvidia-smi prints instead of a value, "GPU is lost" of
// "[GPU is lost]"; "" when there is a value.
func smiExcuse(field string) string {
	if inner, ok := strings.CutPrefix(field, "["); ok && strings.HasSuffix(inner, "]") {
		return strings.TrimSuffix(inner, "]")
	}
	if field == "N/A" || field == "ERR!" {
		return field
	}
	return ""
}

func smiText(field string) string {
	if smiExcuse(field) != "" {
		return ""
	}
	return field
}

// smiHolders enters which processes compute on the devices: "UUID, number, name, MiB",
// where a name is chosen by its process and may hold commas and quotes.
func smiHolders(devices []schema.Device, text string) {
	for line := range strings.Lines(text) {
		uuid, rest, _ := strings.Cut(strings.TrimSpace(line), ",")
		pid, rest, _ := strings.Cut(rest, ",")
		name, memory := rest, ""
		if last := strings.LastIndexByte(rest, ','); last >= 0 {
			name, memory = rest[:last], rest[last+1:]
		}
		for i := range devices {
			if d := &devices[i]; d.UUID != "" && d.UUID == uuid {
				d.ProcessBefore = append(d.ProcessBefore, schema.Holder{PID: int(figure(pid)), Name: strings.TrimSpace(name), Bytes: uint64(figure(memory)) << 20})
			}
		}
	}
}

// smiPairs calls enter for each line "UUID, first, second" about one of the devices.
func smiPairs(devices []schema.Device, text string, enter func(d *schema.Device, first, second string)) {
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimSpace(line), ",")
		for i := range devices {
			if d := &devices[i]; len(fields) == 3 && d.UUID != "" && d.UUID == fields[0] {
				enter(d, strings.TrimSpace(fields[1]), strings.TrimSpace(fields[2]))
			}
		}
	}
}

// smiRemapped enters whether memory rows wait to be replaced, or could not be.
func smiRemapped(d *schema.Device, pending, failed string) {
	if d.ECC != nil {
		d.ECC.RemapPending, d.ECC.RemapFailed = smiFlag(pending), smiFlag(failed)
	}
}

// smiKinds enters compute capability, "90" of "9.0", and whether a GPU is split.
func smiKinds(d *schema.Device, capability, split string) {
	if major, minor, _ := strings.Cut(capability, "."); number(major) && number(minor) {
		d.Arch = major + minor
	}
	if split == "Enabled" || split == "Disabled" {
		d.MIG = new(split == "Enabled")
	}
}

func number(s string) bool {
	return s != "" && len(s) <= 3 && strings.Trim(s, "0123456789") == ""
}

// smiFlag reads "0", "1", "No" and "Yes": drivers differ. Nil is anything else.
func smiFlag(field string) *bool {
	switch strings.ToLower(field) {
	case "1", "yes":
		return new(true)
	case "0", "no":
		return new(false)
	}
	return nil
}

// figure reads a number of a driver's; 0 for "[N/A]" and its kin.
func figure(s string) float64 {
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || !(f >= 0 && f < 1e15) {
		return 0
	}
	return f
}

// shortPCI is "0000:3b:00.0" of nvidia-smi's "00000000:3B:00.0".
func shortPCI(s string) string {
	s = strings.ToLower(s)
	if len(s) == len("00000000:3b:00.0") && strings.HasPrefix(s, "0000") {
		return s[4:]
	}
	return s
}
