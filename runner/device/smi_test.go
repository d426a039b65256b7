package device

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// smiMachine is a machine with this nvidia-smi and NVIDIA's kernel driver.
func smiMachine(t *testing.T, script string) Machine {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nvidia-smi")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return Machine{Root: nvidiaRoot(t), SMI: path, Environ: []string{"PATH=/usr/bin:/bin"}, Limit: time.Minute}
}

// answers is an nvidia-smi that prints one text for each kind of question, and
// exits with that status.
func answers(gpus, apps, remapped, status string) string {
	print := func(text string) string { return "cat <<'END'\n" + text + "\nEND\n" }
	return "case $1 in\n--query-gpu=*)\n" + print(gpus) + ";;\n--query-compute-apps=*)\n" + print(apps) + ";;\n--query-remapped-rows=*)\n" + print(remapped) + ";;\nesac\nexit " + status + "\n"
}

const (
	goodGPU  = "0, NVIDIA H100, GPU-aa, 00000000:3B:00.0, 550.54.15, 81559, 1980, 2619, 1980, 2619, 33, 71.20, 700.00, Default, Enabled, 0, 0x0000000000000001"
	otherGPU = "1, NVIDIA H100, GPU-bb, 00000000:5E:00.0, 550.54.15, 81559, 1980, 2619, 1980, 2619, 33, 71.20, 700.00, Default, Enabled, 0, 0x0000000000000001"
)

// field is otherGPU's line with one column replaced, or several.
func field(pairs ...string) string {
	row := strings.Split(otherGPU, ", ")
	for i := 0; i < len(pairs); i += 2 {
		row[slices.Index(smiFields, pairs[i])] = pairs[i+1]
	}
	return strings.Join(row, ", ")
}

func TestSMIHealth(t *testing.T) {
	const lost = "[GPU is lost]"
	all := slices.Repeat([]string{lost}, len(smiFields))
	all[0] = "1"
	for _, tt := range []struct {
		name, line string
		want       string // of the fault; "" is healthy
	}{
		{"as it should be", otherGPU, ""},
		{"lost", strings.Join(all, ", "), "device 1 does not work: GPU is lost"},
		{"name", field("name", "[Unknown Error]"), "device 1 (GPU-bb) does not work: Unknown Error"},
		{"UUID", field("uuid", "[GPU requires reset]"), "device 1 (0000:5e:00.0) does not work: GPU requires reset"},
		{"old words", field("name", "ERR!"), "device 1 (GPU-bb) does not work: ERR!"},
		{"reset, told by another column", field("temperature.gpu", "[GPU requires reset]"), "device 1 (GPU-bb) does not work: GPU requires reset"},
		{"two sensors", field("temperature.gpu", "[Unknown Error]", "power.draw", "ERR!"), "device 1 (GPU-bb) does not work: neither temperature nor power"},
		{"no sensors", field("temperature.gpu", "[N/A]", "power.draw", "[Not Supported]"), ""},
		{"one sensor", field("power.draw", "[Unknown Error]"), ""},
		{"no name to be had", field("name", "[N/A]"), ""},
	} {
		w := Probe(context.Background(), smiMachine(t, answers(goodGPU+"\n"+tt.line, "", "", "0")))
		r := w.Report()
		got, text := Requirements{}.Check(r, w.Visible())
		if (got == schema.OutcomeGPUUnhealthy) != (tt.want != "") || !strings.HasPrefix(text, tt.want) || len(r.Devices) != 2 {
			t.Errorf("%s: %q %q, want %q; %+v", tt.name, got, text, tt.want, r)
			continue
		}
		if d := r.Devices[1]; strings.ContainsAny(d.Name+d.UUID+d.PCI+r.Driver, "[!") || r.Driver == "" {
			t.Errorf("%s: device %+v, driver %q", tt.name, d, r.Driver)
		}
		if got, text := (Requirements{}).Check(r, w.Visible()[:1]); got != "" {
			t.Errorf("%s: the other device is %q %q", tt.name, got, text)
		}
		w.Close()
	}
}

