package agentapi

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/local/engine"
)

// An acceptReply is what an agent needs to run a job. All env values are
// strings: one of another type would make the whole reply undecodable.
type acceptReply struct {
	ID             string            `json:"id"`
	State          string            `json:"state"`
	Env            map[string]string `json:"env"`
	Step           json.RawMessage   `json:"step,omitempty"`
	Token          string            `json:"token"`
	ChunksMaxSize  int               `json:"chunks_max_size_bytes"`
	ChunksInterval int               `json:"chunks_interval_seconds"`
	LogMaxSize     int64             `json:"log_max_size_bytes"`
	RunnableAt     time.Time         `json:"runnable_at,omitzero"`
	Priority       int               `json:"priority"`
	Matrix         map[string]string `json:"matrix_permutation,omitempty"`
}

func replyOf(job engine.Accepted, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return acceptReply{
		ID: job.Job.ID, State: string(job.Job.State), Env: job.Env, Step: job.Job.StepJSON, Token: job.Token,
		ChunksMaxSize: engine.MaxChunk, ChunksInterval: 1, LogMaxSize: engine.MaxLog,
		RunnableAt: job.Job.RunnableAt, Priority: job.Job.Priority,
		Matrix: job.Job.Matrix,
	}, nil
}

func (a *API) accept(c *call) (any, error) {
	return replyOf(a.engine.Accept(c.agent.ID, c.PathValue("id")))
}

func (a *API) acquire(c *call) (any, error) {
	return replyOf(a.engine.Acquire(c.agent.ID, c.PathValue("id")))
}

func (a *API) start(c *call, body struct {
	StartedAt string `json:"started_at"`
}) (any, error) {
	if err := checkTime("started_at", body.StartedAt); err != nil {
		return nil, err
	}
	return nil, a.engine.Start(c.job.ID)
}

// jobState is read about once a second while a job runs; "canceling" and
// "timing_out" make the agent stop it.
func (a *API) jobState(c *call) (any, error) {
	return map[string]string{"state": string(c.job.State)}, nil
}

// updateJob changes the one attribute there is, timeout_in_minutes.
func (a *API) updateJob(c *call, attributes map[string]string) (any, error) {
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		if name != "timeout_in_minutes" {
			return nil, unusable("job attribute %q cannot be updated, want timeout_in_minutes", name)
		}
		minutes, err := strconv.Atoi(strings.TrimSpace(attributes[name]))
		if err != nil {
			return nil, unusable("timeout_in_minutes: got %q, want a whole number", attributes[name])
		}
		if err := a.engine.UpdateJob(c.job.ID, minutes); err != nil {
			return nil, err
		}
	}
	if len(attributes) == 0 {
		return nil, unusable("got no attribute to update, want timeout_in_minutes")
	}
	return jobRef{c.job.ID}, nil
}

func (a *API) finish(c *call, body struct {
	ExitStatus   string `json:"exit_status"` // a string, "-1" too
	Signal       string `json:"signal"`
	SignalReason string `json:"signal_reason"`
	FinishedAt   string `json:"finished_at"`
	ChunksFailed int    `json:"chunks_failed_count"`
	Leave        bool   `json:"ignore_agent_in_dispatches"`
}) (any, error) {
	status, err := strconv.Atoi(body.ExitStatus)
	if err != nil {
		return nil, unusable("exit_status: got %q, want a whole number as a string", body.ExitStatus)
	}
	if err := checkTime("finished_at", body.FinishedAt); err != nil {
		return nil, err
	}
	return nil, a.engine.FinishJob(c.job.ID, engine.Finish{
		ExitStatus: status, Signal: body.Signal, SignalReason: body.SignalReason,
		ChunksFailed: body.ChunksFailed, LeaveAgent: body.Leave,
	})
}

// promiseFailure accepts a job's announcement that it will fail, and does nothing
// before the job ends.
func (a *API) promiseFailure(c *call, body struct {
	ExitStatus int    `json:"exit_status"`
	Reason     string `json:"reason"`
}) (any, error) {
	if body.ExitStatus < 1 {
		return nil, unusable("exit_status: got %d, want at least 1", body.ExitStatus)
	}
	return noContent{}, nil
}
