package page

import (
	"net/http"

	"github.com/gpu-mode/kbgen/local/engine"
)

// What the buttons do. Each handler returns the path of the page to show next.

func (p *pages) cancelBuild(r *http.Request) (string, error) {
	b, err := p.findBuild(r)
	if err != nil {
		return "", err
	}
	_, err = p.engine.CancelBuild(b.Pipeline, b.Number)
	return p.buildPath(b.Pipeline, b.Number), err
}

func (p *pages) rebuild(r *http.Request) (string, error) {
	b, err := p.findBuild(r)
	if err != nil {
		return "", err
	}
	again, err := p.engine.Rebuild(b.Pipeline, b.Number, b.Creator)
	return p.buildPath(b.Pipeline, again.Number), err
}

func (p *pages) retryFailed(r *http.Request) (string, error) {
	b, err := p.findBuild(r)
	if err != nil {
		return "", err
	}
	_, _, err = p.engine.RetryFailedJobs(b.Pipeline, b.Number, nil)
	return p.buildPath(b.Pipeline, b.Number), err
}

func (p *pages) retryJob(r *http.Request) (string, error) {
	j, _, err := p.findJob(r)
	if err != nil {
		return "", err
	}
	next, err := p.engine.RetryJob(j.ID)
	return p.jobPath(&next), err
}

// maxForm bounds the answers to a block step, bytes.
const maxForm = 1 << 20

func (p *pages) unblockJob(r *http.Request) (string, error) {
	b, err := p.findBuild(r)
	if err != nil {
		return "", err
	}
	r.Body = http.MaxBytesReader(nil, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return "", &refusal{http.StatusBadRequest, "The answers cannot be read."}
	}
	for i := range b.Jobs {
		j := &b.Jobs[i]
		if j.ID != r.PathValue("job") || j.Step == nil {
			continue
		}
		answers := map[string][]string{}
		for _, f := range j.Step.Fields {
			answers[f.Key] = r.PostForm["field."+f.Key]
		}
		_, err := p.engine.Unblock(j.ID, answers, engine.Person{Name: "kblocal page"})
		return p.buildPath(b.Pipeline, b.Number), err
	}
	return "", notFound("Build %d has no such job.", b.Number)
}
