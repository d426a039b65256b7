package device

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// The test binary is also the probing program: a stand-in reader behind the
// real protocol and the real two processes.
const actAs = "DEVICE_TEST_ACTS_AS"

func TestMain(m *testing.M) {
	switch os.Getenv(actAs) {
	case "":
		os.Exit(m.Run())
	case "detach":
		self, _ := os.Executable()
		if err := Detach([]string{self}, []string{actAs + "=serve"}); err != nil {
			os.Exit(3)
		}
	case "serve":
		serve(standIn{}, os.Stdin, os.Stdout, 5*time.Millisecond)
	case "no driver":
		Serve(os.Stdin, os.Stdout, time.Second)
	case "hang":
		time.Sleep(time.Minute)
	case "driver hangs":
		self, _ := os.Executable()
		Detach([]string{self}, []string{actAs + "=hang"})
	case "crash":
		os.Exit(127)
	}
}

type standIn struct{}

func (standIn) report() *schema.DeviceReport {
	return &schema.DeviceReport{Source: SourceNVML, Vendor: NVIDIA, Devices: []schema.Device{{UUID: "GPU-stand-in", Node: fmt.Sprint(os.Getpid())}}}
}

func (standIn) samples() []Sample {
	return []Sample{{ClockSM: 1500, Temperature: 70, PowerW: 300, Throttle: []string{reasonHWThermal, reasonPowerCap}, Processes: []schema.Holder{{PID: 5}}}}
}

// nvidiaRoot is a file tree in which the driver shows itself.
func nvidiaRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "dev/nvidiactl"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return root
}

func acting(t *testing.T, as string) Machine {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Machine{Root: nvidiaRoot(t), Probe: []string{self}, Environ: []string{actAs + "=" + as}, Limit: time.Minute}
}

func TestProbeIsNoChildAndEndsWithUs(t *testing.T) {
	w := Probe(context.Background(), acting(t, "detach"))
	defer w.Close()
	r := w.Report()
	if r.Source != SourceNVML || len(r.Devices) != 1 || r.Devices[0].UUID != "GPU-stand-in" {
		t.Fatalf("report %+v", r)
	}
	if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != syscall.ECHILD {
		t.Errorf("a child is left: %d, %v", pid, err)
	}
	w.Begin()
	deadline := time.Now().Add(time.Minute)
	for {
		w.probe.mu.Lock()
		n := len(w.probe.seen.devices) > 0 && w.probe.seen.devices[0].Samples >= 3
		w.probe.mu.Unlock()
		if n {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no samples")
		}
		time.Sleep(time.Millisecond)
	}
	disturbed := w.End(context.Background(), "benchmark")
	if len(disturbed) != 1 || !strings.HasPrefix(disturbed[0], "benchmark: device 0 was slowed down (hw-thermal) in ") {
		t.Errorf("disturbed %q", disturbed)
	}
	s := r.Sampling[0]
	if s.Phase != "benchmark" || s.Samples < 3 || s.ClockSM != (schema.Spread{Min: 1500, Mean: 1500, Max: 1500}) || s.Throttle[0].Samples != s.Samples || len(s.Seen) != 1 {
		t.Errorf("sampling %+v", s)
	}
	if more := w.After(context.Background()); len(more) != 0 {
		t.Errorf("after: %q", more)
	}
	w.Close()
	proc := "/proc/" + r.Devices[0].Node
	for gone := false; !gone; time.Sleep(time.Millisecond) {
		_, err := os.Stat(proc)
		gone = err != nil || dead(proc)
		if time.Now().After(deadline.Add(time.Minute)) {
			t.Fatal("the probing process lives on")
		}
	}
}

// Process 1 gets its orphans back: it asks twice, and samples nothing.
func TestOneShot(t *testing.T) {
	m := acting(t, "detach")
	m.OneShot = true
	w := Probe(context.Background(), m)
	defer w.Close()
	w.Begin()
	more := append(w.End(context.Background(), "benchmark"), w.After(context.Background())...)
	if r := w.Report(); len(more) != 0 || len(r.Sampling) != 0 || r.Source != SourceNVML || len(r.Devices) != 1 || len(r.Faults) != 1 {
		t.Errorf("%q, %+v", more, r)
	}
}

