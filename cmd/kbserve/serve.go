package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/launcher/seal"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/server"
	"github.com/gpu-mode/kbgen/server/identity"
	"github.com/gpu-mode/kbgen/server/listener"
	"github.com/gpu-mode/kbgen/server/reconciler"
	"github.com/gpu-mode/kbgen/server/trace"
	"github.com/gpu-mode/kbgen/store"
	"github.com/gpu-mode/kbgen/store/database"
)

// Variables with secrets, which have no flags.
const (
	varToken    = "BUILDKITE_API_TOKEN"
	varAdmin    = "KBSERVE_ADMIN_TOKEN"
	varWebhook  = "KBSERVE_WEBHOOK_TOKEN"
	varAnnounce = "KBSERVE_ANNOUNCE_URL"

	varHook       = "KBSERVE_HOOK_URL"
	varHookSecret = "KBSERVE_HOOK_SECRET"

	varTraces = "OTEL_EXPORTER_OTLP_ENDPOINT" // no secret, and OpenTelemetry's own
)

type serveCmd struct {
	place   `embed:""`
	Listen  []string `var:"KBSERVE_LISTEN" default:"127.0.0.1:8080" sep:"," placeholder:"ADDRESS" help:"an address to listen on; for several repeat it, or use commas"`
	Metrics string   `var:"KBSERVE_METRICS" placeholder:"ADDRESS" help:"an address at which Prometheus reads /metrics"`
	PIDFile string   `name:"pid-file" var:"KBSERVE_PID_FILE" placeholder:"FILE" help:"a file for the id of the process that answers"`
	URL     string   `name:"url" var:"KBSERVE_URL" placeholder:"URL" help:"the address that clients use; default that of --listen"`
	Name    string   `var:"KBSERVE_NAME" placeholder:"TEXT" help:"the name of the competition"`
	Admin   []string `var:"KBSERVE_ADMINS" sep:"," placeholder:"ID" help:"a user who is an admin in a browser session; may be repeated"`
	Proxy   []string `var:"KBSERVE_PROXIES" sep:"," placeholder:"NETWORK" help:"a network whose X-Forwarded-For is believed; may be repeated"`
	Rate    float64  `var:"KBSERVE_RATE" default:"10" placeholder:"N" help:"requests a second that one client may make; 0: no limit"`

	buildkite `embed:""`
	Branch    string `var:"KBSERVE_BRANCH" help:"branch of the builds; default main"`
	Commit    string `var:"KBSERVE_COMMIT" help:"commit of the builds; default HEAD"`
	Seal      string `var:"KBSERVE_SEAL" placeholder:"FILE" help:"seal payloads for the recipients in FILE, as kblaunch submit --seal does"`

	Lease        time.Duration `var:"KBSERVE_LEASE" default:"30s" help:"how long an instance owns a run without renewing"`
	ListingDelay time.Duration `var:"KBSERVE_LISTING_DELAY" default:"30s" help:"how far Buildkite's listing of builds may lag behind"`
	QueueTimeout time.Duration `var:"KBSERVE_QUEUE_TIMEOUT" default:"6h" help:"the longest wait for a machine"`
	RunTimeout   time.Duration `var:"KBSERVE_RUN_TIMEOUT" default:"1h" help:"the longest run on the machine"`
	Room         int           `var:"KBSERVE_ROOM" default:"8" placeholder:"N" help:"how many builds to start if the machines are not known"`

	Migrate   bool   `var:"KBSERVE_MIGRATE" help:"update the database before serving"`
	LogFormat string `var:"KBSERVE_LOG_FORMAT" default:"text" enum:"text,json" placeholder:"FORMAT" help:"text or json"`
}

// buildkite is where builds are made.
type buildkite struct {
	Org      string `var:"BUILDKITE_ORG" default:"gpu-mode" help:"slug of the organization"`
	Pipeline string `var:"BUILDKITE_PIPELINE" default:"kernelbot" help:"slug of the pipeline"`
	API      string `name:"api" var:"KBSERVE_API_URL" default:"https://api.buildkite.com/" placeholder:"URL" help:"the address of the REST API"`
}

// client makes a client with the token of the environment.
func (b *buildkite) client(env *cli.Env, installation string, listingDelay time.Duration, log *slog.Logger) (*launcher.Client, error) {
	c, err := launcher.New(launcher.Options{
		BaseURL: b.API, Token: env.Getenv(varToken), Org: b.Org, Pipeline: b.Pipeline, UserAgent: "kbserve/" + cli.Version(),
		Installation: installation, ListingDelay: listingDelay, Log: log,
	})
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	return c, nil
}

