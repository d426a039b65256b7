package job

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
)

// asked is what a job asks of the machine.
type asked struct{ GPUVendor string }

func testKeeper(t *testing.T) *keeper {
	t.Helper()
	k, err := openKeeper(filepath.Join(t.TempDir(), "some", "results"))
	if err != nil {
		t.Skipf("results cannot be kept here: %v", err)
	}
	return k
}

func passedResult(id string) *schema.Result {
	r := blank(id, schema.OutcomePassed, "")
	r.Success, r.Error = true, ""
	r.Timing = &schema.Timing{Total: 3.25, Phases: []schema.PhaseTiming{}}
	return r
}

func TestKeeper(t *testing.T) {
	k := testKeeper(t)
	key := keptKey{RunID: "a", Payload: "p", Asked: asked{GPUVendor: "nvidia"}}
	if r := k.find(key); r != nil {
		t.Errorf("find before keep = %+v", r)
	}
	if err := k.keep(key, passedResult("a")); err != nil {
		t.Fatal(err)
	}
	if r := k.find(key); r == nil || r.RunID != "a" || r.Outcome.Name != schema.OutcomePassed || r.Timing == nil || r.Timing.Total != 3.25 {
		t.Errorf("find = %+v", r)
	}
	for _, other := range []keptKey{
		{RunID: "b", Payload: "p", Asked: asked{GPUVendor: "nvidia"}},
		{RunID: "a", Payload: "q", Asked: asked{GPUVendor: "nvidia"}},
		{RunID: "a", Payload: "p", Asked: asked{GPUVendor: "amd"}},
		{RunID: "a", Payload: "p", Asked: asked{GPUVendor: "nvidia"}, Image: "i"},
	} {
		if r := k.find(other); r != nil {
			t.Errorf("find(%+v) = %+v", other, r)
		}
	}
	k.now = func() time.Time { return time.Now().Add(keptAge + time.Minute) }
	if r := k.find(key); r != nil {
		t.Errorf("an old result is found: %+v", r)
	}
	k.sweep(0)
	if left, _ := os.ReadDir(k.dir); len(left) > 0 {
		t.Errorf("an old result stays: %v", left)
	}
	var none *keeper
	if err := none.keep(key, passedResult("a")); err != nil || none.find(key) != nil {
		t.Error("without a directory something is kept")
	}
	none.forget(key)
}

func TestWhatIsNotKept(t *testing.T) {
	k := testKeeper(t)
	for _, o := range schema.Outcomes() {
		r := passedResult("a")
		r.Outcome = o
		if err := k.keep(keptKey{RunID: o.Name}, r); err != nil {
			t.Fatal(err)
		}
		r.RunID = o.Name
		if got, _ := os.ReadDir(k.dir); (len(got) > 0) == o.Retry {
			t.Errorf("%s: kept %v, want %v", o.Name, len(got) > 0, !o.Retry)
		}
		k.forget(keptKey{RunID: o.Name})
	}
	r := passedResult("a")
	r.Sandbox = schema.NewSandbox(schema.MeansProcess, map[string]string{schema.GuardFiles: "no Landlock", schema.GuardUser: "not root"})
	if err := k.keep(keptKey{RunID: "a"}, r); err == nil || k.find(keptKey{RunID: "a"}) != nil {
		t.Errorf("a result is kept where its submission could write: %v", err)
	}
}

