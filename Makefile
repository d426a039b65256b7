# What people type. Everything a target needs it builds itself into bin/.

SHELL := /bin/sh
GO ?= go
BIN := $(CURDIR)/bin
COMMANDS := kbgen kbrun kblaunch kbserve kbnode kblocal
# Packages that rewrite their goldens with -update.
GOLDEN := ./generator ./schema ./schema/pipeline ./schema/queuefile ./templates ./verdict ./schema/published ./server/api ./cmd/kbgen ./cmd/kbgen/secret ./cmd/kblaunch ./cmd/kbnode ./cmd/kbrun ./cmd/kbserve ./node/facts ./node/plan ./runner/plan
FUZZTIME ?= 20s
# NVML's header calls half of itself deprecated, which concerns nobody here.
export CGO_CFLAGS ?= -g -O2 -Wno-deprecated-declarations

# How the commands are built, and what the script tests run.
BUILD := $(GO) build -trimpath -ldflags '-s -w' -o $(BIN)/

.PHONY: all build commands agent plugins demo serve test race test-slow attacks gpu-test docker-test node-test node-test-ci check golden bench fuzz release clean need

all: build plugins

# One line for each thing that is missing, before anything else happens.
need:
	@sh tools/need.sh

# The commands, static; and kbrun with NVML, linked with this machine's C library.
build: need commands
	@CGO_ENABLED=1 $(BUILD)kbrun-nvml ./cmd/kbrun

# The commands and popcorn, the clients' protocol as a program.
commands:
	@mkdir -p $(BIN)
	@CGO_ENABLED=0 $(BUILD) $(COMMANDS:%=./cmd/%) ./tools/popcorn

# A real buildkite-agent: the one on PATH when it is new enough, else built once.
agent: need
	@GO="$(GO)" sh tools/agent.sh >/dev/null

# The docker plugin for kblocal, pinned; says what to do where it cannot be had.
plugins: need
	@sh tools/plugins.sh

# The main job, whole: stand-in, two agents, two submissions, their verdicts; then the backend and a submission by its clients' protocol.
demo: build agent
	@sh tools/demo.sh

# The backend over the stand-in, with the examples' boards, until Ctrl-C. PORT: its
# port (8080); 0: any that is free.
serve: build agent
	@sh tools/demo.sh serve

# What people run before every commit: every package, with the real agent. Many
# tests wait, so more packages run at once than there are cores, and the package
# whose tests wait the longest begins first.
test: build agent
	$(GO) test -vet=off -p 4 -timeout 20m ./runner ./...
	agent=$$(sh tools/agent.sh) && $(GO) -C tools/buildkite-agent test -mod=readonly . -agent "$$agent"
	sh tools/agent_test.sh

# The packages with goroutines of their own under the race detector. It does not
# watch SQLite's generated code, which costs most of the time. It must watch all
# others: a generic function compiled without it may be linked into all packages.
# The attacks run a kbrun of their own, which it cannot watch.
RACE := ./internal/... ./launcher/... ./local/... ./node/... ./runner/... ./server/... ./store/...
race: build agent
	$(GO) test -race -p 4 -timeout 30m -skip '^TestAttacks' -gcflags modernc.org/sqlite/lib=-race=false $(RACE)
	$(GO) test -race -tags otel -run 'Span|Traced' ./server/trace ./server/reconciler

# The tests that bound a time or a size, one package after the other so that none
# disturbs another; the whole attack matrix; campaigns; releases built and installed.
test-slow: build agent
	KBGEN_SLOW_TESTS=1 $(GO) test -count=1 -p 1 -timeout 40m -run '^TestSlow' ./...
	KBGEN_SLOW_TESTS=1 $(GO) -C tools/release test -count=1 -timeout 40m -v .

# Every attack of the corpus against kbrun: what it tried, what became of it.
attacks: need
	@GO="$(GO)" sh tools/attacks.sh

# The isolated harness on a GPU: its channel, late work, a table of times. Fails
# where torch sees no GPU.
gpu-test: need
	KBGEN_GPU_TESTS=1 $(GO) test -count=1 -timeout 20m -v -run '^TestGPU$$' ./runner/harness

# Steps and agents in containers, on a docker engine of the test's own. Needs root.
docker-test: build agent
	path=$$(sh tools/docker.sh) && PATH=$$path KBGEN_DOCKER_TESTS=1 $(GO) test -count=1 -v -run '^TestDocker' ./e2e ./node/proxy ./node/image ./cmd/kbnode

# A booted machine (QEMU, systemd, docker) that kbnode sets up, from plan to undo.
# Needs root; the machine is built once, into ~/.cache/kbgen-guest. KBGEN_NODE_CUTS: at how many places an apply is cut from power (10).
# NODE: which tests, or parts of them.
NODE ?= ^TestNode
node-test: build agent
	sh tools/guest/build.sh
	KBGEN_NODE_TESTS=1 $(GO) test -count=1 -timeout 150m -v -run '$(NODE)' ./e2e

# The parts of node-test for which CI has time. It says what it does not run.
NODE_CI := plan_and_apply|own_device|hostile_steps|undo
node-test-ci: build agent
	@GO="$(GO)" NODE_CI='$(NODE_CI)' sh tools/node-ci.sh

# What a reviewer would run first.
check: need
	@sh tools/check.sh

# Rewrite what the tools print, then look at the diff.
golden: build
	$(GO) test -count=1 $(GOLDEN) -update

# Figures, never a pass or a fail.
bench: build agent
	@sh tools/bench.sh

# Every fuzz test for FUZZTIME each.
fuzz: need
	@FUZZTIME=$(FUZZTIME) sh tools/fuzz.sh

# Builds a release into dist/, as in VERSION=v1.2.3. KBGEN_RELEASE_KEY names
# a minisign secret key that signs SHA256SUMS; KBGEN_RELEASE_PASSWORD is its password.
release: need
	@$(GO) -C tools/release run . --version "$(VERSION)" --out "$(CURDIR)/dist"

clean:
	rm -rf $(BIN) dist