func (c *serveCmd) Run(ctx context.Context, env *cli.Env) error {
	if err := c.check(env); err != nil {
		return err
	}
	hangup := listener.Hangups()
	log := logger(env.Stderr, c.LogFormat, env.Debug)
	endTraces, err := traces(ctx, env, log)
	if err != nil {
		return err
	}
	defer endTraces()
	if c.Migrate {
		if _, _, err := database.Migrate(ctx, c.Database); err != nil {
			return err
		}
	}
	return c.with(ctx, func(s *store.Store) error {
		sockets, err := listener.Listen(c.Listen, c.Metrics)
		if err != nil {
			return err
		}
		defer sockets.Close()
		srv, err := c.server(ctx, env, s, sockets.URL(), log)
		if err != nil {
			return err
		}
		ctx, stop := sockets.Context(ctx, hangup, log)
		defer stop()
		log.Info("serving", "url", c.publicURL(sockets.URL()), "database", s.Kind(), "version", cli.Version())
		err = srv.Serve(ctx, sockets.Pages, sockets.Metrics, func() error { return sockets.Ready(c.PIDFile, log) })
		log.Info("stopped")
		return err
	})
}

// traceTime is how long the last spans may take to be sent.
const traceTime = 5 * time.Second

// traces has spans sent, if the program is built with them and the environment says
// where to.
func traces(ctx context.Context, env *cli.Env, log *slog.Logger) (end func(), err error) {
	endpoint := env.Getenv(varTraces)
	if endpoint != "" && !trace.On {
		log.Warn("no traces are sent: this program was built without the tag otel", "variable", varTraces)
	}
	stop, err := trace.Setup(ctx, endpoint, cli.Version())
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), traceTime)
		defer cancel()
		if err := stop(ctx); err != nil {
			log.Warn("sending the last traces", "error", err)
		}
	}, nil
}

// check looks at what needs no database.
func (c *serveCmd) check(env *cli.Env) error {
	if env.Getenv(varToken) == "" {
		return cli.WithHint(cli.Usagef("no API token"), "put one with the scopes write_builds, read_builds, read_artifacts and read_agents into %s", varToken)
	}
	if (env.Getenv(varHook) == "") != (env.Getenv(varHookSecret) == "") {
		return cli.Usagef("the hook: want both %s and %s", varHook, varHookSecret)
	}
	for _, id := range c.Admin {
		if id == "" || strings.Trim(id, "0123456789") != "" {
			return cli.Usagef("--admin: got %s, want the decimal id of a user", text.Quote(id))
		}
	}
	if c.Seal != "" {
		if err := seal.Check(c.Seal, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

func (c *serveCmd) publicURL(listening string) string {
	if c.URL != "" {
		return strings.TrimRight(c.URL, "/")
	}
	return listening
}

// server puts the parts together.
func (c *serveCmd) server(ctx context.Context, env *cli.Env, s *store.Store, url string, log *slog.Logger) (*server.Server, error) {
	installation, err := s.Installation(ctx)
	if err != nil {
		return nil, err
	}
	client, err := c.client(env, installation, c.ListingDelay, log)
	if err != nil {
		return nil, err
	}
	providers, err := loginProviders(env)
	if err != nil {
		return nil, err
	}
	r := reconciler.Options{Owner: owner(), Branch: c.Branch, Commit: c.Commit, Lease: c.Lease, QueueTimeout: c.QueueTimeout, RunTimeout: c.RunTimeout, Room: c.Room}
	if c.Seal != "" {
		r.Seal = func(queue string) (func(string, string) (string, error), error) {
			return seal.For(c.Seal, queue, c.QueueTimeout+c.RunTimeout, time.Now)
		}
	}
	srv, err := server.New(ctx, server.Options{
		Store: s, Launcher: client, Fleet: pipelines.Fleet, Version: cli.Version(),
		PublicURL: c.publicURL(url), Name: c.Name, AdminToken: env.Getenv(varAdmin), Admins: c.Admin, Providers: providers, Proxies: c.Proxy, Rate: c.Rate,
		WebhookToken: env.Getenv(varWebhook), AnnounceURL: env.Getenv(varAnnounce), HookURL: env.Getenv(varHook), HookSecret: env.Getenv(varHookSecret), Reconciler: r, Log: log,
	})
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	return srv, nil
}

// loginProviders are those whose client id the environment has.
func loginProviders(env *cli.Env) (found []identity.Provider, err error) {
	for _, name := range []string{"github", "discord"} {
		prefix := "KBSERVE_" + strings.ToUpper(name) + "_"
		p := identity.Provider{Name: name, ClientID: env.Getenv(prefix + "CLIENT_ID"), ClientSecret: env.Getenv(prefix + "CLIENT_SECRET")}
		switch {
		case p.ClientID == "" && p.ClientSecret == "":
		case p.ClientID == "" || p.ClientSecret == "":
			return nil, cli.Usagef("log-in through %s: want both %sCLIENT_ID and %[2]sCLIENT_SECRET", name, prefix)
		default:
			found = append(found, p)
		}
	}
	return found, nil
}

// owner names this process for leases.
func owner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	var random [4]byte
	rand.Read(random[:]) // never fails
	return fmt.Sprintf("%s-%d-%s", text.Line(host, 60), os.Getpid(), hex.EncodeToString(random[:]))
}

func logger(w io.Writer, format string, debug bool) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.LevelInfo}
	if debug {
		options.Level = slog.LevelDebug
	}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
