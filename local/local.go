// Package local is a stand-in for Buildkite on loopback: the Agent API, for
// real agents, the REST API, artifact storage on another origin, webhooks and
// a page for people, over one engine. What it does not implement it refuses
// with a message. It listens on loopback only.
package local

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gpu-mode/kbgen/local/agentapi"
	"github.com/gpu-mode/kbgen/local/blob"
	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/local/fault"
	"github.com/gpu-mode/kbgen/local/notice"
	"github.com/gpu-mode/kbgen/local/page"
	"github.com/gpu-mode/kbgen/local/restapi"
	"github.com/gpu-mode/kbgen/local/spawn"
)

// Options configure a [Server]. Zero fields take the defaults named.
type Options struct {
	Dir          string   // for everything on disk; made when missing; required
	Port         int      // of the APIs and the page; 0: any free one
	ArtifactPort int      // of the artifact store; 0: any free one
	Listen       string   // address, "127.0.0.1"; any other than loopback opens the stand-in to a network
	Hosts        []string // names besides loopback's by which the page may be reached
	Organization string   // slug, "gpu-mode"
	Version      string   // shown on the page
	PageHint     string   // where a person finds [Server.PageURL], shown on the page to others

	RateLimits  bool            // count REST calls and answer 429 as the service does
	UserLimit   int             // with RateLimits: calls of one user a minute, 50
	Scopes      []string        // of the API token; nil: all of [restapi.Scopes]
	Lenient     bool            // ignore unknown members of request bodies
	Webhook     *notice.Options // where to post events; BaseURL is filled in
	Faults      []fault.Rule
	Heartbeat   time.Duration // told to agents, whole seconds, 10 s
	LostAfter   time.Duration // silence after which an agent is lost, 30 s
	Minute      time.Duration // what timeout_in_minutes counts in; tests shorten it
	CancelGrace time.Duration // a job's time between SIGTERM and SIGKILL, 10 s

	AgentBinary string   // buildkite-agent, needed for [Server.StartAgents] only
	AgentPath   []string // directories put before PATH of agents and jobs
	AgentEnv    []string // what agents and jobs inherit
	Plugins     string   // directory with plugins, so that none is fetched; may be empty

	Secrets map[string]string // the secret store, which every job may read

	Log  func(format string, args ...any) // one line per event, for people; may be nil
	Slog *slog.Logger                     // of the handlers; may be nil
}

// A Server is a running stand-in. Close it.
type Server struct {
	Engine *engine.Engine
	Faults *fault.Injector

	opts       Options
	url        string // http://127.0.0.1:PORT
	apiToken   string
	agentToken string
	pageKey    string
	blob       *blob.Store
	agents     *agentapi.API
	hooks      *notice.Sender // nil without a webhook
	servers    []*http.Server
	serving    sync.WaitGroup
	live       context.Context // of requests that last, such as the page's events
	endLive    context.CancelFunc
	scratch    scratch
	marker     string // in the environment of everything the agents start

	mu    sync.Mutex
	pools []*spawn.Pool
}

// Start serves on loopback until [Server.Close] is called.
func Start(opts Options) (*Server, error) {
	setDefaults(&opts)
	for _, scope := range opts.Scopes {
		if !slices.Contains(restapi.Scopes, scope) {
			return nil, fmt.Errorf("scope %q is not known, have %s", scope, strings.Join(restapi.Scopes, " "))
		}
	}
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	main, err := net.Listen("tcp", net.JoinHostPort(opts.Listen, strconv.Itoa(opts.Port)))
	if err != nil {
		return nil, err
	}
	// Artifacts live on another host name, so that a client which keeps its
	// token on a redirect is caught here as it would be by the service.
	blobs, err := net.Listen("tcp", net.JoinHostPort(opts.Listen, strconv.Itoa(opts.ArtifactPort)))
	if err != nil {
		return nil, errors.Join(err, main.Close())
	}
	if opts.Plugins != "" {
		sources, err := pluginSources(context.Background(), opts.Plugins, filepath.Join(opts.Dir, "plugin-repositories"))
		if err != nil {
			return nil, errors.Join(err, main.Close(), blobs.Close())
		}
		opts.AgentEnv = append(slices.Clone(opts.AgentEnv), gitEnv(opts.AgentEnv, sources)...)
	}
	s := &Server{
		Faults: &fault.Injector{}, opts: opts, url: localURL(main.Addr()),
		apiToken: engine.NewToken("bkua_"), agentToken: engine.NewToken("bkct_"), pageKey: engine.NewToken("kblp_"),
		marker: engine.NewToken("KBLOCAL_INSTANCE="),
	}
	s.live, s.endLive = context.WithCancel(context.Background())
	s.Engine, err = engine.New(engine.Options{
		Dir: opts.Dir, Organization: opts.Organization, URL: s.url,
		Minute: opts.Minute, LostAfter: opts.LostAfter,
	})
	if err != nil {
		return nil, errors.Join(err, main.Close(), blobs.Close())
	}
	if err := s.assemble(blobs.Addr()); err != nil {
		return nil, errors.Join(err, main.Close(), blobs.Close(), s.Engine.Close())
	}
	s.serve(main, s.routes())
	s.serve(blobs, s.Faults.Wrap(s.blob))
	return s, nil
}

