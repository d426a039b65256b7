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
)

// UnmarshalJSON reads the JSON form, or {"rule": "the text form"}. Unknown
// members are refused. Errors about the rule wrap [ErrRule].
func (r *Rule) UnmarshalJSON(data []byte) error {
	type members Rule
	var in struct {
		Text string `json:"rule"` // excludes all the others
		members
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return fmt.Errorf("%w: %w", ErrRule, err)
	}
	*r = Rule(in.members)
	if in.Text == "" {
		return r.Validate()
	}
	if *r != (Rule{}) {
		return fmt.Errorf("%w: rule excludes all other members", ErrRule)
	}
	var err error
	*r, err = Parse(in.Text)
	return err
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
			answer(w, http.StatusOK, in.List())
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
	answer(w, http.StatusCreated, Entry{ID: id, Text: rule.String(), Rule: rule})
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
