package server

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/server/servertest"
)

// The dashboard in docs asks for metrics that exist, and leaves none out.
func TestDashboard(t *testing.T) {
	client, err := launcher.New(launcher.Options{BaseURL: "http://127.0.0.1:1", Token: "bkua_secret", Org: "gpu-mode", Pipeline: "kernelbot"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(t.Context(), Options{Store: servertest.SQLite(t), Launcher: client, PublicURL: "http://kb.test"})
	if err != nil {
		t.Fatal(err)
	}
	described := make(chan *prometheus.Desc)
	go func() {
		s.metrics.registry.Describe(described)
		close(described)
	}()
	var have []string
	for d := range described {
		if name := regexp.MustCompile(`fqName: "(kbserve_\w+)"`).FindStringSubmatch(d.String()); name != nil {
			have = append(have, name[1])
		}
	}
	dashboard, err := os.ReadFile("../docs/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	for _, name := range regexp.MustCompile(`kbserve_\w+`).FindAllString(string(dashboard), -1) {
		asked = append(asked, regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, ""))
	}
	slices.Sort(have)
	slices.Sort(asked)
	if asked = slices.Compact(asked); len(have) < 5 || !slices.Equal(asked, have) {
		t.Errorf("the dashboard asks for %q, the server has %q", asked, have)
	}
}
