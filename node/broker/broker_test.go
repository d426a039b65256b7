package broker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/gpu-mode/kbgen/node/broker/client"
	"github.com/gpu-mode/kbgen/secrets"
	"github.com/gpu-mode/kbgen/secrets/refused"
)

const (
	organization = "0190aaaa-0000-4000-8000-000000000001"
	pipeline     = "0190aaaa-0000-4000-8000-000000000002"
	canary       = "kbcanary-broker-77d1"
)

// A log that several goroutines write.
type record struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.String()
}

// serve starts a broker that trusts its host; the returned text opens there.
func serve(t *testing.T, change ...func(*Broker)) (socket, envelope string, log *record) {
	t.Helper()
	key, _, err := secrets.GenerateKey(secrets.X25519)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	log = &record{}
	b := &Broker{
		Keys: []*secrets.PrivateKey{key}, policy: &hostPolicy{organization, []string{pipeline}},
		Now: func() time.Time { return now }, Log: slog.New(slog.NewTextHandler(log, nil)),
	}
	for _, c := range change {
		c(b)
	}
	envelope, err = secrets.Seal(&secrets.Secret{
		Name: "NPM_TOKEN", Value: []byte(canary), Issued: now, Expires: now.Add(time.Hour), KeyID: "lab",
		Binding: secrets.Binding{Organization: organization, Pipelines: []string{pipeline}},
	}, []age.Recipient{key.Public.Recipient})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "kbb") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- b.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if strings.Contains(log.String(), canary) {
			t.Errorf("the log holds the value:\n%s", log)
		}
	})
	return socket, envelope, log
}

func TestGive(t *testing.T) {
	socket, envelope, log := serve(t)
	got, err := client.Get(t.Context(), socket, client.Request{Name: "NPM_TOKEN", Envelope: envelope})
	if err != nil || string(got) != canary {
		t.Fatalf("got %d bytes, %v", len(got), err)
	}
	if !strings.Contains(log.String(), "msg=given uid=") {
		t.Errorf("the log does not say who asked:\n%s", log)
	}
	_, err = client.Get(t.Context(), socket, client.Request{Name: "OTHER_TOKEN", Envelope: envelope})
	if why := new(refused.Refusal); !errors.As(err, &why) || why.Reason != refused.Renamed {
		t.Errorf("under another name: %v", err)
	}
}

// Strangers who send nonsense, nothing, too much or half get a refusal or an
// end, and others their answers meanwhile.
func TestStrangers(t *testing.T) {
	socket, envelope, _ := serve(t)
	var held []net.Conn
	connect := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	for range maxPerUser - 2 { // one for the next, and one that ends meanwhile
		held = append(held, connect())
	}
	if got, err := client.Get(t.Context(), socket, client.Request{Name: "NPM_TOKEN", Envelope: envelope}); err != nil || string(got) != canary {
		t.Errorf("beside %d that say nothing: %v", len(held), err)
	}
	for _, nonsense := range []string{"\n", "{}\n", "null\n", "[1\n", `{"version":2}` + "\n", strings.Repeat("x", client.MaxRequest+10), "\x00\xff\n", `{"version":1,"envelope":` + strings.Repeat("[", 10000) + "\n"} {
		conn := connect()
		go io.WriteString(conn, nonsense)
		answer, _ := io.ReadAll(conn)
		if !bytes.Contains(answer, []byte(`"refused":"malformed"`)) || bytes.Contains(answer, []byte(canary)) {
			t.Errorf("%.20q: got %q, want it refused as malformed", nonsense, answer)
		}
	}
	held[0].Close() // half a sentence, and gone
	if got, err := client.Get(t.Context(), socket, client.Request{Name: "NPM_TOKEN", Envelope: envelope}); err != nil || string(got) != canary {
		t.Errorf("after nonsense: %v", err)
	}
}

// Connections that say nothing do not stop the broker, however many one user makes.
func TestSilentConnections(t *testing.T) {
	socket, envelope, _ := serve(t)
	for range 2 * maxConnections {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if got, err := client.Get(t.Context(), socket, client.Request{Name: "NPM_TOKEN", Envelope: envelope}); err != nil || string(got) != canary {
		t.Errorf("beside silent connections: %v", err)
	}
}

// A caller over the rate waits, so that none can send a hundred thousand requests in a
// few minutes.
func TestQuestionsAreCounted(t *testing.T) {
	b := &Broker{}
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	n := 0
	for b.wait(ctx, "uid 1") == nil {
		n++
	}
	if n < askBurst || n > askBurst+2 {
		t.Errorf("%d questions at once, want %d", n, askBurst)
	}
	if err := b.wait(t.Context(), "uid 2"); err != nil {
		t.Errorf("another user: %v", err)
	}
}

// Beyond its connections the broker hangs up at once; who asks waits until
// somebody has gone, or its own time is over.
func TestTooManyStrangers(t *testing.T) {
	socket, envelope, log := serve(t)
	conns := make([]net.Conn, 0, maxPerUser)
	for len(conns) < maxPerUser {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	get := func(ctx context.Context) error {
		got, err := client.Get(ctx, socket, client.Request{Name: "NPM_TOKEN", Envelope: envelope})
		if err == nil && string(got) != canary {
			t.Errorf("got another value of %d bytes", len(got))
		}
		return err
	}
	ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	if err := get(ctx); !errors.Is(err, client.ErrNoBroker) || !strings.Contains(log.String(), "too many connections") {
		t.Errorf("got %v, want it turned away; %s", err, log)
	}
	answered := make(chan error)
	turned := strings.Count(log.String(), "too many connections")
	go func() { answered <- get(t.Context()) }()
	for strings.Count(log.String(), "too many connections") <= turned { // it has been turned away
		time.Sleep(time.Millisecond)
	}
	for _, c := range conns {
		c.Close()
	}
	if err := <-answered; err != nil {
		t.Errorf("after the strangers had gone: %v", err)
	}
}

func TestHostPolicy(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	const second = "0190aaaa-0000-4000-8000-000000000003"
	s := &secrets.Secret{Name: "A", Expires: now.Add(time.Hour), Binding: secrets.Binding{Organization: organization, Pipelines: []string{pipeline}}}
	for _, tt := range []struct {
		what string
		host hostPolicy
		ok   bool
	}{
		{"its pipeline alone", hostPolicy{organization, []string{pipeline}}, true},
		{"another pipeline beside", hostPolicy{organization, []string{pipeline, second}}, false},
		{"another organization", hostPolicy{second, []string{pipeline}}, false},
		{"no pipeline", hostPolicy{organization, nil}, false},
	} {
		j, err := tt.host.Identify(t.Context(), "whatever the job says")
		if err == nil {
			err = tt.host.Allow(s, "A", now, j)
		}
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.what, err)
		}
	}
}
