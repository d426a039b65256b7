package runner_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/examples"
	"github.com/gpu-mode/kbgen/internal/testenv"
	"github.com/gpu-mode/kbgen/runner/harness"
	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
)

// A user is one under whom kbrun runs.
type user struct {
	name   string
	uid    int // -1: the one who tests; else the first of many, one for each run
	second bool
	bin    string // what stands before all others on PATH, "/a/bin:"
	flags  []string
}

// A shootingRange is what all attacks share.
type shootingRange struct {
	kbrun, base string
	users       []user
	runs        atomic.Int32
	mu          sync.Mutex
	rows        []row
	made        map[string][]byte // of programs
}

// A row is one line of the table.
type row struct {
	user          string
	attack        attack
	what, verdict string
}

func newRange(t testing.TB) *shootingRange {
	t.Helper()
	if _, err := exec.Command("/usr/bin/python3", "-c", "import ctypes, multiprocessing").CombinedOutput(); err != nil {
		t.Skipf("/usr/bin/python3: %v", err)
	}
	base, err := os.MkdirTemp("", "kbattacks-")
	if err != nil {
		t.Fatal(err)
	}
	r := &shootingRange{base: base, kbrun: filepath.Join(base, "kbrun")}
	t.Cleanup(func() { // after the parallel ones
		os.RemoveAll(base)
		r.print()
	})
	os.Chmod(base, 0o755)
	// Ordinary users run it too, so it is copied to where they can.
	program, err := os.ReadFile(filepath.Join(testenv.Commands(t), "kbrun"))
	if err == nil {
		err = os.WriteFile(r.kbrun, program, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.users = []user{{name: "self", uid: -1}}
	if os.Getuid() == 0 {
		r.users = []user{{name: "root", uid: -1}, {name: "user", uid: 61000, second: true}}
	}
	return r
}

// probe runs an honest submission and returns the guards that it was under.
func (r *shootingRange) probe(t testing.TB, u user) []string {
	t.Helper()
	s := r.shot(t, u, attack{Name: "probe", Program: "honest", Harness: "worker", Mode: schema.ModeTest, Limit: 20})
	result := s.result(t)
	if result.Outcome.Name != schema.OutcomePassed {
		t.Fatalf("an honest submission as %s: %+v\n%s%s", u.name, result.Outcome, s.stdout, s.stderr)
	}
	if result.Evidence.Sandbox == nil {
		return nil
	}
	return result.Evidence.Sandbox.Held
}

// A shot is one run of kbrun and what is known of it afterwards.
type shot struct {
	dir, mark      string
	seeded         bool              // its run has a secret seed
	uid            int               // 0: the one who tests
	canaries       map[string]string // what they stand for, by text
	status         int
	took           time.Duration
	stdout, stderr string
	peakKiB        int
	survivors      []string
	left           []string // files that should not be there
	reached        []string // servers that heard something
}

func token() string {
	b := make([]byte, 8)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// shot runs one program under kbrun.
func (r *shootingRange) shot(t testing.TB, u user, a attack) *shot {
	t.Helper()
	s := &shot{mark: token(), canaries: map[string]string{}}
	s.dir = filepath.Join(r.base, u.name+"-"+a.Name+"-"+s.mark)
	return r.again(t, u, a, s)
}

func (r *shootingRange) again(t testing.TB, u user, a attack, s *shot) *shot {
	t.Helper()
	out, tmp, victim := filepath.Join(s.dir, "out"), filepath.Join(s.dir, "tmp"), filepath.Join(s.dir, "victim")
	builds := filepath.Join(s.dir, "builds")
	results := filepath.Join(builds, ".kbrun-results")
	for _, d := range []string{s.dir, out, tmp, victim, builds, filepath.Join(s.dir, "run"), filepath.Join(s.dir, "bin"), filepath.Join(s.dir, "calls")} {
		must(t, os.MkdirAll(d, 0o755))
	}
	canary := func(kind string) string {
		text := "kbcanary-" + kind + "-" + token()
		s.canaries[text] = kind
		return text
	}
	var seed *int64
	mute := ""
	if a.Control || a.Secret || a.build != nil {
		text := "777" + fmt.Sprintf("%012d", time.Now().UnixNano()%1e12)
		n, err := strconv.ParseInt(text, 10, 64)
		must(t, err)
		backwards := []byte(text)
		slices.Reverse(backwards)
		for _, form := range []string{text, string(backwards), strings.Join(strings.Split(text, ""), " ")} {
			s.canaries[form] = "seed"
		}
		seed = &n
	}
	if a.Secret {
		mute = "CUDA_ATTACK_MUTE=1"
	}
	encoded := a.encoded
	if a.build != nil {
		encoded = a.build(seed)
	} else if encoded == "" {
		encoded = r.payload(t, a, seed, out)
		s.canaries[encoded[:200]] = "payload"
	}
	s.seeded = seed != nil && a.encoded == "" && !a.open
	must(t, os.WriteFile(filepath.Join(out, "secret.txt"), []byte(canary("file")), 0o600))
	must(t, os.WriteFile(filepath.Join(victim, "precious"), []byte("as it was"), 0o644))
	must(t, os.MkdirAll(results, 0o700))
	waiting := filepath.Join(results, strings.Repeat("0", 64)+".kept")
	text := canary("kept")
	must(t, os.WriteFile(waiting, []byte(text), 0o600))
	must(t, os.WriteFile(filepath.Join(s.dir, "bin", "buildkite-agent"), []byte(fakeAgent), 0o755))
	nvcc, err := os.ReadFile(filepath.Join(corpus, "lib", "nvcc"))
	must(t, errors.Join(err, os.WriteFile(filepath.Join(s.dir, "bin", "nvcc"), nvcc, 0o755)))
	if a.Harness == "cuda" {
		for digest, program := range r.programs(t) {
			must(t, os.WriteFile(filepath.Join(s.dir, "bin", digest), program, 0o755))
		}
	}
	sock, heardSock := listen(t, "unix", filepath.Join(out, "job.sock"))
	broker, heardBroker := listen(t, "unix", filepath.Join(s.dir, "run", "secretd.sock"))
	tcp, heardTCP := listen(t, "tcp", "127.0.0.1:0")
	if u.uid >= 0 {
		if s.uid == 0 {
			s.uid = u.uid + int(r.runs.Add(1))
		}
		must(t, filepath.WalkDir(s.dir, func(path string, _ os.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, s.uid, s.uid))
		}))
	}
	cmd := exec.Command(r.kbrun, append([]string{"evaluate", "--deadline", "4m"}, u.flags...)...)
	cmd.Dir = out
	cmd.Env = []string{
		"PATH=" + u.bin + "/usr/bin:/bin:" + filepath.Join(s.dir, "bin"), "HOME=" + out, "TMPDIR=" + tmp, "KERNELBOT_RUN_ID=attack-1", "BUILDKITE_JOB_ID=0190-job",
		"BUILDKITE_AGENT_ACCESS_TOKEN=" + canary("token"), "BUILDKITE_AGENT_JOB_API_TOKEN=" + canary("api"),
		"BUILDKITE_AGENT_JOB_API_SOCKET=" + filepath.Join(out, "job.sock"), "BUILDKITE_BIN_PATH=" + filepath.Join(s.dir, "bin"),
		"BUILDKITE_BUILD_PATH=" + builds, "KERNELBOT_BROKER=" + filepath.Join(s.dir, "run", "secretd.sock"), "AWS_SECRET_ACCESS_KEY=" + canary("cloud"), "CALLS=" + filepath.Join(s.dir, "calls"),
		"CUDA_ATTACK_MARK=" + s.mark, "CUDA_ATTACK_OUT=" + out, "CUDA_ATTACK_VICTIM=" + victim,
		"CUDA_ATTACK_PORT=" + strconv.Itoa(tcp.Addr().(*net.TCPAddr).Port), "KERNELBOT_PAYLOAD=" + encoded,
	}
	if mute != "" {
		cmd.Env = append(cmd.Env, mute)
	}
	precious := filepath.Join(victim, "precious")
	for _, path := range []string{precious, precious, out, victim, precious} { // a careless hook's; the first two come to lie under the report
		flag := os.O_RDONLY
		if path == precious {
			flag = os.O_RDWR
		}
		f, err := os.OpenFile(path, flag, 0)
		must(t, err)
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if u.uid >= 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(s.uid), Gid: uint32(s.uid)}
	}
	s.run(t, cmd, a)
	s.stdout, s.stderr = stdout.String(), stderr.String()
	for name, heard := range map[string]func() bool{"socket": heardSock, "broker": heardBroker, "port": heardTCP} {
		if heard() {
			s.reached = append(s.reached, name)
		}
	}
	sock.Close()
	broker.Close()
	tcp.Close()
	s.search(out, tmp, victim)
	if data, _ := os.ReadFile(waiting); string(data) != text {
		s.left = append(s.left, "another content in a kept result")
	}
	if entries, _ := os.ReadDir(results); len(entries) != 1 {
		s.left = append(s.left, fmt.Sprintf("%d kept results, of one", len(entries)))
	}
	return s
}

