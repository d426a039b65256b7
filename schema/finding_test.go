package schema

import (
	"encoding/json"
	"testing"
)

func TestFindingTexts(t *testing.T) {
	for _, tt := range []struct {
		finding Finding
		want    string
	}{
		{Finding{Path: "payload: lang", Got: `"go"`, Want: "one of them"}, `payload: lang: got "go", want one of them`},
		{Finding{File: "n.yml", Line: 9, Column: 3, Severity: SeverityNote, Path: "nodes[0]", Got: "1", Want: "2"}, "n.yml:9:3: note: nodes[0]: got 1, want 2"},
		{Finding{File: "n.yml", Line: 1, Column: 1, Severity: SeverityError, Got: "nothing", Want: "a file"}, "n.yml:1:1: error: got nothing, want a file"},
		{Finding{File: "task.yml", Line: 4, Text: "the task: unknown key"}, "task.yml:4: the task: unknown key"},
		{Finding{Line: 4, Column: 2, Severity: SeverityWarning, Rule: "KB102", Path: "steps[0]", Text: "odd"}, "line 4: steps[0]: odd [KB102]"},
		{Finding{Severity: SeverityError, Rule: "KB302", Text: "too many"}, "too many [KB302]"},
		{Finding{File: "-", Line: 1, Column: 1, Severity: SeverityError, Rule: "KB302", Text: "too many"}, "-:1:1: error: too many [KB302]"},
	} {
		if got := tt.finding.Error(); got != tt.want {
			t.Errorf("%+v: got %q, want %q", tt.finding, got, tt.want)
		}
	}
}

func TestFindingJSON(t *testing.T) {
	f := Finding{File: "n.yml", Line: 9, Column: 3, Severity: SeverityNote, Path: "nodes[0]", Got: "1", Want: "2"}
	const want = `{"file":"n.yml","line":9,"column":3,"severity":"note","path":"nodes[0]","got":"1","want":"2","text":"got 1, want 2"}`
	got, err := json.Marshal(f)
	if err != nil || string(got) != want {
		t.Errorf("Marshal: got %s, %v, want %s", got, err, want)
	}
	var back Finding
	f.Text = "got 1, want 2"
	if err := json.Unmarshal(got, &back); err != nil || back != f {
		t.Errorf("Unmarshal: got %+v, %v, want %+v", back, err, f)
	}
	if err := json.Unmarshal([]byte(`{"severity": "worse"}`), &back); err == nil {
		t.Error("Unmarshal of an unknown severity: got no error")
	}
}
