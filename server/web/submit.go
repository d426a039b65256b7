package web

import (
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"

	"github.com/gpu-mode/kbgen/server/backend"
	"github.com/gpu-mode/kbgen/store"
)

// submit takes a file from a board's form. What is refused is said above the form.
func (s *site) submit(r *request) error {
	in, err := readForm(r)
	if err != nil {
		return s.showBoard(r, http.StatusBadRequest, err.Error())
	}
	receipt, err := s.Backend.Submit(r.Context(), r.viewer, in)
	var refused *store.Refused
	switch {
	case errors.As(err, &refused) && refused.Why != store.UnknownBoard:
		if refused.RetryAfter > 0 {
			r.w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(refused.RetryAfter.Seconds()))))
		}
		return s.showBoard(r, refusedStatus(refused.Why), refused.Text)
	case err != nil:
		return err
	}
	return r.see(submissionPath(receipt.ID))
}

func readForm(r *request) (backend.Request, error) {
	in := backend.Request{Board: r.PathValue("board"), GPU: r.PostFormValue("gpu"), Mode: r.PostFormValue("mode")}
	file, header, err := r.FormFile("file")
	if err != nil {
		return in, errNoFile
	}
	defer file.Close()
	in.FileName = header.Filename
	if in.Code, err = io.ReadAll(io.LimitReader(file, store.MaxCode+1)); err != nil {
		return in, errors.New("the file could not be read")
	}
	if len(in.Code) == 0 {
		return in, errNoFile
	}
	return in, nil
}
