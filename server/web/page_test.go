package web

import (
	"strings"
	"testing"
)

func TestStart(t *testing.T) {
	w := newWorld(t)
	page := w.get("", "/")
	for _, want := range []string{"matmul", "sort-v2", "closes in 9 days", "Nobody yet", "B200"} {
		if !strings.Contains(page, want) {
			t.Errorf("the start page lacks %q", want)
		}
	}
	if strings.Contains(page, "secret-lab") {
		t.Error("the start page tells everybody of a closed board")
	}
	if !strings.Contains(w.get(alice, "/"), "secret-lab") {
		t.Error("the start page does not show a closed board to somebody with an invite")
	}
	if soon, late := strings.Index(page, "sort-v2"), strings.Index(page, ">matmul<"); soon > late {
		t.Error("the board that closes first does not come first")
	}
	if strings.Index(page, ">conv2d<") < strings.Index(page, ">matmul<") {
		t.Error("a board that has closed comes before one that is open")
	}
}
