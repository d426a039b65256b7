package announce

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gpu-mode/kbgen/schema/format"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store"
)

// A line says one thing about a ranking, which holds as long as the leader has
// their rank.
type line struct {
	board, gpu string
	leader     store.Leader
	was        *store.Leader // whom or what it replaces; nil: nobody, or not to be told
}

// linesOf are what a change is worth saying: whoever is new among the first three
// or has become faster, and who leads now.
func linesOf(c store.Announcement) (lines []line) {
	for i, now := range c.Now {
		l := line{board: c.Board, gpu: c.GPU, leader: now}
		leads := i == 0 && (len(c.Before) == 0 || c.Before[0].UserID != now.UserID)
		known := slices.ContainsFunc(c.Before, func(before store.Leader) bool { return before.UserID == now.UserID && now.Score >= before.Score })
		if known && !leads {
			continue
		}
		if i == 0 && len(c.Before) > 0 && !c.Before[0].Gone {
			l.was = &c.Before[0]
		}
		lines = append(lines, l)
	}
	return lines
}

// A form is what a chat's webhook takes.
type form struct {
	limit  int // characters of one message
	escape func(string) string
	encode func(string) ([]byte, error)
}

// Source: Discord's and Slack's documentation of incoming webhooks.
var (
	discord = form{2000, escapeDiscord, func(message string) ([]byte, error) {
		// Nobody is mentioned, whatever a name says, and links show no preview.
		return json.Marshal(map[string]any{"content": message, "allowed_mentions": map[string]any{"parse": []string{}}, "flags": 1 << 2})
	}}
	slack = form{4000, strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace, func(message string) ([]byte, error) {
		return json.Marshal(map[string]any{"text": message, "mrkdwn": false, "unfurl_links": false, "unfurl_media": false})
	}}
)

// escapeDiscord takes the meaning from every character that may have one there.
func escapeDiscord(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strings.ContainsRune("\\`*_~|>#[]()<@:/-+.!&", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

const maxName = 40 // runes of a user's name

func (f form) name(l store.Leader) string {
	name := text.Line(l.User, maxName)
	if name == "" {
		name = "user " + l.UserID
	}
	return f.escape(name)
}

// words are the line as it is posted: "ann leads vectoradd on H100_BK with
// 912.300 µs (was bob with 950.100 µs)".
func (f form) words(l line) string {
	does := "is third on"
	switch {
	case l.leader.Rank == 1 && l.leader.Tied:
		does = "shares the lead of"
	case l.leader.Rank == 1:
		does = "leads"
	case l.leader.Rank == 2:
		does = "is second on"
	}
	score, was := format.Score(l.leader.Score), ""
	if l.was != nil {
		was = " (was " + format.Score(l.was.Score) + ")"
		if l.was.UserID != l.leader.UserID {
			was = " (was " + f.name(*l.was) + " with " + format.Score(l.was.Score) + ")"
		}
	}
	return fmt.Sprintf("%s %s %s on %s with %s%s", f.name(l.leader), does, f.escape(l.board), f.escape(l.gpu), score, was)
}

// message joins the lines that fit into one message: the first n, at least one.
func (f form) message(lines []line) (message string, n int) {
	for i, l := range lines {
		longer := message + "\n" + f.words(l)
		if i > 0 && utf8.RuneCountInString(longer) > f.limit {
			break
		}
		message, n = longer, n+1
	}
	return text.Shorten(strings.TrimPrefix(message, "\n"), f.limit), n
}
