package sandbox

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// EndDescendants kills and reaps every descendant of this process, which is a
// subreaper, so that none can leave its tree by a double fork or a session of
// its own. It returns when the kernel says that there is no child left.
//
// Error: some are still there after limit, and which.
func EndDescendants(limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for pause := time.Millisecond; reap(); pause = min(2*pause, 50*time.Millisecond) {
		left := Descendants(os.Getpid())
		for _, p := range left { // stopped first, so that none forks while the others die
			syscall.Kill(p.PID, syscall.SIGSTOP)
		}
		for _, p := range left {
			syscall.Kill(p.PID, syscall.SIGKILL)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes of the submission cannot be killed: %s", numbers(left))
		}
		time.Sleep(pause)
	}
	return nil
}

// reap collects every dead child and reports whether a living one remains.
func reap() bool {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG|unix.WALL, nil)
		switch {
		case err == syscall.EINTR, pid > 0:
		case err != nil: // ECHILD
			return false
		default:
			return true
		}
	}
}

// A Descendant is one process below another.
type Descendant struct {
	PID, Parent int
	Name        string
	State       byte // see [StateOf]
}

// Descendants lists the processes below pid. It leaves little behind for the
// collector: it is called between calls that are timed.
func Descendants(pid int) []Descendant {
	entries, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer entries.Close()
	names, _ := entries.Readdirnames(-1)
	children := map[int][]Descendant{}
	var buf [512]byte
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			if p, ok := readProcess(n, buf[:]); ok {
				children[p.Parent] = append(children[p.Parent], p)
			}
		}
	}
	found := children[pid]
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i].PID]...)
		delete(children, found[i].PID)
	}
	return found
}

// StateOf returns the state of a process as the letter in /proc/<pid>/stat: R, S, D,
// T stopped, Z dead and not waited for; 0 if there is no such process. The kernel also
// shows Z if only the first thread has ended: then it is the state of another thread,
// and T only if all others are stopped.
func StateOf(pid int) byte {
	var buf [512]byte
	p, _ := readProcess(pid, buf[:])
	return p.State
}

func readProcess(pid int, buf []byte) (Descendant, bool) {
	dir := "/proc/" + strconv.Itoa(pid)
	p, ok := readStat(dir, buf)
	p.PID = pid
	if !ok || p.State != 'Z' {
		return p, ok
	}
	threads, _ := os.ReadDir(dir + "/task")
	for _, thread := range threads {
		t, ok := readStat(dir+"/task/"+thread.Name(), buf)
		if !ok || t.State == 'Z' || t.State == 'X' {
			continue
		}
		if p.State = t.State; p.State != 'T' {
			break
		}
	}
	return p, true
}

// readStat reads the beginning of the file stat in a directory of a process or thread
// into buf: "7 (a name) S 1 …", where the name may hold spaces and parentheses. It
// leaves PID out.
func readStat(dir string, buf []byte) (Descendant, bool) {
	fd, err := unix.Open(dir+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Descendant{}, false
	}
	n, err := unix.Read(fd, buf)
	unix.Close(fd)
	if err != nil {
		return Descendant{}, false
	}
	data := buf[:n]
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 0 || end < open || end+4 > len(data) {
		return Descendant{}, false
	}
	state, rest := data[end+2], data[end+4:] // ") S 1 …"
	field, _, _ := bytes.Cut(rest, []byte(" "))
	parent, err := strconv.Atoi(string(field))
	return Descendant{Parent: parent, Name: string(data[open+1 : end]), State: state}, err == nil
}

// numbers names processes for an error, which a result shows: what they are
// called was for the submission to choose.
func numbers(list []Descendant) string {
	var out []string
	for _, p := range list {
		out = append(out, strconv.Itoa(p.PID))
	}
	return strings.Join(out, ", ")
}