func setDefaults(opts *Options) {
	opts.Organization = cmp.Or(opts.Organization, "gpu-mode")
	opts.Listen = cmp.Or(opts.Listen, "127.0.0.1")
	opts.Heartbeat = cmp.Or(opts.Heartbeat, 10*time.Second)
	opts.LostAfter = cmp.Or(opts.LostAfter, 30*time.Second)
	opts.CancelGrace = cmp.Or(opts.CancelGrace, 10*time.Second)
	if opts.Log == nil {
		opts.Log = func(string, ...any) {}
	}
}

// assemble makes the parts that serve the engine.
func (s *Server) assemble(blobs net.Addr) error {
	for _, r := range s.opts.Faults {
		if _, err := s.Faults.Add(r); err != nil {
			return err
		}
	}
	s.blob = blob.New(s.Engine, []byte(engine.NewToken("")))
	_, port, err := net.SplitHostPort(blobs.String())
	if err != nil {
		return err
	}
	host := "localhost" // another name than the APIs have
	if ip := net.ParseIP(s.opts.Listen); ip == nil || !ip.IsUnspecified() && !ip.Equal(net.IPv4(127, 0, 0, 1)) {
		host = s.opts.Listen // which that name may not lead to
	}
	s.blob.SetBase("http://" + net.JoinHostPort(host, port))
	s.agents = agentapi.New(s.Engine, agentapi.Options{
		RegistrationToken: s.agentToken, Links: s.blob.At,
		HeartbeatInterval: int(s.opts.Heartbeat.Seconds()), Issuer: s.url, Secrets: s.opts.Secrets, Logger: s.opts.Slog,
	})
	if s.scratch, err = newScratch(s.opts.Dir); err != nil {
		return errors.Join(err, s.scratch.remove())
	}
	if s.opts.Webhook != nil {
		hook := *s.opts.Webhook
		hook.BaseURL = s.url
		if s.hooks, err = notice.Start(s.Engine, hook); err != nil {
			return errors.Join(err, s.scratch.remove())
		}
	}
	return nil
}

// routes puts every API on its paths. Faults apply to all of them, but not to
// their own control.
func (s *Server) routes() http.Handler {
	var limits *restapi.Limits
	if s.opts.RateLimits {
		limits = &restapi.Limits{User: s.opts.UserLimit}
	}
	served := http.NewServeMux()
	served.Handle("/v3/", s.agents)
	served.Handle(agentapi.StreamPath, s.agents)
	served.HandleFunc("GET "+agentapi.DiscoveryPath, s.agents.ServeDiscovery)
	served.HandleFunc("GET "+agentapi.KeysPath, s.agents.ServeKeys)
	served.Handle("/v2/", restapi.New(s.Engine, restapi.Options{
		Blob: func(host string) restapi.Blob { return s.blob.At(host) }, Lenient: s.opts.Lenient, RateLimits: limits, Logger: s.opts.Slog,
		Tokens: []restapi.Token{{Value: s.apiToken, Scopes: s.opts.Scopes, User: engine.Person{Name: "kblocal", Email: "kblocal@localhost"}}},
	}))
	served.Handle("/", page.New(s.Engine, page.Options{Blob: s.blob.At(""), Hosts: s.opts.Hosts, Key: s.pageKey, KeyHint: s.opts.PageHint, Version: s.opts.Version, Logger: s.opts.Slog}))
	all := http.NewServeMux()
	all.Handle("/", s.Faults.Wrap(served))
	all.Handle("/kblocal/faults", s.controlled(s.Faults.Control()))
	all.Handle("POST /kblocal/agents/{id}/lose", s.controlled(http.HandlerFunc(s.loseAgent)))
	return all
}