func TestVisible(t *testing.T) {
	devices := []schema.Device{{Index: 0, UUID: "GPU-a1"}, {Index: 1, UUID: "GPU-b2"}, {Index: 2, UUID: "GPU-b3"}}
	for _, tt := range []struct{ vendor, env, want string }{
		{NVIDIA, "", "GPU-a1 GPU-b2 GPU-b3"},
		{NVIDIA, "CUDA_VISIBLE_DEVICES=", ""},
		{NVIDIA, "CUDA_VISIBLE_DEVICES=2,0", "GPU-b3 GPU-a1"},
		{NVIDIA, "CUDA_VISIBLE_DEVICES=GPU-b", "GPU-b2"},
		{NVIDIA, "CUDA_VISIBLE_DEVICES=1,-1,0", "GPU-b2"},
		{NVIDIA, "CUDA_VISIBLE_DEVICES=7", ""},
		{NVIDIA, "HIP_VISIBLE_DEVICES=0", "GPU-a1 GPU-b2 GPU-b3"},
		{AMD, "ROCR_VISIBLE_DEVICES=1,2 HIP_VISIBLE_DEVICES=1", "GPU-b3"},
	} {
		var got []string
		for _, d := range Visible(&schema.DeviceReport{Vendor: tt.vendor, Devices: devices}, strings.Fields(tt.env)) {
			got = append(got, d.UUID)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("Visible(%s, %s) = %q, want %q", tt.vendor, tt.env, got, tt.want)
		}
	}
}

// dead reports whether the process is a zombie that its new parent has not
// collected: that is nobody's work here.
func dead(proc string) bool {
	stat, err := os.ReadFile(proc + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func TestProbesThatFail(t *testing.T) {
	for as, want := range map[string]string{
		"crash": "exit status 127",
		"hang":  "context deadline exceeded",
	} {
		ctx, stop := context.WithTimeout(context.Background(), 2*time.Second)
		if as == "crash" {
			ctx = context.Background()
		}
		m := acting(t, as)
		w := Probe(ctx, m)
		stop()
		if r := w.Report(); r.Source != SourceNVML || len(r.Faults) != 1 || !strings.Contains(r.Faults[0], want) && !strings.Contains(r.Faults[0], "signal: killed") {
			t.Errorf("%s: %+v", as, r)
		}
		if got, _ := (Requirements{}).Check(w.Report(), w.Report().Devices); got != schema.OutcomeGPUUnhealthy {
			t.Errorf("%s: %q", as, got)
		}
		w.Close()
	}
}

func TestDriverThatHangs(t *testing.T) {
	m := acting(t, "driver hangs")
	p, err := start(context.Background(), m.Probe, m.Environ)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.report(context.Background(), 300*time.Millisecond); err == nil || !strings.Contains(err.Error(), "has not answered within") {
		t.Errorf("Report: %v", err)
	}
	known := 0
	for end := time.Now().Add(time.Minute); known == 0; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		known = p.self
		p.mu.Unlock()
		if time.Now().After(end) {
			t.Fatal("the process that hangs is not known")
		}
	}
	watch, err := unix.Dup(known)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(watch)
	p.close()
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(watch), Events: unix.POLLIN}}, 60_000); n != 1 {
		t.Errorf("the process that hangs is still there: %v", err)
	}
}

func TestWithoutNVMLAndWithoutSMI(t *testing.T) {
	w := Probe(context.Background(), Machine{Root: nvidiaRoot(t), Limit: time.Second})
	defer w.Close()
	if r := w.Report(); r.Source != SourceNone || r.Vendor != NVIDIA || len(r.Faults) != 1 {
		t.Errorf("report %+v", r)
	}
	if got, _ := (Requirements{}).Check(w.Report(), w.Report().Devices); got != "" {
		t.Errorf("nobody requires a GPU: %q", got)
	}
	if got, _ := (Requirements{Vendor: NVIDIA}).Check(w.Report(), w.Report().Devices); got != schema.OutcomeGPUMissing {
		t.Errorf("a GPU is required: %q", got)
	}
}

func TestNoDevices(t *testing.T) {
	w := Probe(context.Background(), Machine{Root: t.TempDir()})
	defer w.Close()
	w.Begin()
	if more := append(w.End(context.Background(), "benchmark"), w.After(context.Background())...); len(more) > 0 {
		t.Errorf("disturbed %q", more)
	}
	if diff := cmp.Diff(&schema.DeviceReport{Source: SourceNone}, w.Report()); diff != "" {
		t.Error(diff)
	}
}

