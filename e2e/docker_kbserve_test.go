package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/pgtest"
)

// postgresEntry does what the compose file expects of docker's image of
// PostgreSQL, in its order: an empty data directory gets a database, under a server
// that answers on its socket alone, before the real one starts.
const postgresEntry = `#!/bin/sh
set -eu
data=/var/lib/postgresql/data
mkdir -p /run/postgresql && chown -R 999:999 /run/postgresql "$data" && chmod 0700 "$data"
as() { setpriv --reuid 999 --regid 999 --clear-groups -- "$@"; }
if [ ! -s "$data/PG_VERSION" ]; then
	cp "$POSTGRES_PASSWORD_FILE" /tmp/password && chown 999 /tmp/password
	as initdb --no-locale --encoding UTF8 --username "$POSTGRES_USER" --pwfile /tmp/password --auth-local trust --auth-host scram-sha-256 "$data"
	rm /tmp/password
	echo 'host all all all scram-sha-256' >>"$data/pg_hba.conf"
	as pg_ctl --pgdata "$data" --options "-c listen_addresses='' -k /run/postgresql" --wait start
	sleep 3 # long enough for a health check that asks the socket
	as psql --host /run/postgresql --username "$POSTGRES_USER" --dbname postgres --command "CREATE DATABASE $POSTGRES_DB"
	as pg_ctl --pgdata "$data" --mode fast --wait stop
fi
exec setpriv --reuid 999 --regid 999 --clear-groups -- postgres -D "$data" -c "listen_addresses=*" -k /run/postgresql
`

// kbserve's compose file on a real engine, as its own first lines say: the database
// is made, the server waits for it, keeps what it has over a restart and over all
// containers' end, and its password is nobody else's.
func TestDockerKbserve(t *testing.T) {
	needDocker(t)
	compose := needCompose(t)
	e := startDocker(t)
	dir := filepath.Join(e.dir, "competition")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	sh := func(script string) {
		t.Helper()
		cmd := exec.Command("sh", "-euc", script)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
	}
	postgresImage(t, e, "postgres:17")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(bin, "kbserve")
	config := filepath.Join(dir, "kbserve.env")
	write("kbserve.env", "BUILDKITE_API_TOKEN=token-of-this-test\nKBSERVE_API_URL=http://127.0.0.1:1/\n")
	copyFile(t, program, filepath.Join(dir, "kbserve"))
	port := freePort(t)
	sh(fmt.Sprintf("%[1]s unit --dockerfile >Dockerfile; %[1]s unit --compose --config %s --listen 127.0.0.1:%d >compose.yml", program, config, port))
	e.Run("build", "--network", "none", "--build-arg", "BASE=kbgen-base:bookworm", "--tag", "kbserve:latest", dir)

	// The commands of the file's head, but the last.
	text, err := os.ReadFile(filepath.Join(dir, "compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var head []string
	for _, m := range regexp.MustCompile(`(?m)^#   (.*)$`).FindAllStringSubmatch(string(text), -1) {
		head = append(head, m[1])
	}
	if len(head) != 4 || head[3] != "docker compose up --detach" {
		t.Fatalf("the compose file's head has the commands %q", head)
	}
	sh(strings.Join(head[:3], "\n"))

	docker := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(compose[0], slices.Concat(compose[1:], []string{"--project-name", "competition", "--ansi", "never"}, args)...)
		cmd.Dir = dir
		cmd.Env = e.Command().Env
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			t.Fatalf("docker compose %s: %v\n%s%s", strings.Join(args, " "), err, tail(stdout.Bytes(), 3000), tail(stderr.Bytes(), 3000))
		}
		return stdout.String()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s", tail([]byte(docker("logs")), 6000))
		}
		docker("down", "--volumes")
	})
	docker(strings.Fields(head[3])[2:]...)
	ready := func() {
		t.Helper()
		url := fmt.Sprintf("http://127.0.0.1:%d/ready", port)
		for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
			answer, err := http.Get(url)
			if err == nil {
				body, _ := io.ReadAll(answer.Body)
				answer.Body.Close()
				if answer.StatusCode == http.StatusOK {
					return
				}
				err = fmt.Errorf("%s: %s", answer.Status, body)
			}
			if time.Now().After(deadline) {
				t.Fatalf("not ready after %s: %v", patience, err)
			}
		}
	}
	ready()
	if n := e.Run("inspect", "--format", "{{.RestartCount}}", "competition-kbserve-1"); n != "0" {
		t.Errorf("kbserve was started before its database was: %s more times", n)
	}
	docker("exec", "-T", "kbserve", "kbserve", "db", "check")
	docker("exec", "-T", "kbserve", "kbserve", "user", "create", "--name", "ann", "1234")
	kept := func() {
		t.Helper()
		if out := docker("exec", "-T", "kbserve", "kbserve", "user", "list"); !strings.Contains(out, "ann") {
			t.Errorf("the user is not there:\n%s", out)
		}
	}
	kept()
	docker("restart", "kbserve")
	ready()
	kept()
	docker("down")
	docker("up", "--detach")
	ready()
	kept()

	password, err := os.ReadFile(filepath.Join(dir, "postgres-password"))
	if err != nil || len(password) != 64 {
		t.Fatalf("the password has %d characters: %v", len(password), err)
	}
	for _, name := range []string{"competition-kbserve-1", "competition-postgres-1"} {
		if strings.Contains(e.Run("inspect", name), string(password)) {
			t.Errorf("who may inspect %s reads the password", name)
		}
	}
	if strings.Contains(docker("logs"), string(password)) || strings.Contains(docker("logs"), "token-of-this-test") {
		t.Error("a secret is in the logs")
	}
	if out, err := e.Command("exec", "competition-kbserve-1", "cat", "/run/secrets/postgres-password").CombinedOutput(); err == nil {
		t.Errorf("kbserve has the database's own secret: %d bytes", len(out))
	}
	if _, err := e.Command("exec", "competition-kbserve-1", "touch", "/usr/bin/x").CombinedOutput(); err == nil {
		t.Error("kbserve's container can be written to")
	}
}

