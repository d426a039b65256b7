package session

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// AgentConfig is the file with which an agent of one's own is started. It holds
// the registration token, so that no command line and no log has to.
func (s *Session) AgentConfig() string { return filepath.Join(s.Dir, AgentConfigName) }

// AgentConfigName is its name in the directory.
const AgentConfigName = "buildkite-agent.cfg"

// AgentExports lists the variables for agents of one's own.
func (s *Session) AgentExports() []string {
	return []string{
		"KBLOCAL_DIR=" + s.Dir,
		"BUILDKITE_AGENT_ENDPOINT=" + s.URL() + "/v3",
		"BUILDKITE_AGENT_TOKEN=" + s.AgentToken(),
	}
}

func (s *Session) writeAgentConfig() error {
	return writeSecret(s.AgentConfig(), AgentSettings{
		Token: s.AgentToken(), Endpoint: s.URL() + "/v3", Dir: filepath.Join(s.Dir, "own"),
	}.String())
}

// AgentSettings are what an agent needs to work for a stand-in.
type AgentSettings struct {
	Token, Endpoint string
	Name, Tags      string // empty: the agent's own defaults
	Dir             string // for its checkouts, hooks and plugins
	Spawn           int    // 0: one
}

// String is the agent's configuration file.
func (a AgentSettings) String() string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s=%s\n", name, strconv.Quote(value))
		}
	}
	b.WriteString("# buildkite-agent start --config THIS_FILE, works for a kblocal while that runs\n")
	line("token", a.Token)
	line("endpoint", a.Endpoint)
	line("name", a.Name)
	line("tags", a.Tags)
	if a.Spawn > 1 {
		line("spawn", strconv.Itoa(a.Spawn))
	}
	line("build-path", filepath.Join(a.Dir, "builds"))
	line("hooks-path", filepath.Join(a.Dir, "hooks"))
	line("plugins-path", filepath.Join(a.Dir, "plugins"))
	b.WriteString("no-ssh-keyscan=true\n")
	return b.String()
}

// ReadAgentConfig reads the file that a session has written.
func ReadAgentConfig(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := map[string]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, quoted, _ := strings.Cut(lines.Text(), "=")
		if value, err := strconv.Unquote(quoted); err == nil {
			out[name] = value
		}
	}
	return out, lines.Err()
}