func TestKeptAreBounded(t *testing.T) {
	k := testKeeper(t)
	key := func(i int) keptKey { return keptKey{RunID: fmt.Sprint("r", i)} }
	start := time.Now().Add(-time.Hour)
	for i := range keptCount + 5 {
		if err := k.keep(key(i), passedResult(key(i).RunID)); err != nil {
			t.Fatal(err)
		}
		name, _ := key(i).name()
		if err := os.Chtimes(filepath.Join(k.dir, name), time.Time{}, start.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	entries, _ := os.ReadDir(k.dir)
	if len(entries) != keptCount || k.find(key(0)) != nil || k.find(key(keptCount+4)) == nil {
		t.Errorf("%d entries, want %d; the oldest is there: %v, the newest %v", len(entries), keptCount, k.find(key(0)) != nil, k.find(key(keptCount+4)) != nil)
	}
	k.sweep(keptBytes)
	if entries, _ := os.ReadDir(k.dir); len(entries) != 0 {
		t.Errorf("%d entries beside one that takes all the room", len(entries))
	}
}

// Whatever stands there when kbrun was killed between two steps: a result is
// found whole or not at all, and what is left goes.
func TestKeptAfterADeath(t *testing.T) {
	k := testKeeper(t)
	key := keptKey{RunID: "a"}
	if err := k.keep(key, passedResult("a")); err != nil {
		t.Fatal(err)
	}
	name, _ := key.name()
	path := filepath.Join(k.dir, name)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(path)
	for size := range len(whole) + 1 {
		for _, at := range []string{filepath.Join(k.dir, keptPartial+"1"), path} { // the second only a broken disk makes
			if err := os.WriteFile(at, whole[:size], 0o600); err != nil {
				t.Fatal(err)
			}
			if found := k.find(key) != nil; found != (at == path && size == len(whole)) {
				t.Fatalf("%d of %d bytes in %s: found %v", size, len(whole), filepath.Base(at), found)
			}
			os.Remove(at)
		}
	}
	partial := filepath.Join(k.dir, keptPartial+"2")
	if err := errors.Join(os.WriteFile(partial, whole, 0o600), os.WriteFile(filepath.Join(k.dir, "README"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	k.sweep(0)
	if _, err := os.Stat(partial); err != nil {
		t.Error("a result that may just be written is removed")
	}
	k.now = func() time.Time { return time.Now().Add(partialAge + time.Minute) }
	k.sweep(0)
	if left, _ := os.ReadDir(k.dir); len(left) != 1 || left[0].Name() != "README" {
		t.Errorf("left: %v", left)
	}
}

// asKeeper is a directory in which this test binary keeps results until it is
// killed.
const asKeeper = "KBRUN_TEST_AS_KEEPER"

func TestKeptAfterKills(t *testing.T) {
	if dir := os.Getenv(asKeeper); dir != "" {
		k, err := openKeeper(dir)
		if err != nil {
			t.Fatal(err)
		}
		r := passedResult("a")
		r.Error = strings.Repeat("x", 1<<20)
		fmt.Println("begins")
		for {
			k.keep(keptKey{RunID: "a"}, r)
		}
	}
	k := testKeeper(t)
	found := 0
	for range 20 {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestKeptAfterKills$")
		cmd.Env = append(os.Environ(), asKeeper+"="+k.dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		out.Read(make([]byte, 6)) // it begins
		time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond)
		cmd.Process.Kill()
		cmd.Wait()
		if r := k.find(keptKey{RunID: "a"}); r != nil {
			if found++; len(r.Error) != 1<<20 {
				t.Fatalf("an error text of %d bytes", len(r.Error))
			}
		}
		k.forget(keptKey{RunID: "a"})
	}
	t.Logf("found whole after %d of 20 kills", found)
}

func TestOpenKeeperRefuses(t *testing.T) {
	dir := t.TempDir()
	os.Mkdir(filepath.Join(dir, "wide"), 0o755)
	os.Mkdir(filepath.Join(dir, "shared"), 0o755)
	os.Chmod(filepath.Join(dir, "shared"), 0o777)
	os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)
	os.Symlink(filepath.Join(dir, "wide"), filepath.Join(dir, "link"))
	for path, want := range map[string]string{
		"relative":                         "absolute path",
		filepath.Join(dir, "wide"):         "mode 0755, want",
		filepath.Join(dir, "shared", "in"): "others may replace",
		filepath.Join(dir, "file"):         "is no directory",
		filepath.Join(dir, "link"):         "mode 0755, want",
	} {
		if _, err := openKeeper(path); err == nil || !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "no Landlock") {
			t.Errorf("openKeeper(%s): %v, want %q", path, err, want)
		}
	}
}

func TestRetry(t *testing.T) {
	down := errors.New("down")
	r := retry{limit: time.Minute, last: time.Millisecond, first: time.Microsecond, most: 8 * time.Microsecond, end: time.Now().Add(time.Hour)}
	calls, said := 0, 0
	r.say = func(error) { said++ }
	err := r.do(context.Background(), func(context.Context, time.Duration) error {
		if calls++; calls < 7 {
			return down
		}
		return nil
	})
	if err != nil || calls != 7 || said != 6 {
		t.Errorf("do = %v after %d calls and %d words, want 7 and 6", err, calls, said)
	}
	// The time is over: one call all the same, and no word of another.
	r.end, calls, said = time.Now().Add(-time.Second), 0, 0
	err = r.do(context.Background(), func(_ context.Context, limit time.Duration) error { calls++; return down })
	if err != down || calls != 1 || said != 0 {
		t.Errorf("do = %v after %d calls and %d words, want %v after one", err, calls, said, down)
	}
	// A job that is being ended: the call under way is cut short, no other begins.
	r.end, calls = time.Now().Add(time.Hour), 0
	ctx, stop := context.WithCancel(context.Background())
	err = r.do(ctx, func(ctx context.Context, limit time.Duration) error {
		calls++
		stop()
		<-ctx.Done()
		return down
	})
	if err != down || calls != 1 {
		t.Errorf("do in an ended job = %v after %d calls, want %v after one", err, calls, down)
	}
	// Nor while it waits.
	ctx, stop = context.WithCancel(context.Background())
	r.first, r.most, calls = time.Hour, time.Hour, 0
	r.end = time.Now().Add(3 * time.Hour)
	r.say = func(error) { stop() }
	if err = r.do(ctx, func(context.Context, time.Duration) error { calls++; return down }); err != down || calls != 1 {
		t.Errorf("do in a job ended while it waits = %v after %d calls", err, calls)
	}
	// Of a job that had been ended before, one short call.
	err = r.do(ctx, func(_ context.Context, limit time.Duration) error {
		if limit > time.Second {
			t.Errorf("a limit of %s", limit)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
