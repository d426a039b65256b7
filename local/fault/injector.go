package fault

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// An Injector holds rules and wraps handlers. One injector may wrap several.
// Its zero value has no rules. It is safe for concurrent use.
type Injector struct {
	mu    sync.Mutex
	next  int
	rules []*Entry
}

// An Entry is a rule with its counters.
type Entry struct {
	ID      int    `json:"id"`
	Text    string `json:"text"`
	Rule    Rule   `json:"rule"`
	Matched int    `json:"matched"` // requests the rule is about, whether it acted or not
	Hits    int    `json:"hits"`    // requests it acted on
}

// Add puts a rule behind the others and returns its id. Of the rules that are
// about a request, the first acts that is neither waiting (After) nor used up
// (Count). Errors wrap [ErrRule].
func (in *Injector) Add(r Rule) (int, error) {
	if err := r.Validate(); err != nil {
		return 0, err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.next++
	in.rules = append(in.rules, &Entry{ID: in.next, Text: r.String(), Rule: r})
	return in.next, nil
}

// Remove takes one rule out; it reports whether there was one.
func (in *Injector) Remove(id int) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	before := len(in.rules)
	in.rules = slices.DeleteFunc(in.rules, func(e *Entry) bool { return e.ID == id })
	return len(in.rules) < before
}

// Clear takes all rules out.
func (in *Injector) Clear() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.rules = nil
}

// List returns all rules, used up ones too, oldest first.
func (in *Injector) List() []Entry {
	in.mu.Lock()
	defer in.mu.Unlock()
	out := make([]Entry, len(in.rules))
	for i, e := range in.rules {
		out[i] = *e
	}
	return out
}

// pick counts the request and returns the rule that acts on it.
func (in *Injector) pick(r *http.Request) (Rule, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, e := range in.rules {
		if !e.Rule.matches(r) {
			continue
		}
		e.Matched++
		if e.Matched <= e.Rule.After || e.Rule.Count > 0 && e.Hits >= e.Rule.Count {
			continue
		}
		e.Hits++
		return e.Rule, true
	}
	return Rule{}, false
}

// Wrap returns next with the faults. A request that no rule acts on reaches
// next with its own ResponseWriter, so streams and hijacks work.
//
// A client may repeat a request whose connection was dropped: Go's does so with
// a GET on a connection that it had used before.
func (in *Injector) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rule, ok := in.pick(r)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		rule.act(w, r, next)
	})
}

// maxReplay bounds the body of a request that is delivered twice, bytes.
const maxReplay = 64 << 20

func (r *Rule) act(w http.ResponseWriter, req *http.Request, next http.Handler) {
	if r.Latency > 0 {
		timer := time.NewTimer(time.Duration(r.Latency))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-req.Context().Done():
			panic(http.ErrAbortHandler) // the client has gone
		}
	}
	switch {
	case r.Drop:
		panic(http.ErrAbortHandler) // closes the connection, logs nothing
	case r.DropAfter:
		next.ServeHTTP(newVoid(), req)
		panic(http.ErrAbortHandler)
	case r.Cut > 0:
		cut := &cutWriter{ResponseWriter: w, left: r.Cut}
		next.ServeHTTP(cut, req)
		if cut.done {
			panic(http.ErrAbortHandler)
		}
	case r.RateLimit != nil:
		r.RateLimit.answer(w)
	case r.Status != 0 || r.Body != "":
		r.answer(w)
	case r.Duplicate:
		duplicate(w, req, next)
	default:
		next.ServeHTTP(w, req)
	}
}

// answer writes the rule's own answer.
func (r *Rule) answer(w http.ResponseWriter) {
	status, body, kind := cmp.Or(r.Status, http.StatusOK), r.Body, "application/json; charset=utf-8"
	switch {
	case body == "":
		body = fmt.Sprintf(`{"message":"%d %s (injected)"}`, status, http.StatusText(status))
	case strings.HasPrefix(body, "<"):
		kind = "text/html; charset=utf-8"
	case !json.Valid([]byte(body)):
		kind = "text/plain; charset=utf-8"
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	if status != http.StatusNoContent && status != http.StatusNotModified {
		_, _ = io.WriteString(w, body) // the client has gone
	}
}

// answer writes a 429 as the REST API does: the headers of the exhausted quota
// name the reset, those of the other one have requests left, and there is no
// Retry-After.
func (l *RateLimit) answer(w http.ResponseWriter) {
	limits := map[string]int{"rest": 200, "rest_user": 50}
	for scope, prefix := range map[string]string{"rest": "RateLimit-", "rest_user": "RateLimit-User-"} {
		remaining, reset := limits[scope]/2, 60
		if scope == l.Scope {
			remaining, reset = -1, l.Reset
			w.Header().Set(prefix+"Warning", scope+" has no requests remaining (injected)")
		}
		w.Header().Set(prefix+"Scope", scope)
		w.Header().Set(prefix+"Limit", strconv.Itoa(limits[scope]))
		w.Header().Set(prefix+"Remaining", strconv.Itoa(remaining))
		w.Header().Set(prefix+"Reset", strconv.Itoa(reset))
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(http.StatusTooManyRequests)
	limit := limits[l.Scope]
	_ = json.NewEncoder(w).Encode(map[string]any{
		"message": fmt.Sprintf("The API rate limit is exceeded, wait %d seconds (injected)", l.Reset),
		"scope":   l.Scope, "limit": limit, "current": limit + 1, "reset": l.Reset,
	})
}

// duplicate lets next see the request twice, as if a network had repeated it.
func duplicate(w http.ResponseWriter, req *http.Request, next http.Handler) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxReplay))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			http.Error(w, "fault: the request is too large to be duplicated", http.StatusRequestEntityTooLarge)
			return
		}
		panic(http.ErrAbortHandler)
	}
	first := req.Clone(req.Context())
	first.Body = io.NopCloser(bytes.NewReader(body))
	next.ServeHTTP(newVoid(), first)
	req.Body = io.NopCloser(bytes.NewReader(body))
	next.ServeHTTP(w, req)
}