// postgresImage makes an image of this machine's PostgreSQL that starts as docker's
// own does.
func postgresImage(t *testing.T, e *dockerEngine, name string) {
	t.Helper()
	programs, err := pgtest.Programs()
	if err != nil {
		t.Skipf("NOT RUN: %v", err)
	}
	e.Run("import", rootfs(t), "kbgen-base:bookworm")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "entry"), []byte(postgresEntry), 0o755); err != nil {
		t.Fatal(err)
	}
	// What its programs load is of the same release as the base, which is this machine's;
	// there, /lib is a link.
	pack := exec.Command("sh", "-euc", `
	libraries=$(ldd "$1"/bin/* "$1"/lib/*.so 2>/dev/null | sed -n 's/.* => \/\([^ ]*\) .*/\1/p' | sort -u)
	tar --directory / --create --dereference --transform 's,^lib/,usr/lib/,' --file "$2" $libraries "${1#/}" "usr/share/postgresql/${1##*/}"`,
		"sh", filepath.Dir(programs), filepath.Join(dir, "files.tar"))
	if out, err := pack.CombinedOutput(); err != nil {
		t.Fatalf("packing PostgreSQL: %v\n%s", err, out)
	}
	recipe := fmt.Sprintf("FROM kbgen-base:bookworm\nADD files.tar /\nCOPY entry /entry\nRUN ldconfig && echo postgres:x:999:999::/:/bin/sh >>/etc/passwd\nENV PATH=%s:/usr/sbin:/usr/bin:/sbin:/bin\nENTRYPOINT [\"/entry\"]\n", programs)
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(recipe), 0o644); err != nil {
		t.Fatal(err)
	}
	e.Run("build", "--network", "none", "--tag", name, dir)
}
