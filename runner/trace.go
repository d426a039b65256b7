package runner

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/runner/plan"
	"github.com/gpu-mode/kbgen/schema"
)

const (
	// traceLimit is how long the profiles in a result are together, in bytes of
	// zip; in base64 they must fit into schema.MaxResult beside everything else.
	traceLimit = 32 << 20
	// traceFiles bounds how many files a profile has.
	traceFiles = 1000
)

// pack keeps what the profiler left: files, or a table where it has no others.
// That it left nothing is an error, and a pass all the same.
func (e *evaluation) pack(p *plan.Phase, table string) (*schema.ProfileResult, error) {
	z := newTrace(traceLimit - e.traced)
	var err error
	switch {
	case p.Profile.Profiler == plan.ProfilerROCm:
		err = z.addROCm(p.Profile.Dir, p.Work)
	case p.Profile.Program != "":
		err = z.addAll(p.Profile.Dir, func(string) bool { return true })
	case table != "":
		err = z.add(tableName, strings.NewReader(table))
	}
	empty := len(z.names) == 0 && len(z.leftOut) == 0
	packed, packErr := z.bytes()
	if err := errors.Join(err, packErr); err != nil {
		return nil, fmt.Errorf("packing the profile: %w", err)
	}
	if empty {
		return nil, outcomef(schema.OutcomePassed, "the program passed, and %s recorded nothing of it", p.Profile.Profiler)
	}
	e.traced += len(packed)
	return &schema.ProfileResult{Profiler: p.Profile.Profiler, Trace: base64.StdEncoding.EncodeToString(packed)}, nil
}

// tableName is a table's in the zip.
const tableName = "profile.txt"

// combined is the name of all processes' traces put together.
const combined = "combined.pftrace"

// addROCm adds what rocprofv3 left in dir, its traces put together, and the code
// objects that the runtime wrote into work.
func (t *trace) addROCm(dir, work string) error {
	isTrace := func(name string) bool { return strings.HasSuffix(name, ".pftrace") }
	if err := t.join(dir, isTrace); err != nil {
		return err
	}
	if err := t.addAll(dir, func(name string) bool { return !isTrace(name) }); err != nil {
		return err
	}
	isObject := func(name string) bool {
		return !strings.Contains(name, "/") && strings.HasPrefix(name, "_code_object") && strings.HasSuffix(name, ".o")
	}
	return t.addAll(work, isObject)
}

// A trace is a zip of files that a submission may have made or replaced. So
// links and special files are left out, and the size is bounded.
type trace struct {
	limit   int // bytes of the zip
	buf     bytes.Buffer
	zip     *zip.Writer
	raw     int64 // bytes before packing
	names   []string
	leftOut []string
}

func newTrace(limit int) *trace {
	t := &trace{limit: limit}
	t.zip = zip.NewWriter(&t.buf)
	return t
}

// rawLimit bounds reading: traces pack well, and bombs better.
const rawLimit = 4 * traceLimit

func (t *trace) addAll(dir string, want func(name string) bool) error {
	return t.eachFile(dir, want, func(name string, f *os.File) error { return t.add(path.Base(name), f) })
}

// add packs one file, or leaves it out when it does not fit or its name is
// taken.
func (t *trace) add(name string, from io.Reader) error {
	var one bytes.Buffer
	room := rawLimit - t.raw
	if room <= 0 || len(t.names) >= traceFiles || slices.Contains(t.names, name) {
		t.leftOut = append(t.leftOut, name)
		return nil
	}
	n, err := io.Copy(&one, io.LimitReader(from, room+1))
	t.raw += n
	if err != nil || n > room {
		t.leftOut = append(t.leftOut, name)
		return nil
	}
	packed, err := deflated(one.Bytes())
	if err != nil {
		return err
	}
	if t.buf.Len()+len(packed) > t.limit {
		t.leftOut = append(t.leftOut, name)
		return nil
	}
	w, err := t.zip.CreateRaw(&zip.FileHeader{
		Name: name, Method: zip.Deflate, CRC32: crc32.ChecksumIEEE(one.Bytes()),
		CompressedSize64: uint64(len(packed)), UncompressedSize64: uint64(one.Len()),
	})
	if err != nil {
		return err
	}
	t.names = append(t.names, name)
	_, err = w.Write(packed)
	return err
}

func deflated(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.DefaultCompression)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(data)
	err = errors.Join(err, w.Close())
	return b.Bytes(), err
}

// join packs all files that match as one, in the order of their names.
func (t *trace) join(dir string, want func(name string) bool) error {
	var all bytes.Buffer
	err := t.eachFile(dir, want, func(_ string, f *os.File) error {
		_, err := io.Copy(&all, io.LimitReader(f, rawLimit+1-int64(all.Len())))
		return err
	})
	if err != nil || all.Len() == 0 {
		return err
	}
	return t.add(combined, &all)
}

func (t *trace) bytes() ([]byte, error) {
	if len(t.leftOut) > 0 {
		w, err := t.zip.Create("LEFT_OUT.txt")
		if err != nil {
			return nil, err
		}
		for _, name := range t.leftOut[:min(len(t.leftOut), traceFiles)] {
			fmt.Fprintf(w, "%q\n", name)
		}
	}
	if err := t.zip.Close(); err != nil {
		return nil, err
	}
	return t.buf.Bytes(), nil
}

// eachFile calls do for the regular files below dir that are wanted, in the order
// of their names. A dir that does not exist has none.
func (t *trace) eachFile(dir string, want func(name string) bool, do func(name string, f *os.File) error) error {
	root, err := os.OpenRoot(dir) // refuses every way out
	if err != nil {
		return nil
	}
	defer root.Close()
	seen := 0
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // what cannot be read is not the profiler's
		}
		if seen++; seen > 10*traceFiles {
			return fs.SkipAll
		}
		if !want(name) {
			return nil
		}
		f, err := openRegular(root, name)
		if err != nil {
			t.leftOut = append(t.leftOut, name)
			return nil
		}
		defer f.Close()
		return do(name, f)
	})
}

// openRegular opens a file. It does not wait when a pipe has replaced it.
func openRegular(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("%s is no file", name)
	}
	return f, nil
}
