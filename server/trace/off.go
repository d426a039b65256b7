//go:build !otel

package trace

import (
	"context"
	"net/http"
	"time"
)

// On reports whether the program is built with traces.
const On = false

// Setup does nothing.
func Setup(context.Context, string, string) (func(context.Context) error, error) {
	return func(context.Context) error { return nil }, nil
}

// StartAt does nothing.
func StartAt(ctx context.Context, _ time.Time, _ string, _ ...Attr) (context.Context, func(error, ...Attr)) {
	return ctx, func(error, ...Attr) {}
}

// Request does nothing.
func Request(ctx context.Context, _ http.Header) (context.Context, func(method, route string, status int)) {
	return ctx, func(string, string, int) {}
}
