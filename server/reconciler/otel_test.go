//go:build otel

package reconciler

import (
	"testing"

	"go.opentelemetry.io/otel"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/gpu-mode/kbgen/server/servertest"
)

// The span of a run goes from its plan to its result, around those of its parts.
func TestARunIsTraced(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	otel.SetTracerProvider(sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)))
	s := servertest.SQLite(t)
	r := newRig(t, s, nil)
	id := r.submit("1")
	runs, err := s.PlannedRuns(t.Context(), id)
	if err != nil || len(runs) != 1 {
		t.Fatalf("planned are %v, %v", runs, err)
	}
	r.machines(1, nil)
	stop := r.run()
	r.await(Recorded)
	stop()
	found := map[string]sdk.ReadOnlySpan{}
	for _, span := range spans.Ended() {
		if found[span.Name()] != nil {
			t.Errorf("two spans %s", span.Name())
		}
		found[span.Name()] = span
	}
	run := found["run"]
	if run == nil || len(found) != 4 || !run.StartTime().Equal(runs[0].Created) {
		t.Fatalf("the spans are %v", found)
	}
	for _, name := range []string{"create", "collect", "record"} {
		part := found[name]
		if part == nil || part.Parent().SpanID() != run.SpanContext().SpanID() || part.EndTime().After(run.EndTime()) || len(part.Attributes()) != 2 || part.Attributes()[1].Value.AsString() != runs[0].RunID {
			t.Errorf("%s: %v, want it below %v", name, part, run)
		}
	}
}