func TestSMIRemappedRows(t *testing.T) {
	for answer, want := range map[string]string{
		"GPU-aa, 0, 0":         "",
		"GPU-aa, No, No":       "",
		"GPU-aa, [N/A], [N/A]": "",
		"No devices":           "",
		"GPU-aa, 1, 0":         schema.OutcomeGPUUnhealthy,
		"GPU-aa, No, Yes":      schema.OutcomeGPUUnhealthy,
		"Field \"gpu_uuid\" is not a valid field.": "",
	} {
		w := Probe(context.Background(), smiMachine(t, answers(goodGPU, "", answer, "0")))
		if got, text := (Requirements{}).Check(w.Report(), w.Visible()); got != want || len(w.Report().Faults) > 0 {
			t.Errorf("%s: %q %q, want %q; %+v", answer, got, text, want, w.Report())
		}
		w.Close()
	}
	// A driver that does not know the question fails it and nothing else.
	old := strings.Replace(answers(goodGPU, "GPU-aa, 7, python3, 1", "", "0"), "--query-remapped-rows=*)", "--query-remapped-rows=*) exit 2", 1)
	w := Probe(context.Background(), smiMachine(t, old))
	defer w.Close()
	if r := w.Report(); len(r.Faults) > 0 || len(r.Devices) != 1 || len(r.Devices[0].ProcessBefore) != 1 {
		t.Errorf("%+v", r)
	}
}

// One device's trouble says nothing against the others.
func TestSMIOddLines(t *testing.T) {
	const warning = "WARNING: infoROM is corrupted at gpu 0000:3B:00.0"
	const handle = "Unable to determine the device handle for GPU 0000:5E:00.0: GPU is lost.  Reboot the system to recover this GPU"
	for _, tt := range []struct {
		gpus, status string
		want         []string // faults
	}{
		{goodGPU + "\n" + warning, "14", []string{"nvidia-smi: " + warning, "nvidia-smi: exit status 14"}},
		{handle + "\n" + goodGPU, "15", []string{"nvidia-smi: " + handle, "nvidia-smi: exit status 15"}},
		{strings.Repeat("x", 300) + "\n\n" + goodGPU, "0", []string{"nvidia-smi: " + strings.Repeat("x", 200)}},
	} {
		w := Probe(context.Background(), smiMachine(t, answers(tt.gpus, "GPU-aa, 7, python3, 1", "", tt.status)))
		r := w.Report()
		if len(r.Devices) != 1 || !slices.Equal(r.Faults, tt.want) || len(r.Devices[0].ProcessBefore) != 1 {
			t.Errorf("%.60s: faults %q, want %q; %+v", tt.gpus, r.Faults, tt.want, r)
		}
		if got, text := (Requirements{Vendor: NVIDIA, Shared: true}).Check(r, w.Visible()); got != "" {
			t.Errorf("%.60s: %q %q", tt.gpus, got, text)
		}
		w.Close()
	}
}

func TestSMIProcessNames(t *testing.T) {
	for line, want := range map[string]schema.Holder{
		`GPU-aa, 77, python3, 512`:                {PID: 77, Name: "python3", Bytes: 512 << 20},
		`GPU-aa, 77, python3 -c "a, b", [N/A]`:    {PID: 77, Name: `python3 -c "a, b"`},
		`GPU-aa, 77, "odd, 5`:                     {PID: 77, Name: `"odd`, Bytes: 5 << 20},
		`GPU-aa, 77, a line that is broken`:       {PID: 77, Name: "a line that is broken"},
		`GPU-aa, [Insufficient Permissions], x,1`: {Name: "x", Bytes: 1 << 20},
	} {
		w := Probe(context.Background(), smiMachine(t, answers(goodGPU+"\n"+otherGPU, "GPU-bb, 1, other, 1\n"+line, "", "0")))
		if got := w.Report().Devices[0].ProcessBefore; !slices.Equal(got, []schema.Holder{want}) {
			t.Errorf("%s: %+v, want %+v; faults %q", line, got, want, w.Report().Faults)
		}
		w.Close()
	}
}

