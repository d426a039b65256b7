package reconciler

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/server/servertest"
	"github.com/gpu-mode/kbgen/store"
)

// A line of 5,000 runs of 500 users.
func BenchmarkLine(b *testing.B) {
	s := servertest.SQLite(b)
	servertest.Save(b, s, servertest.Board("sort"))
	ctx := context.Background()
	var last int64
	for i := range 5_000 {
		user := fmt.Sprint(1 + i%500)
		a, err := s.Accept(ctx, store.Submission{Board: "sort", GPU: "H100", Mode: schema.ModeTest, UserID: user, UserName: user, FileName: "a.py", Code: []byte("x"), Time: time.Now()})
		if err != nil {
			b.Fatal(err)
		}
		last = a.ID
	}
	client, err := launcher.New(launcher.Options{BaseURL: "http://127.0.0.1:1/", Token: "t", Org: "o", Pipeline: "p"})
	if err != nil {
		b.Fatal(err)
	}
	r := New(Options{Store: s, Launcher: client, Fleet: pipelines.Table{{Name: "H100", Queue: "h100"}}})
	r.machines.asked = time.Now().Add(time.Hour) // nobody is asked
	b.Run("Line", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Line(ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Claim", func(b *testing.B) {
		for b.Loop() {
			claimed, err := s.Claim(ctx, "b", 1, map[string]int{"H100": 1 << 30}, 0)
			if err != nil || len(claimed) != 1 {
				b.Fatal(claimed, err)
			}
		}
	})
	b.Run("Wait", func(b *testing.B) {
		b.ReportAllocs()
		r.machines.known, r.machines.byQueue = true, map[string]launcher.Serving{"h100": {Agents: 4}}
		if _, _, err := r.get(ctx); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			r.line.read = time.Now() // what reading costs is Line's
			if w, found, err := r.Wait(ctx, last); err != nil || !found || w.Place == 0 {
				b.Fatal(w, found, err)
			}
		}
	})
}
