package page

import "net/http"

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
