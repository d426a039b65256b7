package identity

import (
	"errors"
	"net/http"
)

// ErrCrossOrigin is a request that a page of another site sent.
var ErrCrossOrigin = errors.New("this was not sent by a page of ours; load the page again")

// CheckOrigin refuses a request that changes something and that a browser sent for
// a page of another site.
//
// Errors: [ErrCrossOrigin].
func (i *Identity) CheckOrigin(r *http.Request) error {
	if i.origin.Check(r) != nil {
		return ErrCrossOrigin
	}
	return nil
}