// controlled lets those who have the API token control the stand-in.
func (s *Server) controlled(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if subtle.ConstantTimeCompare([]byte(token), []byte(s.apiToken)) != 1 {
			http.Error(w, `{"message": "want the API token as Authorization: Bearer"}`, http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// loseAgent declares an agent lost, named by its id or name.
func (s *Server) loseAgent(w http.ResponseWriter, r *http.Request) {
	for _, a := range s.Engine.Agents() {
		if a.ID == r.PathValue("id") || a.Name == r.PathValue("id") && a.State == engine.AgentConnected {
			if err := s.Engine.LoseAgent(a.ID); err != nil {
				http.Error(w, `{"message": "the agent cannot be lost"}`, http.StatusUnprocessableEntity)
				return
			}
			w.WriteHeader(http.StatusNoContent)
			return
		}
	}
	http.Error(w, `{"message": "No agent found"}`, http.StatusNotFound)
}

func (s *Server) serve(l net.Listener, h http.Handler) {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 30 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return s.live },
		ErrorLog:          log.New(io.Discard, "", 0), // dropped connections are ordered by faults
	}
	s.servers = append(s.servers, server)
	s.serving.Go(func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.opts.Log("serving on %s ended: %v", l.Addr(), err)
		}
	})
}

// localURL is how this machine reaches a listener.
func localURL(addr net.Addr) string {
	tcp := addr.(*net.TCPAddr) // of net.Listen("tcp", …)
	host := tcp.IP.String()
	if tcp.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, strconv.Itoa(tcp.Port))
}

// URL is where the APIs and the page are served, without a slash at the end.
func (s *Server) URL() string { return s.url }

// APIToken is the token of the REST API.
func (s *Server) APIToken() string { return s.apiToken }

// AgentToken is the registration token of agents.
func (s *Server) AgentToken() string { return s.agentToken }

// PageURL opens the page with the right to act, in the browser that follows it:
// cancel, retry, rebuild, unblock. It holds a secret.
func (s *Server) PageURL() string { return s.url + page.EnterPath + "?key=" + s.pageKey }

// Marker is in the environment of all agents and of what they start, for
// [spawn.Kill].
func (s *Server) Marker() string { return s.marker }

// Scratch lists the directories with what agents and jobs leave behind. [Server.Close]
// removes them; so must whoever outlives a stand-in that was killed.
func (s *Server) Scratch() []string { return []string{s.scratch.temp, s.scratch.sockets} }

// Leaks counts requests to the artifact host that carried a token.
func (s *Server) Leaks() int { return s.blob.Leaks() }

// Webhooks counts what became of events; zero without a webhook.
func (s *Server) Webhooks() notice.Stats {
	if s.hooks == nil {
		return notice.Stats{}
	}
	return s.hooks.Stats()
}

// StartAgents starts count real agents on a queue, with extra tags. They are
// started again when they die.
func (s *Server) StartAgents(queue string, count int, tags ...string) error {
	pool, err := spawn.Start(spawn.Options{
		Agent: s.opts.AgentBinary, Endpoint: s.url + "/v3", Token: s.agentToken,
		Dir: s.opts.Dir, Sockets: s.scratch.sockets, Temp: s.scratch.temp, Marker: s.marker, Path: s.opts.AgentPath, Env: s.opts.AgentEnv,
		Grace: s.opts.CancelGrace, Died: s.agentDied, Log: s.opts.Log,
	}, queue, count, tags...)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.pools = append(s.pools, pool)
	s.mu.Unlock()
	return nil
}

// agentDied declares the agents of a dead process lost, without waiting for
// their silence.
func (s *Server) agentDied(pid int) {
	for _, a := range s.Engine.Agents() {
		if a.PID == pid {
			_ = s.Engine.LoseAgent(a.ID) // it is in the list: the only error is that it is unknown
		}
	}
}

// AwaitAgents waits until n agents are connected and can be handed jobs at
// once.
func (s *Server) AwaitAgents(ctx context.Context, n int) error {
	sub := s.Engine.Subscribe()
	defer sub.Close()
	for {
		streaming := 0
		for _, a := range s.Engine.Agents() {
			if a.State == engine.AgentConnected && a.Streaming {
				streaming++
			}
		}
		if streaming >= n {
			return nil
		}
		if _, err := sub.Next(ctx); err != nil {
			return fmt.Errorf("waiting for %d agents, %d are there: %w; their logs are in %s",
				n, streaming, err, filepath.Join(s.opts.Dir, "agents"))
		}
	}
}

// Close stops the agents with their jobs, then the servers. Files stay.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	pools := s.pools
	s.pools = nil
	s.mu.Unlock()
	errs := make([]error, len(pools))
	var stopping sync.WaitGroup
	for i, p := range pools {
		stopping.Go(func() { errs[i] = p.Stop(ctx) })
	}
	stopping.Wait()
	if s.hooks != nil {
		errs = append(errs, s.hooks.Close(ctx))
	}
	s.agents.Close()
	s.endLive()
	for _, server := range s.servers {
		if err := server.Shutdown(ctx); err != nil {
			errs = append(errs, err, server.Close())
		}
	}
	s.serving.Wait()
	return errors.Join(append(errs, s.Engine.Close(), s.scratch.remove())...)
}