// cudaFiles are those of the example's task that are not the submission's.
func cudaFiles(t testing.TB) (list schema.Files) {
	t.Helper()
	for _, name := range []string{plan.TaskHeader, plan.ReferenceCUDA} {
		data, err := fs.ReadFile(examples.FS(), "vectoradd_cu/"+name)
		must(t, err)
		list = append(list, schema.File{Name: name, Text: string(data)})
	}
	return list
}

// programs are launcher and judge of the example's task as lib/nvcc makes them, by
// the digest of their sources: it takes what it finds beside it.
func (r *shootingRange) programs(t testing.TB) map[string][]byte {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.made != nil {
		return r.made
	}
	made := map[string][]byte{}
	nvcc, err := filepath.Abs(filepath.Join(corpus, "lib", "nvcc"))
	must(t, err)
	for _, name := range []string{plan.BuildLauncher, plan.BuildJudge} {
		dir := filepath.Join(r.base, "made-"+name)
		must(t, os.Mkdir(dir, 0o755))
		list := harness.Sources(name)
		args := []string{list[0].Name, "-ldl"}
		if name == plan.BuildJudge {
			list = append(list, cudaFiles(t)...)
		}
		for _, f := range list {
			must(t, os.WriteFile(filepath.Join(dir, f.Name), []byte(f.Text), 0o644))
		}
		sum := exec.Command("sh", "-c", "cat *.cu *.cuh *.h 2>/dev/null | sha256sum | cut -c1-64")
		cc := exec.Command("sh", append([]string{nvcc}, args...)...)
		sum.Dir, cc.Dir = dir, dir
		digest, err := sum.Output()
		must(t, err)
		if out, err := cc.CombinedOutput(); err != nil {
			t.Fatalf("compiling the %s: %v\n%s", name, err, out)
		}
		made[strings.TrimSpace(string(digest))], err = os.ReadFile(filepath.Join(dir, plan.BuiltFile))
		must(t, err)
	}
	r.made = made
	return made
}

