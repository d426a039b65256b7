package engine

import "fmt"

// A Kind says what a caller did wrong: it is the HTTP status with which all APIs
// and the page answer.
type Kind int

const (
	NotFound     Kind = 404
	Invalid      Kind = 422 // validation, with Fields, or a state conflict
	BadRequest   Kind = 400
	Unauthorized Kind = 401
	Locked       Kind = 423 // not yet runnable
)

// An Error is a refusal, by the engine or by what serves it, and as JSON the body
// that the APIs answer with. Message is for people; it never quotes a build's env.
type Error struct {
	Kind    Kind         `json:"-"`
	Message string       `json:"message"`
	Fields  []FieldError `json:"errors,omitempty"` // of a validation answer
}

// A FieldError names one field of a request body that cannot be used.
type FieldError struct {
	Field string `json:"field"`
	Code  string `json:"code"`
}

func (e *Error) Error() string { return e.Message }

// Refuse makes an [Error] without fields.
func Refuse(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}
