package launcher

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// lists answers GETs of lists by path, two items a page.
type lists struct {
	items    map[string][]string // path below the organization, its items as JSON
	requests []string
}

func (l *lists) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/v2/organizations/gpu-mode")
	l.requests = append(l.requests, r.Method+" "+path)
	items, ok := l.items[path]
	if !ok || r.Method != http.MethodGet || r.Header.Get("Authorization") != "Bearer "+testToken {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"message":"You do not have access to this resource"}`)
		return
	}
	page := 1
	fmt.Sscan(r.URL.Query().Get("page"), &page)
	const size = 2
	from := min((page-1)*size, len(items))
	to := min(from+size, len(items))
	if to < len(items) {
		w.Header().Set("Link", fmt.Sprintf(`<http://%s%s?page=%d>; rel="next"`, r.Host, r.URL.Path, page+1))
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, "[%s]", strings.Join(items[from:to], ","))
}

func newLists(t *testing.T, items map[string][]string) (*lists, *Client) {
	t.Helper()
	l := &lists{items: items}
	server := httptest.NewServer(l)
	t.Cleanup(server.Close)
	c, err := New(Options{BaseURL: server.URL, Token: testToken, Org: "gpu-mode", Pipeline: "kernelbot"})
	if err != nil {
		t.Fatal(err)
	}
	return l, c
}

func TestQueuesOfAllClusters(t *testing.T) {
	l, c := newLists(t, map[string][]string{
		"/clusters": {`{"id":"c1","name":"Default"}`, `{"id":"c2","name":"Lab"}`, `{"id":"c3","name":"Empty"}`},
		"/clusters/c1/queues": {
			`{"id":"q1","key":"h100","dispatch_paused":false,"dispatch_paused_note":null}`,
			`{"id":"q2","key":"b200","dispatch_paused":true,"dispatch_paused_note":"firmware"}`,
			`{"id":"q3","key":"cpu"}`,
		},
		"/clusters/c2/queues": {`{"id":"q4","key":"h100"}`},
		"/clusters/c3/queues": {},
	})
	got, err := c.Queues(context.Background())
	want := []Queue{
		{ID: "q1", Key: "h100", Cluster: "Default"},
		{ID: "q2", Key: "b200", Cluster: "Default", Paused: true, PausedNote: "firmware"},
		{ID: "q3", Key: "cpu", Cluster: "Default"},
		{ID: "q4", Key: "h100", Cluster: "Lab"},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("Queues() = %+v, %v, want %+v", got, err, want)
	}
	if len(l.requests) != 6 { // clusters in two pages, queues in two, one and one
		t.Errorf("Queues() sent %q, want 6 requests", l.requests)
	}
}

func TestAgentsOfAllPages(t *testing.T) {
	_, c := newLists(t, map[string][]string{"/agents": {
		`{"id":"a1","name":"n-0","connection_state":"connected","meta_data":["queue=h100","gpu-index=0"],"queue":"h100","cluster_queue_id":"q1","job":{"id":"j1"}}`,
		`{"id":"a2","name":"n-1","connection_state":"stopping","meta_data":["queue=h100"],"queue":"h100","cluster_queue_id":"q4","job":null}`,
		`{"id":"a3","name":"old","connection_state":"connected","meta_data":["queue=h100"],"cluster_queue_id":null,"job":null,"paused":true,"paused_note":"hot"}`,
	}})
	agents, err := c.Agents(context.Background())
	if err != nil || len(agents) != 3 {
		t.Fatalf("Agents() = %+v, %v, want 3", agents, err)
	}
	a := agents[0]
	if a.Name != "n-0" || a.State != "connected" || !a.Busy() || !slices.Equal(a.Tags, []string{"queue=h100", "gpu-index=0"}) {
		t.Errorf("the first agent = %+v", a)
	}
	if !agents[2].Paused || agents[2].PausedNote != "hot" || agents[2].Busy() {
		t.Errorf("the last agent = %+v, want it paused and idle", agents[2])
	}
	q := &Queue{ID: "q1", Key: "h100"}
	for i, want := range []bool{true, false, true} { // the second is on another cluster's h100
		if got := agents[i].On(q); got != want {
			t.Errorf("%s.On(%+v) = %v, want %v", agents[i].Name, q, got, want)
		}
	}
}

func TestQueuesWithoutTheScope(t *testing.T) {
	_, c := newLists(t, nil)
	for name, err := range map[string]error{
		"Queues": second(c.Queues(context.Background())),
		"Agents": second(c.Agents(context.Background())),
	} {
		if e := new(APIError); !errors.As(err, &e) || e.Status != http.StatusForbidden {
			t.Errorf("%s() = %v, want an APIError of 403", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestQueuesRefusesAClusterThatIsAPath(t *testing.T) {
	l, c := newLists(t, map[string][]string{"/clusters": {`{"id":"../agents","name":"x"}`}})
	if _, err := c.Queues(context.Background()); err == nil || len(l.requests) != 1 {
		t.Errorf("Queues() = %v after %q, want an error after one request", err, l.requests)
	}
}
