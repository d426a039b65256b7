package engine

import "fmt"

// A Kind says what a caller did wrong, in the classes that both APIs answer.
type Kind int

const (
	NotFound     Kind = iota + 1 // 404
	Invalid                      // 422: validation, with Fields, or a state conflict
	BadRequest                   // 400
	Unauthorized                 // 401
	Locked                       // 423: not yet runnable
)

// An Error is a refusal. Message is for people and goes into the answer's
// "message"; it never quotes a build's env.
type Error struct {
	Kind    Kind
	Message string
	Fields  []FieldError // the "errors" of a validation answer
}

// Status is the HTTP status with which all APIs and the page answer the kind.
func (k Kind) Status() int {
	switch k {
	case NotFound:
		return 404
	case Invalid:
		return 422
	case BadRequest:
		return 400
	case Unauthorized:
		return 401
	case Locked:
		return 423
	}
	return 500
}

// A FieldError names one field of a request body that cannot be used.
type FieldError struct {
	Field string `json:"field"`
	Code  string `json:"code"`
}

func (e *Error) Error() string { return e.Message }

func refuse(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}
