package restapi

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/gpu-mode/kbgen/local/engine"
)

// answer writes a JSON body.
func (c *call) answer(status int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		c.opts.Logger.Error("rest: encoding an answer", "path", c.r.URL.Path, "err", err)
		status, data = http.StatusInternalServerError, []byte(`{"message":"Internal error"}`)
	}
	c.w.Header().Set("Content-Type", "application/json; charset=utf-8")
	c.w.WriteHeader(status)
	_, _ = c.w.Write(data) // the client has gone
}

func (c *call) ok(body any) error {
	c.answer(http.StatusOK, body)
	return nil
}

// shown answers with what a call returns, as show has it, or why there is none.
func shown[T, S any](c *call, status int, show func(T) S) func(T, error) error {
	return func(value T, err error) error {
		if err != nil {
			return err
		}
		c.answer(status, show(value))
		return nil
	}
}

// ok is shown with status 200.
func ok[T, S any](c *call, show func(T) S) func(T, error) error { return shown(c, http.StatusOK, show) }

// noContent answers a call that has done something, or could not.
func (c *call) noContent(err error) error {
	if err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// A refusal is an error with its answer.
type refusal struct {
	status int
	body   any
}

func (r *refusal) Error() string { return http.StatusText(r.status) }

type messageBody struct {
	Message string              `json:"message"`
	Errors  []engine.FieldError `json:"errors,omitempty"`
}

func message(text string) messageBody { return messageBody{Message: text} }

func notFound(text string) error   { return &engine.Error{Kind: engine.NotFound, Message: text} }
func badRequest(text string) error { return &engine.Error{Kind: engine.BadRequest, Message: text} }

func invalid(text string, fields ...engine.FieldError) error {
	return &engine.Error{Kind: engine.Invalid, Message: text, Fields: fields}
}

// fail answers an error.
func (c *call) fail(err error) {
	var mine *refusal
	var theirs *engine.Error
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &mine):
		c.answer(mine.status, mine.body)
	case errors.As(err, &theirs):
		c.answer(int(theirs.Kind), messageBody{Message: theirs.Message, Errors: theirs.Fields})
	case errors.As(err, &tooLarge):
		c.answer(http.StatusRequestEntityTooLarge, message("The request body is too large"))
	default:
		c.opts.Logger.Error("rest", "method", c.r.Method, "path", c.r.URL.Path, "err", err)
		c.answer(http.StatusInternalServerError, message("Internal error"))
	}
}
