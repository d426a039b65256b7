package httpx

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// JSON writes an answer. A client that has left is no error of ours.
func JSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // an answer is made of our own types
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store")
	}
	w.WriteHeader(status)
	w.Write(append(body, '\n'))
}

// A Problem is the body of every answer that says no.
type Problem struct {
	Detail string `json:"detail"`
}

// Error answers with a problem.
func Error(w http.ResponseWriter, status int, detail string) {
	JSON(w, status, Problem{detail})
}

// TooMany answers that a client asks too often.
func TooMany(w http.ResponseWriter, wait time.Duration) {
	seconds := max(1, int((wait+time.Second-1)/time.Second))
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	Error(w, http.StatusTooManyRequests, "too many requests; try again in "+strconv.Itoa(seconds)+" s")
}
