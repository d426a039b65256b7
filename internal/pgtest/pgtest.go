// Package pgtest starts a real PostgreSQL for tests: a server of their own, on a
// unix socket in a folder of its own, gone when the test process ends.
package pgtest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// ErrNone says that this machine has no PostgreSQL server.
var ErrNone = errors.New("no PostgreSQL server is installed (Debian: postgresql)")

const owner = "kbserve" // of the cluster

// A Server is a running PostgreSQL.
type Server struct {
	bin, dir string
	as       *syscall.Credential // nil: as ourselves
	cmd      *exec.Cmd
	ended    chan error
	names    atomic.Int64
}

// Programs is the directory of the newest server's programs on this machine.
//
// Errors: [ErrNone].
func Programs() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		return "", ErrNone
	}
	return filepath.Dir(found[len(found)-1]), nil
}

// Start makes a cluster and starts a server on it. Its writes are not forced to
// the disk, unless durable is set.
//
// Errors: [ErrNone].
func Start(durable bool) (*Server, error) {
	bin, err := Programs()
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, ended: make(chan error, 1)}
	if s.dir, err = os.MkdirTemp("/tmp", "pgtest-"); err != nil { // a socket's path is short
		return nil, err
	}
	if err := s.start(durable); err != nil {
		os.RemoveAll(s.dir)
		return nil, err
	}
	return s, nil
}

func (s *Server) start(durable bool) error {
	if os.Geteuid() == 0 { // PostgreSQL refuses to run as root
		u, err := user.Lookup("postgres")
		if err != nil {
			if u, err = user.Lookup("nobody"); err != nil {
				return err
			}
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		s.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(s.dir, uid, gid); err != nil {
			return err
		}
	}
	if err := s.run("initdb", "-D", s.dir+"/data", "-U", owner, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"); err != nil {
		return err
	}
	args := []string{"-D", s.dir + "/data", "-k", s.dir, "-c", "listen_addresses=", "-c", "shared_buffers=256MB"}
	if !durable {
		args = append(args, "-c", "fsync=off", "-c", "synchronous_commit=off")
	}
	s.cmd = exec.Command(filepath.Join(s.bin, "postgres"), args...)
	s.cmd.Dir, s.cmd.Env = s.dir, []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	// The kernel ends the server with this process, however that ends.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as, Pdeathsig: syscall.SIGINT}
	said, write := io.Pipe()
	s.cmd.Stderr = write
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // Pdeathsig is about the thread
		err := s.cmd.Start()
		started <- err
		if err == nil {
			s.ended <- s.cmd.Wait()
		}
		write.Close()
	}()
	if err := <-started; err != nil {
		return err
	}
	ready, log := make(chan bool, 1), &bytes.Buffer{}
	go func() {
		lines := bufio.NewScanner(said)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "ready to accept connections") {
				ready <- true
				break
			}
			fmt.Fprintln(log, lines.Text())
		}
		close(ready)
		io.Copy(io.Discard, said)
	}()
	if !<-ready {
		return fmt.Errorf("postgres ended at once: %s", log)
	}
	return nil
}

func (s *Server) run(name string, args ...string) error {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir, cmd.Env = s.dir, []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}

// Database makes an empty database and returns its address.
func (s *Server) Database() (string, error) { return s.database() }

func (s *Server) database(options ...string) (string, error) {
	name := fmt.Sprintf("test%d", s.names.Add(1))
	if err := s.run("createdb", append(options, "-h", s.dir, "-U", owner, name)...); err != nil {
		return "", err
	}
	return "postgres://" + owner + "@/" + name + "?host=" + url.QueryEscape(s.dir), nil
}

// Exec runs statements in a database, as psql does.
func (s *Server) Exec(address, statements string) error {
	return s.run("psql", "-q", "-v", "ON_ERROR_STOP=1", "-d", address, "-c", statements)
}

// Stop ends the server and removes its files.
func (s *Server) Stop() error {
	err := s.cmd.Process.Signal(syscall.SIGINT) // fast shutdown
	if err == nil {
		select {
		case <-s.ended:
		case <-time.After(time.Minute):
			err = errors.Join(errors.New("postgres did not end within a minute"), s.cmd.Process.Kill())
		}
	}
	if rm := os.RemoveAll(s.dir); rm != nil && !errors.Is(rm, fs.ErrNotExist) {
		err = errors.Join(err, rm)
	}
	return err
}

// Copy makes a database of what another holds, by pg_dump and pg_restore, as an
// operator's backup does.
func (s *Server) Copy(from string) (to string, err error) {
	file := filepath.Join(s.dir, fmt.Sprintf("dump%d", s.names.Add(1)))
	if err := s.run("pg_dump", "--format=custom", "--file="+file, "--dbname="+from); err != nil {
		return "", err
	}
	if to, err = s.Database(); err != nil {
		return "", err
	}
	return to, s.run("pg_restore", "--exit-on-error", "--no-owner", "--dbname="+to, file)
}
