package page

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/local/steps"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/verdict/view"
)

// What the buttons do. Each handler returns the path of the page to show next.

// onBuild acts on the build that the request's path names.
func (p *pages) onBuild(act func(*http.Request, *engine.Build) (string, error)) http.HandlerFunc {
	return p.act(func(r *http.Request) (string, error) {
		b, err := p.findBuild(r)
		if err != nil {
			return "", err
		}
		return act(r, &b)
	})
}

func (p *pages) cancelBuild(_ *http.Request, b *engine.Build) (string, error) {
	_, err := p.engine.CancelBuild(b.ID)
	return p.buildPath(b.Pipeline, b.Number), err
}

func (p *pages) rebuild(_ *http.Request, b *engine.Build) (string, error) {
	again, err := p.engine.Rebuild(b.ID, b.Creator)
	return p.buildPath(b.Pipeline, again.Number), err
}

func (p *pages) retryFailed(_ *http.Request, b *engine.Build) (string, error) {
	_, _, err := p.engine.RetryFailedJobs(b.ID, nil)
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

func (p *pages) unblockJob(r *http.Request, b *engine.Build) (string, error) {
	r.Body = http.MaxBytesReader(nil, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return "", engine.Refuse(engine.BadRequest, "The answers cannot be read.")
	}
	j := jobOf(b, r.PathValue("job"))
	if j == nil {
		return "", engine.Refuse(engine.NotFound, "Build %d has no such job.", b.Number)
	}
	answers := map[string][]string{}
	for _, f := range j.Step.Fields {
		answers[f.Key] = r.PostForm["field."+f.Key]
	}
	_, err := p.engine.Unblock(j.ID, answers, engine.Person{Name: "kblocal page"})
	return p.buildPath(b.Pipeline, b.Number), err
}

// manual is a block or input step as the page shows it.
type manual struct {
	Prompt string
	Submit string // of the button
	Path   string // where the answers go; empty: there is nothing to answer now
	Fields []field
	By     string // who answered
	At     view.Moment
}

// A field is one question. Radio, Check and Select say how it is put.
type field struct {
	ID, Key, Label, Hint string
	Required             bool
	Value                string
	Radio, Check, Select bool
	Options              []choice
}

type choice struct {
	Label, Value, Hint string
	Chosen             bool
}

// fewOptions is how many choices of one are buttons; more are a list.
const fewOptions = 6

func (p *pages) manual(j *engine.Job, acts bool) *manual {
	m := &manual{Submit: "Continue", By: text.Line(j.Unblocker.Name, 100), At: p.moment(j.UnblockedAt)}
	m.Prompt = withEmoji(text.Shorten(text.Lines(j.Step.Prompt), 1000))
	if j.Step.Submit != "" {
		m.Submit = withEmoji(text.Line(j.Step.Submit, 100))
	}
	if j.State != engine.JobBlocked || !acts {
		return m
	}
	m.Path = p.jobPath(j) + "/unblock"
	for i := range j.Step.Fields {
		m.Fields = append(m.Fields, fieldOf(j, &j.Step.Fields[i]))
	}
	return m
}

func fieldOf(j *engine.Job, f *steps.Field) field {
	out := field{
		ID: "f-" + j.ID + "-" + f.Key, Key: f.Key, Label: withEmoji(text.Line(f.Label, 200)), Hint: withEmoji(text.Line(f.Hint, 300)),
		Required: f.Required, Check: f.Multiple,
	}
	out.Label = cmp.Or(out.Label, f.Key)
	if f.Options == nil {
		if len(f.Default) > 0 {
			out.Value = f.Default[0]
		}
		return out
	}
	out.Radio = !f.Multiple && len(f.Options) <= fewOptions
	out.Select = !f.Multiple && !out.Radio
	for _, o := range f.Options {
		out.Options = append(out.Options, choice{
			Label: withEmoji(text.Line(o.Label, 200)), Value: o.Value, Hint: withEmoji(text.Line(o.Hint, 200)), Chosen: slices.Contains(f.Default, o.Value),
		})
	}
	return out
}
