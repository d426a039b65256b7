package api

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/server/httpx"
	"github.com/gpu-mode/kbgen/store"
)

// A FieldError says what is wrong with one field of a request, as Kernelbot's
// framework does.
type FieldError struct {
	Loc  []string `json:"loc"`
	Msg  string   `json:"msg"`
	Type string   `json:"type"`
}

func (e *FieldError) Error() string { return e.Msg }

// answer is status 422, whose detail is a list.
func (e *FieldError) answer(w http.ResponseWriter) {
	httpx.JSON(w, http.StatusUnprocessableEntity, map[string]any{"detail": []*FieldError{e}})
}

func fieldError(where, name, kind, msg string) error {
	return &FieldError{Loc: []string{where, name}, Msg: msg, Type: kind}
}

// withID reads the number in the path for do.
func withID(do func(*call, int64) (any, error)) func(*call) (any, error) {
	return func(c *call) (any, error) {
		id, err := c.id()
		if err != nil {
			return nil, err
		}
		return do(c, id)
	}
}

// withSubmission reads the submission that the number in the path names for do.
func withSubmission(do func(*call, *backend.Submission) (any, error)) func(*call) (any, error) {
	return withID(func(c *call, id int64) (any, error) {
		s, err := c.back().Submission(c.ctx(), c.viewer(), id)
		if err != nil {
			return nil, err
		}
		return do(c, s)
	})
}

// withBody reads the body for do. Kernelbot's routes take members that they do not
// know.
func withBody[T any](do func(*call, T) (any, error)) func(*call) (any, error) {
	return func(c *call) (any, error) {
		var in T
		if err := c.json(&in); err != nil {
			return nil, err
		}
		return do(c, in)
	}
}

// mapped is a list that JSON writes as a list, empty or not.
func mapped[S, T any](list []S, one func(S) T) []T {
	out := make([]T, len(list))
	for i, s := range list {
		out[i] = one(s)
	}
	return out
}

// id reads the number in the path.
func (c *call) id() (int64, error) {
	s := c.PathValue("id")
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 || s != strconv.FormatInt(n, 10) {
		return 0, fieldError("path", "id", "int_parsing", "want a whole number above zero")
	}
	return n, nil
}

// number reads a number from the query.
func (c *call) number(name string, usual, least, most int) (int, error) {
	values, there := c.values()[name]
	if !there {
		return usual, nil
	}
	n, err := strconv.Atoi(values[0])
	switch {
	case len(values) != 1 || err != nil:
		return 0, fieldError("query", name, "int_parsing", "want one whole number")
	case n < least || n > most:
		return 0, &refusal{http.StatusBadRequest, name + ": got " + strconv.Itoa(n) + ", want " + strconv.Itoa(least) + " to " + strconv.Itoa(most)}
	}
	return n, nil
}

// page reads limit and offset from the query.
func (c *call) page(usual, least, most int) (limit, offset int, err error) {
	if limit, err = c.number("limit", usual, least, most); err == nil {
		offset, err = c.number("offset", 0, 0, 1<<31-1)
	}
	return limit, offset, err
}

// word reads a text from the query; of several it is the first.
func (c *call) word(name string) string { return c.values().Get(name) }

func (c *call) values() url.Values { return c.URL.Query() }

// yes reads a boolean from the query, as Kernelbot's framework does.
func (c *call) yes(name string) (bool, error) {
	switch strings.ToLower(c.word(name)) {
	case "", "0", "false", "no", "off":
		return false, nil
	case "1", "true", "yes", "on":
		return true, nil
	}
	return false, fieldError("query", name, "bool_parsing", "want true or false")
}

// json reads the body. Own routes take no members that they do not know.
func (c *call) json(into any) error {
	if kind, _, err := mime.ParseMediaType(c.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return &refusal{http.StatusUnsupportedMediaType, "Content-Type: want application/json"}
	}
	dec := json.NewDecoder(c.Body)
	if c.own {
		dec.DisallowUnknownFields()
	}
	err := dec.Decode(into)
	if err == nil {
		if _, err = dec.Token(); errors.Is(err, io.EOF) {
			return nil
		}
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return err
	}
	what := "more than one value"
	if err != nil {
		what = text.Line(err.Error(), 200)
	}
	return &refusal{http.StatusBadRequest, "body: want one JSON object: " + what}
}

// maxParts is how many parts a form may have, and maxPartHead how many bytes each
// may have for headers.
const (
	maxParts    = 16
	maxPartHead = 8 << 10
)

// A file is what somebody handed in.
type file struct {
	name string
	code []byte
}

// file reads the one part of a form that is named file; others are passed over.
//
// Errors: 422 as Kernelbot's framework when there is none, 413 for one that is too
// large.
func (c *call) file() (*file, error) {
	missing := fieldError("body", "file", "missing", "Field required: a form with one part named file")
	kind, params, err := mime.ParseMediaType(c.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" || len(params["boundary"]) == 0 || len(params["boundary"]) > 70 {
		return nil, missing
	}
	parts := multipart.NewReader(c.Body, params["boundary"])
	var found *file
	for n := 0; ; n++ {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, badForm(err)
		}
		if n >= maxParts || headLength(part.Header) > maxPartHead {
			return nil, &refusal{http.StatusBadRequest, "form: want at most " + strconv.Itoa(maxParts) + " parts, each with few headers"}
		}
		if part.FormName() != "file" {
			continue
		}
		if found != nil {
			return nil, fieldError("body", "file", "value_error", "want one part named file, got several")
		}
		if part.FileName() == "" {
			return nil, missing
		}
		code, err := io.ReadAll(io.LimitReader(part, store.MaxCode+1))
		if err != nil {
			return nil, badForm(err)
		}
		if len(code) > store.MaxCode {
			return nil, &refusal{http.StatusRequestEntityTooLarge, "file: want at most " + strconv.Itoa(store.MaxCode) + " bytes"}
		}
		found = &file{part.FileName(), code}
	}
	if found == nil {
		return nil, missing
	}
	return found, nil
}

func headLength(head map[string][]string) (n int) {
	for name, values := range head {
		n += len(name) + len(strings.Join(values, "  "))
	}
	return n
}

func badForm(err error) error {
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return err
	}
	return &refusal{http.StatusBadRequest, "form: it cannot be read"}
}