// A program whose end does not come holds nobody up beyond the limit, neither
// by its output nor by itself.
func TestSMIThatCannotBeKilled(t *testing.T) {
	end := filepath.Join(t.TempDir(), "end")
	m := smiMachine(t, "(sleep 20; echo >"+end+"); :")
	m.Limit = 200 * time.Millisecond
	w := Probe(context.Background(), m)
	defer w.Close()
	if _, err := os.Stat(end); err == nil {
		t.Errorf("Probe waited for a program, with a limit of %s", m.Limit)
	}
	if r := w.Report(); len(r.Faults) != 1 || !regexp.MustCompile(`^nvidia-smi: no answer within [0-9]+ms(, asked 2 times)?$`).MatchString(r.Faults[0]) {
		t.Errorf("%+v", r)
	}
	never := make(chan struct{})
	defer close(never)
	ctx, stop := context.WithCancelCause(context.Background())
	enough := errors.New("enough")
	stop(enough)
	_, err := within(ctx, func() ([]byte, error) {
		<-never
		return nil, nil
	})
	if err != enough {
		t.Errorf("within: %v, want %v", err, enough)
	}
}

func TestBrokenDriver(t *testing.T) {
	w := Probe(context.Background(), smiMachine(t, "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18"))
	defer w.Close()
	for vendor, want := range map[string]string{"": schema.OutcomeGPUUnhealthy, NVIDIA: schema.OutcomeGPUUnhealthy, AMD: schema.OutcomeGPUMissing, None: ""} {
		got, text := Requirements{Vendor: vendor}.Check(w.Report(), w.Visible())
		if got != want || want != "" && !strings.HasSuffix(text, "nvidia-smi: exit status 18: Failed to initialize NVML: Driver/library version mismatch") {
			t.Errorf("%q required: %q %q, want %q", vendor, got, text, want)
		}
	}
}