const smi = `#!/bin/sh
case $1 in
--query-gpu=*)
  echo "0, NVIDIA H100 80GB HBM3, GPU-aa, 00000000:3B:00.0, 550.54.15, 81559, 1980, 2619, 1980, 2619, 33, 71.20, 700.00, Default, Enabled, 0, 0x0000000000000001"
  echo "1, NVIDIA H100 80GB HBM3, GPU-bb, 00000000:5E:00.0, 550.54.15, 81559, 345, [N/A], 1980, 2619, 30, [N/A], 700.00, Exclusive_Process, [N/A], [N/A], 0x0000000000000040" ;;
--query-compute-apps=*) echo "GPU-aa, 77, python3, 512" ;;
esac
`

func TestSMIFallback(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nvidia-smi")
	if err := os.WriteFile(path, []byte(smi), 0o755); err != nil {
		t.Fatal(err)
	}
	w := Probe(context.Background(), Machine{Root: t.TempDir(), SMI: path, Environ: []string{"PATH=/usr/bin:/bin"}, Limit: time.Minute})
	defer w.Close()
	r := w.Report()
	if r.Source != SourceSMI || r.Driver != "550.54.15" || len(r.Devices) != 2 || len(r.Faults) != 0 {
		t.Fatalf("%+v", r)
	}
	a, b := r.Devices[0], r.Devices[1]
	if a.PCI != "0000:3b:00.0" || a.MemoryBytes != 81559<<20 || a.PowerW != 71.2 || !a.ECC.Enabled || *a.ECC.Uncorrected != 0 || len(a.ProcessBefore) != 1 || a.ProcessBefore[0].Bytes != 512<<20 {
		t.Errorf("%+v", a)
	}
	if b.ClockMemory != 0 || b.ECC != nil || b.ComputeMode != "exclusive-process" || !slices.Equal(b.Throttle, []string{"hw-thermal"}) {
		t.Errorf("%+v", b)
	}
	if got := w.After(context.Background()); len(got) != 1 || got[0] != "device 0 was also used by process 77 python3" {
		t.Errorf("after: %q", got)
	}
}

func TestSMIThatFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nvidia-smi")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho 'no devices were found'\nexit 6\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{t.TempDir(), nvidiaRoot(t)} {
		w := Probe(context.Background(), Machine{Root: root, SMI: path, Environ: []string{"PATH=/usr/bin:/bin"}, Limit: time.Minute})
		defer w.Close()
		got, _ := Requirements{}.Check(w.Report(), w.Report().Devices)
		if kernel := (Machine{Root: root}).nvidiaKernel(); (got == schema.OutcomeGPUUnhealthy) != kernel {
			t.Errorf("kernel driver %v: %q, %+v", kernel, got, w.Report())
		}
	}
}

func TestServe(t *testing.T) {
	in, told := io.Pipe()
	heard, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- serve(standIn{}, in, out, time.Hour) }()
	lines := bufio.NewScanner(heard)
	for _, word := range []string{tellReport, tellStart, tellStop} {
		io.WriteString(told, word+"\n")
		if !lines.Scan() {
			t.Fatal(lines.Err())
		}
		var a answer
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		if (a.Report != nil) != (word == tellReport) || a.Stopped != (word == tellStop) || (len(a.Samples) > 0) != (word != tellReport) {
			t.Errorf("%s is answered by %s", word, lines.Text())
		}
	}
	told.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// What nvidia-smi prints can always be written into a result, whatever it is.
func FuzzSMI(f *testing.F) {
	f.Add("0, A, GPU-0, 00000000:3B:00.0, 550.54, 81559, 1980, 2619, 1980, 2619, 33, 71.20, 700.00, Default, Enabled, 0, 0x1\n")
	f.Fuzz(func(t *testing.T, shown string) {
		report, _ := smiReport(text.Storable(shown))
		smiHolders(report.Devices, text.Storable(shown))
		smiPairs(report.Devices, shown, smiRemapped)
		r := &schema.Result{Evidence: schema.Evidence{Device: report}}
		Requirements{}.Check(r.Device, r.Device.Devices)
		data, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := schema.DecodeResult(data); err != nil || len(again.Device.Devices) != len(r.Device.Devices) {
			t.Fatalf("DecodeResult: %v", err)
		}
	})
}
