// Package token finds texts that are secrets, whatever they are called: tokens of
// services whose form is known, private keys, addresses that are passwords.
//
// What it finds stands in no message of its own, and belongs into no other's.
package token

import (
	"regexp"
	"strings"

	"github.com/gpu-mode/kbgen/schema/text"
)

// A Token is one secret in a text.
type Token struct {
	What   string // "a GitHub token"
	Mark   string // what such tokens begin with, or hold; no secret
	Offset int    // of the mark
}

var forms = []struct {
	mark string
	what string
	form func() *regexp.Regexp
}{
	{"ghp_", "a GitHub token", text.Pattern(`\bghp_[A-Za-z0-9]{36}\b`)},
	{"github_pat_", "a GitHub token", text.Pattern(`\bgithub_pat_[A-Za-z0-9_]{60,}`)},
	{"bkua_", "a Buildkite API token", text.Pattern(`\bbkua_[0-9a-f]{40}\b`)},
	{"bkct_", "a Buildkite agent token", text.Pattern(`\bbkct_[A-Za-z0-9_-]{20,}`)},
	{"bkaj_", "a token of a Buildkite job", text.Pattern(`\bbkaj_[A-Za-z0-9_.-]{20,}`)},
	{"hf_", "a Hugging Face token", text.Pattern(`\bhf_[A-Za-z0-9]{34}\b`)},
	{"glpat-", "a GitLab token", text.Pattern(`\bglpat-[A-Za-z0-9_-]{20}\b`)},
	{"xox", "a Slack token", text.Pattern(`\bxox[baprs]-[0-9]{6,}-[A-Za-z0-9-]{10,}`)},
	{"hooks.slack.com/services/", "a Slack webhook, which is a password", text.Pattern(`hooks\.slack\.com/services/T[A-Z0-9]+/B[A-Z0-9]+/[A-Za-z0-9]{20,}`)},
	{"/api/webhooks/", "a Discord webhook, which is a password", text.Pattern(`discord(?:app)?\.com/api/webhooks/[0-9]+/[A-Za-z0-9_-]{40,}`)},
	{"AKIA", "an AWS access key", text.Pattern(`\bAKIA[0-9A-Z]{16}\b`)},
	{"PRIVATE KEY-----", "a private key", text.Pattern(`-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[A-Za-z0-9+/=]{20,}`)},
}

// shortest is the length of the shortest token there is a form for.
const shortest = 20

// All finds the tokens in a text, one of each form.
func All(s string) []Token {
	if len(s) < shortest {
		return nil
	}
	var found []Token
	for _, f := range forms {
		if i := strings.Index(s, f.mark); i >= 0 && f.form().MatchString(s) {
			found = append(found, Token{f.what, f.mark, i})
		}
	}
	return found
}

var (
	login = text.Pattern(`://[^/\s:@$]+:[^/\s@$]+@`)
	run   = text.Pattern(`[A-Za-z0-9_-]{32,}`)
)

// Like says what kind of secret a text for people holds, which has no use for
// a long run of letters and digits or for a password in an address; "" if none.
// It sees more than [All], and errs on its side.
func Like(s string) string {
	if all := All(s); len(all) > 0 {
		return all[0].What
	}
	if login().MatchString(s) {
		return "a password in an address"
	}
	for _, word := range run().FindAllString(s, -1) {
		if strings.ContainsAny(word, "0123456789") && strings.Trim(word, "0123456789_-") != "" {
			return "what looks like a token"
		}
	}
	return ""
}
