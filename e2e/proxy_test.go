package e2e

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/popcorn"
	"github.com/gpu-mode/kbgen/schema"
)

// proxyHost is the host name in the examples of docs/kbserve.md.
const proxyHost = "kernels.example.org"

// A proxy is nginx with the example of docs/kbserve.md.
type proxy struct {
	plain  string      // the address for http
	client http.Client // trusts the proxy's certificate, and calls from 127.0.0.7
	log    string      // file
}

// startProxy starts nginx before instances of kbserve, two at most. It skips the test
// if nginx is missing.
func startProxy(t *testing.T, instances ...string) *proxy {
	t.Helper()
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		nginx = "/usr/sbin/nginx" // not on everybody's PATH
	}
	if _, err := os.Stat(nginx); err != nil {
		t.Skip("NOT RUN: no nginx is installed (Debian: nginx-light)")
	}
	dir := t.TempDir()
	secure := freeAddress(t)
	p := &proxy{plain: freeAddress(t), log: filepath.Join(dir, "log")}
	pool := certificate(t, dir)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 7)}}
	p.client = http.Client{Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true,
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				if address == proxyHost+":443" {
					address = secure
				}
				return dialer.DialContext(ctx, network, address)
			},
		}}
	text := docsBlock(t, "docs/kbserve.md", "nginx")
	for _, change := range [][2]string{
		{"server 127.0.0.1:8080 ", "server " + instances[0] + " "},
		{"listen 443 ", "listen " + secure + " "}, {"listen 80;", "listen " + p.plain + ";"},
		{"/etc/ssl/certs/", dir + "/"}, {"/etc/ssl/private/", dir + "/"},
		{"# server 10.0.0.2:8080 ", "server " + instances[len(instances)-1] + " "},
	} {
		if !strings.Contains(text, change[0]) {
			t.Fatalf("the example for nginx has no %q", change[0])
		}
		text = strings.Replace(text, change[0], change[1], 1)
	}
	around := "daemon off;\nmaster_process off;\npid pid;\nerror_log " + p.log + ";\nevents {}\nhttp {\naccess_log off;\n"
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		around += fmt.Sprintf("%s_temp_path %s;\n", kind, filepath.Join(dir, kind))
	}
	config := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(config, []byte(around+text+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(nginx, "-p", dir, "-e", p.log, "-c", config)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
		if text, _ := os.ReadFile(p.log); t.Failed() {
			t.Logf("nginx: %s\n%s", out.String(), tail(text, 3000))
		}
	})
	for {
		c, err := net.Dial("tcp", secure)
		if err == nil {
			c.Close()
			return p
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("nginx ended: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// certificate writes a certificate for proxyHost and its key where the example has them.
func certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{proxyHost}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"pem": {Type: "CERTIFICATE", Bytes: der}, "key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, proxyHost+"."+name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return pool
}

// docsBlock returns the one block of a language on a page.
func docsBlock(t *testing.T, page, language string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(found) != 1 {
		t.Fatalf("%s has %d blocks of %s, want 1", page, len(found), language)
	}
	return found[0][1]
}

// The example for nginx carries large submissions, events, and who the client is.
func TestServeBehindNginx(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	p := startProxy(t, address)
	b := newBackendRig(t, idleStandIn(t), "SQLite")
	b.user("1001")
	b.do("board", "create", "sort", tiny, "--deadline", "2100-01-01", "--gpu", "CPU_BK")
	login := strings.TrimSpace(b.do("user", "login", "1001", "--url", "https://"+proxyHost))
	i := b.serve(address, "--url", "https://"+proxyHost, "--proxy", "127.0.0.1")
	ask := func(method, address, body string) *http.Response {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-Forwarded-For", "203.0.113.9") // forged
		request.Header.Set("Origin", "https://"+proxyHost)
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		answer, err := p.client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { answer.Body.Close() })
		return answer
	}

	if a := ask("GET", "http://"+p.plain+"/b/sort", ""); a.StatusCode != http.StatusMovedPermanently || a.Header.Get("Location") != "https://127.0.0.1/b/sort" {
		t.Errorf("without TLS: %s to %q, want 301 to https", a.Status, a.Header.Get("Location"))
	}
	start := ask("GET", "https://"+proxyHost+"/", "")
	if start.ProtoMajor != 2 || start.StatusCode != http.StatusOK || start.Header.Get("Strict-Transport-Security") == "" {
		t.Errorf("the start page: %s %s, Strict-Transport-Security %q", start.Proto, start.Status, start.Header.Get("Strict-Transport-Security"))
	}
	link, token, _ := strings.Cut(login, "?")
	cookies := ask("POST", link, token).Cookies()
	if len(cookies) == 0 {
		t.Error("the log-in sets no cookie")
	}
	for _, c := range cookies {
		if !c.Secure || !c.HttpOnly {
			t.Errorf("cookie %s: Secure %v, HttpOnly %v; want both", c.Name, c.Secure, c.HttpOnly)
		}
	}

	events := bufio.NewScanner(ask("GET", "https://"+proxyHost+"/events/queue", "").Body)
	if !events.Scan() || !strings.HasPrefix(events.Text(), "retry:") {
		t.Fatalf("the stream begins with %q, %v", events.Text(), events.Err())
	}
	code := []byte("x = 1\n# " + strings.Repeat("x", 900_000) + "\n")
	c := popcorn.Client{URL: "https://" + proxyHost, CLIID: b.users["1001"], HTTP: &p.client}
	if _, err := c.Submit(t.Context(), "sort", "CPU_BK", schema.ModeTest, "large.py", code); err != nil {
		t.Fatalf("a submission of 900 kB: %v", err)
	}
	accepted := time.Now()
	for events.Scan() && events.Text() != "event: change" {
	}
	if took := time.Since(accepted); events.Err() != nil || took > 2*time.Second {
		t.Errorf("the change came after %v, %v; want 2 s at most", took, events.Err())
	}
	if _, err := c.Submit(t.Context(), "sort", "CPU_BK", schema.ModeTest, "huge.py", []byte(strings.Repeat("x", 1_010_000))); err == nil || !strings.Contains(err.Error(), "want at most 1000000 bytes") {
		t.Errorf("a submission of 1,010 kB: %v, want kbserve's words", err)
	}

	i.stop()
	log := i.logged()
	for line := range strings.Lines(log) {
		probe := strings.Contains(line, `route="GET /ready"`)
		if strings.Contains(line, "msg=request ") && !probe && !strings.Contains(line, " client=127.0.0.7 ") {
			t.Errorf("the log has another address than the client's: %s", line)
		}
	}
	if !strings.Contains(log, " client=127.0.0.7 ") {
		t.Errorf("no request is logged with the client's address:\n%s", i.tail(20))
	}
}
