package identity

import (
	"errors"
	"net/http"
	"time"
)

// Names of cookies, before the prefix that https adds.
const (
	sessionCookie = "kbserve_session"
	loginCookie   = "kbserve_login"   // binds a log-in that has begun to its browser
	confirmCookie = "kbserve_confirm" // what a person is asked to confirm, sealed
)

// sessionLife is how long a browser stays logged in.
const sessionLife = 30 * 24 * time.Hour

func (i *Identity) cookieName(name string) string {
	if i.secure {
		return "__Host-" + name
	}
	return name
}

// cookie returns a cookie's value; of several with the name none.
func (i *Identity) cookie(r *http.Request, name string) string {
	found := r.CookiesNamed(i.cookieName(name))
	if len(found) != 1 || len(found[0].Value) > 4096 {
		return ""
	}
	return found[0].Value
}

// setCookie sets a cookie for a time; 0 removes it.
func (i *Identity) setCookie(w http.ResponseWriter, name, value string, life time.Duration) {
	c := &http.Cookie{Name: i.cookieName(name), Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: i.secure, MaxAge: int(life.Seconds())}
	if life == 0 {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

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
