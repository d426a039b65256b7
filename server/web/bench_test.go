package web

import (
	"fmt"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/store"
)

// crowded is a board that so many users rank on.
func crowded(t testing.TB, users int) *rig {
	t.Helper()
	w := newRig(t)
	w.save(board("crowd", "H100"))
	for i := range users {
		w.accept(store.Submission{Board: "crowd", GPU: "H100", UserID: fmt.Sprint(1000 + i), UserName: fmt.Sprintf("user %d", i), Time: time.Now().Add(-time.Duration(i) * time.Minute)})
	}
	w.evaluate(func(p store.PlannedRun) *schema.Result {
		r := result("H100", 5000+float64(p.Submission*7919%100_003))
		r.Measurements = nil
		return r
	})
	return w
}

func TestPagesOfARanking(t *testing.T) {
	w := crowded(t, 150)
	first := w.get("", "/b/crowd/H100")
	has(t, "the first page", first, "page 1 of 2", "?page=2#ranking", ">100<")
	lacks(t, "the first page", first, ">101<", "Faster")
	second := w.get("", "/b/crowd/H100?page=2")
	has(t, "the second page", second, ">101<", ">150<", `href="/b/crowd/H100#ranking"`)
	lacks(t, "the second page", second, "Slower")

	entries, _, err := w.store.Page(t.Context(), "crowd", "H100", 1, 119)
	if err != nil {
		t.Fatal(err)
	}
	w.login(entries[0].UserID, "me")
	has(t, "the first page for somebody who is on the second", w.get(entries[0].UserID, "/b/crowd/H100"), `you: <a href="/b/crowd/H100?page=2#ranking">120</a> of 150 users`)
	has(t, "the second page for them", w.get(entries[0].UserID, "/b/crowd/H100?page=2"), "you: 120 of", `class="tag">you<`)
}

func BenchmarkStart(b *testing.B) {
	w := newRig(b)
	var boards []store.Board
	for i := range 40 {
		boards = append(boards, board(fmt.Sprintf("board-%d", i), "B200", "H100", "MI300"))
	}
	w.save(boards...)
	for b.Loop() {
		w.get("", "/")
	}
}

func BenchmarkBoard(b *testing.B) {
	w := crowded(b, 2_000)
	for _, path := range []string{"/b/crowd/H100", "/b/crowd/H100?page=20", "/"} {
		b.Run(path, func(b *testing.B) {
			for b.Loop() {
				w.get("", path)
			}
		})
	}
}
