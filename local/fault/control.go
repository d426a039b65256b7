package fault

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"
)

// ruleJSON is the JSON form of a rule.
type ruleJSON struct {
	Rule      string         `json:"rule,omitempty"` // the text form; excludes all the others
	Method    string         `json:"method,omitempty"`
	Path      string         `json:"path,omitempty"`
	After     int            `json:"after,omitempty"`
	Count     int            `json:"count,omitempty"`
	Latency   string         `json:"latency,omitempty"` // "200ms"
	Status    int            `json:"status,omitempty"`
	Body      string         `json:"body,omitempty"`
	Drop      bool           `json:"drop,omitempty"`
	DropAfter bool           `json:"drop_after,omitempty"`
	Cut       int            `json:"cut,omitempty"`
	RateLimit *rateLimitJSON `json:"rate_limit,omitempty"`
	Duplicate bool           `json:"duplicate,omitempty"`
}

type rateLimitJSON struct {
	Scope string `json:"scope"`
	Reset int    `json:"reset"` // seconds
}

// UnmarshalJSON reads the JSON form, or {"rule": "the text form"}. Unknown
// members are refused. Errors about the rule wrap [ErrRule].
func (r *Rule) UnmarshalJSON(data []byte) error {
	var in ruleJSON
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return fmt.Errorf("%w: %w", ErrRule, err)
	}
	if in.Rule != "" {
		if in != (ruleJSON{Rule: in.Rule}) {
			return fmt.Errorf("%w: rule excludes all other members", ErrRule)
		}
		parsed, err := Parse(in.Rule)
		*r = parsed
		return err
	}
	*r = Rule{
		Method: in.Method, Path: in.Path, After: in.After, Count: in.Count, Status: in.Status, Body: in.Body,
		Drop: in.Drop, DropAfter: in.DropAfter, Cut: in.Cut, Duplicate: in.Duplicate,
	}
	if in.RateLimit != nil {
		r.RateLimit = &RateLimit{Scope: in.RateLimit.Scope, Reset: in.RateLimit.Reset}
	}
	if in.Latency != "" {
		var err error
		if r.Latency, err = time.ParseDuration(in.Latency); err != nil {
			return fmt.Errorf("%w: latency: got %q, want a duration such as 200ms", ErrRule, in.Latency)
		}
	}
	return r.Validate()
}

// MarshalJSON writes the JSON form.
func (r Rule) MarshalJSON() ([]byte, error) {
	out := ruleJSON{
		Method: r.Method, Path: r.Path, After: r.After, Count: r.Count, Status: r.Status, Body: r.Body,
		Drop: r.Drop, DropAfter: r.DropAfter, Cut: r.Cut, Duplicate: r.Duplicate,
	}
	if r.Latency != 0 {
		out.Latency = r.Latency.String()
	}
	if r.RateLimit != nil {
		out.RateLimit = &rateLimitJSON{Scope: r.RateLimit.Scope, Reset: r.RateLimit.Reset}
	}
	return json.Marshal(out)
}

// An entryJSON is a rule in an answer of the control endpoint.
type entryJSON struct {
	ID      int    `json:"id"`
	Text    string `json:"text"`
	Rule    Rule   `json:"rule"`
	Matched int    `json:"matched"`
	Hits    int    `json:"hits"`
}

func (e Entry) json() entryJSON {
	return entryJSON{ID: e.ID, Text: e.Rule.String(), Rule: e.Rule, Matched: e.Matched, Hits: e.Hits}
}

// Control serves the rules at one path: GET lists them, POST adds one, DELETE
// removes all or the one with ?id=. Bodies are JSON, and POST asks for that
// content type: without it any web page could send one here.
//
// It must not be wrapped by the injector itself.
func (in *Injector) Control() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet:
			in.list(w)
		case http.MethodPost:
			in.post(w, r)
		case http.MethodDelete:
			in.remove(w, r)
		default:
			w.Header().Set("Allow", "GET, POST, DELETE")
			say(w, http.StatusMethodNotAllowed, "want GET, POST or DELETE")
		}
	})
}

func (in *Injector) list(w http.ResponseWriter) {
	out := []entryJSON{}
	for _, e := range in.List() {
		out = append(out, e.json())
	}
	answer(w, http.StatusOK, out)
}

const maxRule = 1 << 20 // bytes of a rule's JSON

func (in *Injector) post(w http.ResponseWriter, r *http.Request) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		say(w, http.StatusUnsupportedMediaType, "want Content-Type: application/json")
		return
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRule))
	if err != nil {
		say(w, http.StatusBadRequest, "the rule cannot be read: it is cut, or larger than 1 MiB")
		return
	}
	var rule Rule
	switch err := json.Unmarshal(data, &rule); {
	case errors.Is(err, ErrRule):
		say(w, http.StatusUnprocessableEntity, err.Error())
		return
	case err != nil:
		say(w, http.StatusBadRequest, "the body is not JSON: "+err.Error())
		return
	}
	id, err := in.Add(rule)
	if err != nil {
		say(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	answer(w, http.StatusCreated, Entry{ID: id, Rule: rule}.json())
}

func (in *Injector) remove(w http.ResponseWriter, r *http.Request) {
	text := r.URL.Query().Get("id")
	if text == "" {
		in.Clear()
		w.WriteHeader(http.StatusNoContent)
		return
	}
	id, err := strconv.Atoi(text)
	if err != nil || !in.Remove(id) {
		say(w, http.StatusNotFound, fmt.Sprintf("no rule has the id %q", text))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func say(w http.ResponseWriter, status int, text string) {
	answer(w, status, map[string]string{"message": text})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client has gone
}