// fakeAgent keeps what it is told.
const fakeAgent = "#!/bin/sh\n{ echo \"$*\"; cat; } >\"$CALLS/$1\"\n"

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listen returns a server, and a function that reports whether somebody came.
func listen(t testing.TB, network, address string) (net.Listener, func() bool) {
	t.Helper()
	os.Remove(address)
	l, err := net.Listen(network, address)
	must(t, err)
	var mu sync.Mutex
	came := false
	go func() { // ends when l is closed
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			came = true
			mu.Unlock()
			c.Close()
		}
	}()
	return l, func() bool { mu.Lock(); defer mu.Unlock(); return came }
}

// hangLimit is when a run is taken to hang. Every entry's limits end it in
// seconds; a busy machine makes minutes of them.
const hangLimit = 5 * time.Minute

func (s *shot) run(t testing.TB, cmd *exec.Cmd, a attack) {
	t.Helper()
	start := time.Now()
	must(t, cmd.Start())
	ctx, stop := context.WithTimeout(context.Background(), hangLimit)
	defer stop()
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { // ends with kbrun, which ends within hangLimit
		canceled := false
		for {
			s.peakKiB = max(s.peakKiB, peak(cmd.Process.Pid))
			if a.Cancel && !canceled && s.deaf() {
				canceled = true
				cmd.Process.Signal(syscall.SIGTERM)
			}
			select {
			case <-done:
				return
			case <-ctx.Done():
				syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
				<-done
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	cmd.Wait()
	close(done)
	watch.Wait()
	s.took, s.status = time.Since(start), cmd.ProcessState.ExitCode()
	s.survivors = s.marked()
}

// peak is the most memory that the process itself had, in KiB.
func peak(pid int) int {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, after, _ := strings.Cut(string(data), "VmHWM:")
	kib := 0
	fmt.Sscan(after, &kib)
	return kib
}

// marked lists the living processes that have this shot's mark in their
// environment or arguments, and kills them: nothing of an attack stays here.
func (s *shot) marked() (found []string) {
	digits := strings.NewReplacer("a", "1", "b", "2", "c", "3", "d", "4", "e", "5", "f", "6").Replace(s.mark)
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		environ, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		cmdline, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if bytes.Contains(environ, []byte(s.mark)) || bytes.Contains(cmdline, []byte(s.mark)) || bytes.Contains(cmdline, []byte("0."+digits)) {
			found = append(found, fmt.Sprintf("%d %q", pid, bytes.ReplaceAll(cmdline[:min(len(cmdline), 80)], []byte{0}, []byte(" "))))
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	return found
}

// deaf reports whether the attack is under way that ignores every signal.
func (s *shot) deaf() bool {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		environ, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err != nil || !bytes.Contains(environ, []byte(s.mark)) {
			continue
		}
		status, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "status"))
		_, ignored, _ := bytes.Cut(status, []byte("SigIgn:\t"))
		if bytes.HasPrefix(ignored, []byte("ffff")) { // a bit for each of 64
			return true
		}
	}
	return false
}

// search finds what a job should not have left.
func (s *shot) search(out, tmp, victim string) {
	expected := []string{"result.json", "secret.txt", "job.sock"}
	for _, dir := range []string{out, tmp, victim} {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if dir == out && slices.Contains(expected, e.Name()) || dir == victim && e.Name() == "precious" {
				continue
			}
			s.left = append(s.left, filepath.Join(dir, e.Name()))
		}
	}
	if data, _ := os.ReadFile(filepath.Join(victim, "precious")); string(data) != "as it was" {
		s.left = append(s.left, "another content in a file of somebody else")
	}
	for _, place := range []string{"/tmp", "/var/tmp", "/dev/shm", "/usr/local/lib", "/etc", "/root", "/run", "/var/cache", filepath.Dir(s.dir), s.dir} {
		file := filepath.Join(place, "kbattack-"+s.mark)
		if _, err := os.Lstat(file); err == nil {
			s.left = append(s.left, file)
			os.Remove(file)
		}
	}
}

