package restapi_test

import (
	"fmt"
	"testing"

	"github.com/buildkite/go-buildkite/v3/buildkite"

	"github.com/gpu-mode/kbgen/local/engine"
)

func TestListAgents(t *testing.T) {
	w := newRig(t, oneStep, nil)
	busy := w.agent("busy")
	w.build(engine.NewBuild{})
	job := w.take(busy)
	for i := range 38 {
		w.agent(fmt.Sprint("idle-", i))
	}
	gone := w.agent("gone")
	w.ok(w.engine.Disconnect(gone.ID))
	_, _, err := w.engine.Register(engine.AgentInfo{Name: "never"})
	w.ok(err)
	stopping := w.agent("stopping")
	w.ok(w.engine.StopAgent(stopping.ID, false))

	all := map[string]buildkite.Agent{}
	opt := &buildkite.AgentListOptions{}
	for {
		agents, resp, err := w.client.Agents.List("gpu-mode", opt)
		w.ok(err)
		for _, a := range agents {
			all[*a.Name] = a
		}
		if resp.NextPage == 0 {
			break
		}
		opt.Page = resp.NextPage
	}
	if len(all) != 40 || all["gone"].ID != nil || all["never"].ID != nil {
		t.Errorf("the pages list %d agents, want the 40 connected and stopping ones", len(all))
	}
	if a := all["busy"]; a.Job == nil || *a.Job.ID != job || a.Metadata[0] != "queue=cpu" || *a.Priority != 1 || *a.ConnectedState != "connected" {
		t.Errorf("the busy agent = %+v, want its job and tags", a)
	}
	if a := all["stopping"]; a.Job != nil || *a.ConnectedState != "stopping" {
		t.Errorf("the stopping agent = %+v", a)
	}
	queues := map[string]string{}
	for _, q := range w.engine.Queues() {
		queues[q.Key] = q.ID
	}
	for query, want := range map[string]int{
		"name=busy": 1, "name=bus": 0, "hostname=idle-3.host": 1, "version=3.138.0&per_page=100": 40, "version=3": 0,
		"cluster_queue_id=" + queues["cpu"] + "&per_page=100": 40, "cluster_queue_id=" + queues["default"]: 0,
	} {
		var got []buildkite.Agent
		w.want(200, "GET", orgURL+"/agents?"+query, "").decode(t, &got)
		if len(got) != want {
			t.Errorf("agents?%s = %d, want %d", query, len(got), want)
		}
	}
	a, _, err := w.client.Agents.Get("gpu-mode", gone.ID)
	if err != nil || *a.ConnectedState != "disconnected" {
		t.Errorf("Get of a disconnected agent = %v, %v, want it", a, err)
	}
}

func TestStopAndPauseAgent(t *testing.T) {
	w := newRig(t, oneStep, nil)
	w.build(engine.NewBuild{})
	a := w.agent("a")
	job := w.take(a)
	path := orgURL + "/agents/" + a.ID
	w.want(422, "PUT", path+"/resume", "")
	w.want(204, "PUT", path+"/pause", `{"note":"driver"}`)
	w.want(422, "PUT", path+"/pause", ``)
	w.want(422, "PUT", path+"/pause", `{"timeout_in_minutes":5}`)
	var shown struct {
		Paused bool
		Note   string `json:"paused_note"`
	}
	w.want(200, "GET", path, "").decode(t, &shown)
	if !shown.Paused || shown.Note != "driver" {
		t.Errorf("a paused agent = %+v", shown)
	}
	w.want(204, "PUT", path+"/resume", "")
	_, err := w.client.Agents.Stop("gpu-mode", a.ID, false)
	w.ok(err)
	if j, err := w.engine.Job(job); err != nil || j.State != engine.JobRunning {
		t.Errorf("stop without force left the job %s, want running", j.State)
	}
	w.want(204, "PUT", path+"/stop", "")
	if j, err := w.engine.Job(job); err != nil || j.State != engine.JobCanceling {
		t.Errorf("stop, forced by default, left the job %s, want canceling", j.State)
	}
	w.ok(w.engine.Disconnect(a.ID))
	w.want(400, "PUT", path+"/stop", "")
	w.want(422, "PUT", path+"/pause", "")
	w.want(404, "PUT", orgURL+"/agents/none/pause", "")
}

func TestClustersAndQueues(t *testing.T) {
	w := newRig(t, oneStep, nil)
	clusters, _, err := w.client.Clusters.List("gpu-mode", nil)
	if err != nil || len(clusters) != 1 || *clusters[0].ID != engine.ClusterID || clusters[0].CreatedAt == nil {
		t.Fatalf("Clusters.List = %v, %v", clusters, err)
	}
	_, _, err = w.client.Clusters.Get("gpu-mode", engine.ClusterID)
	w.ok(err)
	key, note := "b200", "firmware"
	q, resp, err := w.client.ClusterQueues.Create("gpu-mode", engine.ClusterID, &buildkite.ClusterQueueCreate{Key: &key})
	if err != nil || resp.StatusCode != 201 || *q.Key != key || *q.DispatchPaused || q.DispatchPausedAt != nil {
		t.Fatalf("ClusterQueues.Create = %v, %v", q, err)
	}
	if *clusters[0].DefaultQueueID == *q.ID {
		t.Error("the new queue is the default one")
	}
	path := orgURL + "/clusters/" + engine.ClusterID + "/queues"
	for _, body := range []string{`{"key":"b200"}`, `{"key":"a b"}`, `{}`, `{"key":"x","nodes":3}`} {
		w.want(422, "POST", path, body)
	}
	_, err = w.client.ClusterQueues.Pause("gpu-mode", engine.ClusterID, *q.ID, &buildkite.ClusterQueuePause{Note: &note})
	w.ok(err)
	q, _, err = w.client.ClusterQueues.Get("gpu-mode", engine.ClusterID, *q.ID)
	if err != nil || !*q.DispatchPaused || *q.DispatchPausedNote != note || q.DispatchPausedAt == nil {
		t.Errorf("a paused queue = %+v, %v", q, err)
	}
	w.want(422, "POST", path+"/"+*q.ID+"/pause_dispatch", `{}`)
	_, err = w.client.ClusterQueues.Resume("gpu-mode", engine.ClusterID, *q.ID)
	w.ok(err)
	w.want(422, "POST", path+"/"+*q.ID+"/resume_dispatch", ``)
	var paused struct {
		Note string `json:"dispatch_paused_note"`
	}
	w.want(200, "POST", path+"/"+*q.ID+"/pause_dispatch", `{"note":"other key"}`).decode(t, &paused)
	if paused.Note != "other key" {
		t.Errorf("pause with note = %q", paused.Note)
	}
	queues, _, err := w.client.ClusterQueues.List("gpu-mode", engine.ClusterID, nil)
	if err != nil || len(queues) != 2 {
		t.Errorf("ClusterQueues.List = %d, %v, want default and b200", len(queues), err)
	}
	w.want(404, "GET", path+"/none", "")
	w.want(404, "GET", orgURL+"/clusters/none/queues", "")
	for _, method := range []string{"PUT", "PATCH", "DELETE"} {
		w.want(422, method, path+"/"+*q.ID, "")
	}
}