// The vendor that a job wants is probed before a stray tool of another's.
func TestRequiredVendorFirst(t *testing.T) {
	stray := smiMachine(t, "echo 'NVIDIA-SMI has failed'; exit 9")
	stray.Root = amdTree(t)
	if err := os.Mkdir(filepath.Join(stray.Root, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(stray.Root, "dev/accel0"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for required, want := range map[string]string{"": NVIDIA, None: NVIDIA, NVIDIA: NVIDIA, AMD: AMD, TPU: TPU} {
		stray.Vendor = required
		w := Probe(context.Background(), stray)
		if got := w.Report().Vendor; got != want {
			t.Errorf("%q required: probed %q, want %q", required, got, want)
		}
		w.Close()
	}
	// Where there is none, what is there is told.
	m := smiMachine(t, answers(goodGPU, "", "", "0"))
	m.Vendor = AMD
	w := Probe(context.Background(), m)
	defer w.Close()
	if got, text := (Requirements{Vendor: AMD}).Check(w.Report(), w.Visible()); got != schema.OutcomeWrongMachine || text != "the machine shows 1 of nvidia, want at least 1 of amd" {
		t.Errorf("%q %q", got, text)
	}
}

func TestNoneRequired(t *testing.T) {
	text, asked := counted(t, answers(field("name", "[GPU is lost]"), "GPU-bb, 7, trainer, 1", "", "0"))
	m := smiMachine(t, text)
	m.Vendor = None
	w := Probe(context.Background(), m)
	defer w.Close()
	if got, text := (Requirements{Vendor: None, Count: 2}).Check(w.Report(), w.Visible()); got != "" || text != "" {
		t.Errorf("Check: %q %q", got, text)
	}
	if got := w.After(context.Background()); len(got) > 0 || asked() != 2 || len(w.Report().Devices[0].ProcessAfter) != 1 {
		t.Errorf("After: %q, asked %d times, %+v", got, asked(), w.Report())
	}
}

// What happens on a device that the submission cannot see changes no time of
// its, and is reported.
func TestHiddenDevices(t *testing.T) {
	text, asked := counted(t, answers(goodGPU+"\n"+otherGPU, "GPU-bb, 7, trainer, 1", "", "0"))
	m := smiMachine(t, text)
	m.Environ = append(m.Environ, "CUDA_VISIBLE_DEVICES=0")
	w := Probe(context.Background(), m)
	defer w.Close()
	if got := w.After(context.Background()); len(got) > 0 || asked() != 2 {
		t.Errorf("After: %q, asked %d times", got, asked())
	}
	if got := w.Report().Devices[1].ProcessAfter; len(got) != 1 {
		t.Errorf("the hidden device's processes are %v", got)
	}
	hot := []schema.Count{{Reason: reasonHWThermal, Samples: 1}}
	for index, want := range []int{1, 0} {
		if got := w.disturbed(schema.Sampling{Index: index, Throttle: hot}); len(got) != want {
			t.Errorf("device %d: disturbed %q, want %d", index, got, want)
		}
	}
	amd := Probe(context.Background(), Machine{Root: amdTree(t), Environ: []string{"ROCR_VISIBLE_DEVICES=1"}})
	defer amd.Close()
	if got := amd.After(context.Background()); len(got) > 0 || len(amd.Report().Devices[0].ProcessAfter) != 1 {
		t.Errorf("AMD: After: %q, %+v", got, amd.Report().Devices[0])
	}
}

func TestSettle(t *testing.T) {
	text, _ := counted(t, answers(goodGPU, "GPU-aa, 7, killed, 1", "", "0"))
	m := smiMachine(t, strings.Replace(text, "# counted", "test $n -le 2 || exit 0", 1)) // the third answer is: nobody
	m.Settle = time.Minute
	w := Probe(context.Background(), m)
	defer w.Close()
	busy := func() string { outcome, _ := Requirements{}.Check(w.Report(), w.Visible()); return outcome }
	if got := busy(); got != schema.OutcomeGPUBusy {
		t.Fatalf("at first: %q", got)
	}
	w.Settle(context.Background())
	if got := busy(); got != "" || len(w.Report().Devices[0].ProcessBefore) > 0 {
		t.Errorf("settled: %q, %+v", got, w.Report())
	}

	// It ends with ctx, long before its time is over, and leaves what it knows.
	text, asked := counted(t, answers(goodGPU, "GPU-aa, 7, trainer, 1", "", "0"))
	m = smiMachine(t, text)
	m.Settle = time.Hour
	w = Probe(context.Background(), m)
	defer w.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		for asked() < 3 {
			time.Sleep(time.Millisecond)
		}
		stop()
	}()
	if w.Settle(ctx); busy() != schema.OutcomeGPUBusy {
		t.Errorf("after Settle: %q", busy())
	}
}

// A tool that does not say who uses the GPUs cannot be used: they might be
// busy. One that says that it may not tell is believed.
func TestSMIHoldersUnknown(t *testing.T) {
	text := answers(goodGPU, "", "", "0")
	hangs := smiMachine(t, strings.Replace(text, "--query-compute-apps=*)", "--query-compute-apps=*) kill -KILL $$;", 1))
	w := Probe(context.Background(), hangs)
	defer w.Close()
	if got, _ := (Requirements{}).Check(w.Report(), w.Visible()); got != schema.OutcomeGPUUnhealthy || len(w.Report().Devices) > 0 {
		t.Errorf("without an answer: %q, %+v", got, w.Report())
	}
	for _, status := range []string{"1", "2", "126", "127", "255"} {
		fails := smiMachine(t, strings.Replace(text, "--query-compute-apps=*)", "--query-compute-apps=*) exit "+status+";", 1))
		w = Probe(context.Background(), fails)
		defer w.Close()
		if got, _ := (Requirements{}).Check(w.Report(), w.Visible()); got != schema.OutcomeGPUUnhealthy {
			t.Errorf("exit status %s: %q, %+v", status, got, w.Report())
		}
	}
	refuses := smiMachine(t, strings.Replace(text, "--query-compute-apps=*)", "--query-compute-apps=*) echo Insufficient Permissions; exit 4;", 1))
	w = Probe(context.Background(), refuses)
	defer w.Close()
	if got, _ := (Requirements{}).Check(w.Report(), w.Visible()); got != "" || len(w.Report().Devices) != 1 {
		t.Errorf("refused: %q, %+v", got, w.Report())
	}
}

// counted makes the stand-in count how often it is asked who uses the GPUs.
func counted(t *testing.T, text string) (script string, asked func() int) {
	t.Helper()
	count := filepath.Join(t.TempDir(), "count")
	script = strings.Replace(text, "--query-compute-apps=*)", "--query-compute-apps=*) echo >>"+count+"; n=$(wc -l <"+count+")\n# counted\n", 1)
	return script, func() int {
		data, _ := os.ReadFile(count)
		return len(data)
	}
}