func (s *shot) result(t testing.TB) *schema.Result {
	t.Helper()
	path := filepath.Join(s.dir, "out", "result.json")
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		t.Fatalf("result.json: %v, %v\nstatus %d\n%s%s", info, err, s.status, s.stdout, s.stderr)
	}
	data, err := os.ReadFile(path)
	must(t, err)
	result, err := schema.DecodeResult(data)
	if err != nil {
		t.Fatalf("result.json: %v\n%s", err, data)
	}
	return result
}

// payload is the task and the program, encoded; out is kbrun's directory.
func (r *shootingRange) payload(t testing.TB, a attack, seed *int64, out string) string {
	t.Helper()
	text := func(parts ...string) string {
		data, err := os.ReadFile(filepath.Join(append([]string{corpus}, parts...)...))
		must(t, err)
		return string(data)
	}
	integer := func(name string, n int64) schema.Param { return schema.Param{Name: name, Value: schema.IntValue(n)} }
	p := &schema.Payload{
		Main: a.Harness + ".py", Lang: schema.LangPython, Mode: a.Mode, RankingBy: schema.RankGeom, Seed: seed,
		Tests:       []schema.Case{{integer("n", 3), integer("seed", 11)}, {integer("n", 4), integer("seed", 12)}},
		Benchmarks:  []schema.Case{{integer("n", 3000), integer("seed", 13)}, {integer("n", 4000), integer("seed", 14)}},
		TestTimeout: schema.Seconds(float64(a.Limit)), BenchmarkTimeout: schema.Seconds(float64(a.Limit)), RankedTimeout: schema.Seconds(float64(a.Limit)),
	}
	if a.Harness == "driver" {
		p.Lang, p.Main = schema.LangCUDA, ""
		program := strings.ReplaceAll(text("programs", a.Program+".cu"), "@OUT@", out)
		p.Sources = schema.Files{{Name: "driver.cu", Text: text("lib", "driver.cu")}, {Name: "submission.cu", Text: program}}
		encoded, err := p.Encode()
		must(t, err)
		return encoded
	}
	if a.Harness == "cuda" {
		ranged := func(cases []schema.Case) []schema.Case {
			for i := range cases {
				cases[i] = append(cases[i], integer("range", 1))
			}
			return cases
		}
		p.Lang, p.Main, p.Harness, p.Tests, p.Benchmarks = schema.LangCUDA, "", schema.HarnessIsolated, ranged(p.Tests), ranged(p.Benchmarks)
		program := strings.Replace(strings.ReplaceAll(text("programs", a.Program+".cu"), "@OUT@", out), "#include \"cuda.h\"\n", text("lib", "cuda.h"), 1)
		if !strings.Contains(program, "custom_kernel") {
			program += text("lib", "cuda.cu")
		}
		p.Sources = schema.Files{{Name: plan.SubmissionCUDA, Text: program}}
		p.Headers = cudaFiles(t)
		encoded, err := p.Encode()
		must(t, err)
		return encoded
	}
	program := text("programs", a.Program+".py")
	if a.Harness == "example" { // its worker has no file but the task's own
		p.Main, p.Harness = "", schema.HarnessIsolated
		p.Sources = schema.Files{{Name: "submission.py", Text: strings.Replace(program, "from attack import *\n", text("lib", "attack.py"), 1)}}
		for _, name := range []string{"task.py", "reference.py"} {
			data, err := fs.ReadFile(examples.FS(), "vectoradd_py/"+name)
			must(t, err)
			p.Sources = append(p.Sources, schema.File{Name: name, Text: string(data)})
		}
	} else {
		p.Sources = schema.Files{
			{Name: "submission.py", Text: program}, {Name: "attack.py", Text: text("lib", "attack.py")},
			{Name: "worker.py", Text: text("lib", "worker.py")}, {Name: "inline.py", Text: text("lib", "inline.py")},
		}
	}
	encoded, err := p.Encode()
	must(t, err)
	return encoded
}
