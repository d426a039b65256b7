package token

import (
	"strings"
	"testing"
)

func TestAll(t *testing.T) {
	for text, want := range map[string]string{
		"token: ghp_" + strings.Repeat("a1", 18):                                    "a GitHub token",
		"bkct_" + strings.Repeat("aB3", 10):                                         "a Buildkite agent token",
		"bkua_" + strings.Repeat("0f", 20):                                          "a Buildkite API token",
		"https://hooks.slack.com/services/T012/B345/" + strings.Repeat("x", 24):     "a Slack webhook, which is a password",
		"https://discord.com/api/webhooks/1234567890/" + strings.Repeat("aB3_", 17): "a Discord webhook, which is a password",
		"-----BEGIN OPENSSH PRIVATE KEY-----\n" + strings.Repeat("A", 30):           "a private key",
		"":           "",
		"bkct_short": "",
		"see the ghp_ tokens of our organisation in 1234": "",
	} {
		got := ""
		for _, found := range All(text) {
			got = found.What
			if text[found.Offset:found.Offset+len(found.Mark)] != found.Mark {
				t.Errorf("All(%q): mark %q is not at %d", text, found.Mark, found.Offset)
			}
		}
		if got != want {
			t.Errorf("All(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestLike(t *testing.T) {
	for text, found := range map[string]bool{
		"#gpu-ops on Discord":                   false,
		"https://discord.gg/gpumode":            false,
		"ops@vendor.example.org":                false,
		"https://ops:hunter2@vendor.org/status": true,
		strings.Repeat("a1", 25):                true, // an agent token of the old form
		strings.Repeat("-", 40):                 false,
		strings.Repeat("long", 20):              false,
		"bkct_" + strings.Repeat("aB3", 10):     true,
	} {
		if got := Like(text); (got != "") != found {
			t.Errorf("Like(%q) = %q, want found %v", text, got, found)
		}
	}
}
