//go:build otel

package trace

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// On reports whether the program is built with traces.
const On = true

// Setup has spans sent to a receiver of OTLP over HTTP, "http://127.0.0.1:4318"; ""
// has none sent. stop sends what is left.
func Setup(ctx context.Context, endpoint, version string) (stop func(context.Context) error, err error) {
	if endpoint == "" {
		return func(context.Context) error { return nil }, nil
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(strings.TrimRight(endpoint, "/")+"/v1/traces"))
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(resource.NewSchemaless(
		attribute.String("service.name", "kbserve"), attribute.String("service.version", version))))
	otel.SetTracerProvider(provider)
	return provider.Shutdown, nil
}

func tracer() trace.Tracer { return otel.Tracer("github.com/gpu-mode/kbgen/server/trace") }

func values(attrs []Attr) (all []attribute.KeyValue) {
	for _, a := range attrs {
		all = append(all, attribute.String(a.Key, a.Value))
	}
	return all
}

// StartAt is [Start] for what began earlier.
func StartAt(ctx context.Context, at time.Time, name string, attrs ...Attr) (inside context.Context, end func(error, ...Attr)) {
	inside, span := tracer().Start(ctx, name, trace.WithTimestamp(at), trace.WithAttributes(values(attrs)...))
	return inside, func(err error, attrs ...Attr) {
		span.SetAttributes(values(attrs)...)
		if err != nil {
			span.SetStatus(codes.Error, "")
			span.SetAttributes(attribute.String("error.type", kind(err)))
		}
		span.End()
	}
}

// kind is the type of the cause of an error, without its words, which may hold
// anything.
func kind(err error) string {
	for cause := err; cause != nil; cause = errors.Unwrap(cause) {
		err = cause
	}
	return fmt.Sprintf("%T", err)
}

// Request begins the span of an HTTP request, below the one that its traceparent
// names.
func Request(ctx context.Context, header http.Header) (inside context.Context, end func(method, route string, status int)) {
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(header))
	inside, span := tracer().Start(ctx, "request", trace.WithSpanKind(trace.SpanKindServer))
	return inside, func(method, route string, status int) {
		span.SetAttributes(attribute.String("http.request.method", method), attribute.Int("http.response.status_code", status))
		if route != "" {
			span.SetName(route)
			span.SetAttributes(attribute.String("http.route", route))
		}
		if status/100 == 5 {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}
