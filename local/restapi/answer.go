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

// fail answers an error.
func (c *call) fail(err error) {
	refused, ok := errors.AsType[*engine.Error](err)
	if !ok {
		c.opts.Logger.Error("rest", "method", c.r.Method, "path", c.r.URL.Path, "err", err)
		refused = engine.Refuse(http.StatusInternalServerError, "Internal error")
	}
	c.answer(int(refused.Kind), refused)
}
