package job

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/runner/sandbox"
	"github.com/gpu-mode/kbgen/schema"
)

// A result that could not be handed to Buildkite is kept on the machine, so
// that the job's next try there hands it over instead of judging once more.
//
// The directory belongs to kbrun's user alone and is hidden from submissions,
// by their own user or by Landlock; where neither can be had, nothing is kept.
// An entry appears whole, under a name made of everything that it answers, and
// is gone when it was handed over, or expires.

const (
	keptAge     = 24 * time.Hour
	keptCount   = 64
	keptBytes   = 256 << 20
	keptMagic   = "kbrun result 1 " // then the digest of what follows the line, in hex
	keptSuffix  = ".kept"
	keptPartial = ".partial-"
	partialAge  = time.Hour // nobody writes for that long
)

// RetainNone is what switches keeping off.
const RetainNone = "none"

// A keeper keeps results in one directory. A nil keeper keeps nothing.
type keeper struct {
	dir string
	now func() time.Time
}

// openKeeper makes the directory, with those above it, and removes what has
// expired.
//
// Error: results cannot be kept there safely, and why.
func openKeeper(dir string) (*keeper, error) {
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("keeping results: got %q, want an absolute path or %q", dir, RetainNone)
	}
	if !sandbox.FilesShut() {
		return nil, errors.New("keeping results: a submission runs as kbrun's own user here, and the kernel has no Landlock")
	}
	err := os.MkdirAll(filepath.Dir(dir), 0o755)
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	var real string
	if err == nil || errors.Is(err, fs.ErrExist) {
		real, err = filepath.EvalSymlinks(dir)
	}
	if err == nil {
		err = ownDirectory(real)
	}
	if err != nil {
		return nil, fmt.Errorf("keeping results: %w", err)
	}
	k := &keeper{dir: real, now: time.Now}
	k.sweep(0)
	return k, nil
}

// ownDirectory refuses a directory that somebody else could look into, write to
// or put another in the place of.
func ownDirectory(dir string) error {
	for path := dir; ; path = filepath.Dir(path) {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		mode := st.Mode & 0o7777
		switch {
		case st.Mode&unix.S_IFMT != unix.S_IFDIR:
			return fmt.Errorf("%s is no directory", path)
		case path == dir && (int(st.Uid) != os.Geteuid() || mode&0o077 != 0):
			return fmt.Errorf("%s belongs to user %d and has mode %04o, want user %d and 0700", path, st.Uid, mode, os.Geteuid())
		case int(st.Uid) != os.Geteuid() && st.Uid != 0:
			return fmt.Errorf("%s, above it, belongs to user %d", path, st.Uid)
		case mode&0o022 != 0 && mode&unix.S_ISVTX == 0:
			return fmt.Errorf("%s, above it, has mode %04o: others may replace what is in it", path, mode)
		case path == filepath.Dir(path):
			return nil
		}
	}
}

// A keptKey is what a kept result answers: the run, its payload, and what was
// asked of the machine.
type keptKey struct {
	RunID   string
	Payload string // digest, with the seed
	Asked   any    // flags
	Image   string
}

// name is the entry's. It tells nothing of a seed to who could only list names:
// nobody can but the owner.
func (k keptKey) name() (string, error) {
	data, err := json.Marshal(k)
	if err != nil {
		return "", err
	}
	return digestOf(data) + keptSuffix, nil
}

func digestOf(data []byte) string {
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

// find returns the result kept under the key; nil when there is none that is
// whole, of this run and not too old.
func (k *keeper) find(key keptKey) *schema.Result {
	if k == nil {
		return nil
	}
	name, err := key.name()
	if err != nil {
		return nil
	}
	data, err := k.read(name)
	if err != nil {
		return nil
	}
	head, body, _ := bytes.Cut(data, []byte("\n"))
	if sum, ok := strings.CutPrefix(string(head), keptMagic); !ok || sum != digestOf(body) {
		return nil
	}
	result, err := schema.DecodeResult(body)
	if err != nil || result.RunID != key.RunID || !worthKeeping(result) {
		return nil
	}
	return result
}

// read returns the bytes of an entry that this user wrote and that is fresh.
func (k *keeper) read(name string) ([]byte, error) {
	fd, err := unix.Open(filepath.Join(k.dir, name), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	age := k.now().Sub(time.Unix(st.Mtim.Unix()))
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 || st.Nlink != 1 || age > keptAge || age < -keptAge {
		return nil, fs.ErrInvalid
	}
	return io.ReadAll(io.LimitReader(f, schema.MaxResult+1024))
}

// worthKeeping reports whether a result says something that the next try would
// say, too: a verdict, and no fault of the machine, the runner or a cancel.
func worthKeeping(r *schema.Result) bool { return !r.Outcome.Retry && r.Outcome.Name != "" }

// shutIn reports whether what judged kept its submission from the directory.
func shutIn(r *schema.Result) bool {
	if r.Sandbox == nil { // nothing of a submission ran
		return true
	}
	return slices.Contains(r.Sandbox.Held, schema.GuardFiles) || slices.Contains(r.Sandbox.Held, schema.GuardUser)
}

// keep puts the result away. Whenever kbrun or the machine dies, the entry is
// there whole or not at all.
//
// Error: it is not kept, and why.
func (k *keeper) keep(key keptKey, result *schema.Result) error {
	if k == nil || !worthKeeping(result) {
		return nil
	}
	if !shutIn(result) {
		return errors.New("keeping the result: the submission was not kept from kbrun's files")
	}
	name, err := key.name()
	var body []byte
	if err == nil {
		body, err = encodeBounded(result)
	}
	if err == nil {
		k.sweep(int64(len(body)))
		err = k.write(name, append([]byte(keptMagic+digestOf(body)+"\n"), body...))
	}
	if err != nil {
		return fmt.Errorf("keeping the result: %w", err)
	}
	return nil
}

func (k *keeper) write(name string, data []byte) error {
	f, err := os.CreateTemp(k.dir, keptPartial+"*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(k.dir, name))
	}
	if err != nil {
		os.Remove(f.Name())
		return err
	}
	return k.sync()
}

// sync makes the directory's entries last.
func (k *keeper) sync() error {
	d, err := os.Open(k.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// forget removes the entry: it was handed over.
func (k *keeper) forget(key keptKey) {
	if k == nil {
		return
	}
	if name, err := key.name(); err == nil {
		os.Remove(filepath.Join(k.dir, name)) // what stays expires
	}
}

// sweep removes what has expired, and the oldest entries until there is room for
// one more of that size, in bytes.
func (k *keeper) sweep(room int64) {
	entries, _ := os.ReadDir(k.dir)
	type entry struct {
		path string
		size int64
		at   time.Time
	}
	var kept []entry
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue
		}
		path, age := filepath.Join(k.dir, e.Name()), k.now().Sub(info.ModTime())
		switch {
		case strings.HasPrefix(e.Name(), keptPartial):
			if age > partialAge || age < -partialAge {
				os.Remove(path)
			}
		case !strings.HasSuffix(e.Name(), keptSuffix): // nothing of kbrun's
		case age > keptAge || age < -keptAge:
			os.Remove(path)
		default:
			kept = append(kept, entry{path, info.Size(), info.ModTime()})
		}
	}
	slices.SortFunc(kept, func(a, b entry) int { return cmp.Or(b.at.Compare(a.at), cmp.Compare(a.path, b.path)) }) // newest first
	count, size := 1, room
	if room == 0 {
		count = 0
	}
	for _, e := range kept {
		count, size = count+1, size+e.size
		if count > keptCount || size > keptBytes {
			os.Remove(e.path)
		}
	}
}
