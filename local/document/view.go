// Package document shows the stand-in's builds, jobs, agents and what belongs
// to them as JSON, in the form that Buildkite's REST API v2 and its webhooks
// share. It decides nothing and serves nothing.
//
// Source: Buildkite's REST API reference (buildkite/docs, pages/apis/rest_api)
// and what buildkite/go-buildkite v3.13.0 decodes.
package document

import (
	"encoding/base64"
	"fmt"
	"time"

	"github.com/gpu-mode/kbgen/local/engine"
)

// A View turns the engine's values into resources.
type View struct {
	// OldTimes writes times as "2006-01-02 15:04:05 UTC", as many webhook
	// payloads do.
	OldTimes bool

	engine *engine.Engine
	base   string
}

// NewView makes a view whose URLs begin with base, an origin without a slash at
// its end.
func NewView(e *engine.Engine, base string) *View { return &View{engine: e, base: base} }

// A Timestamp is written with milliseconds in UTC, and as null when it is not
// set.
type Timestamp struct {
	time time.Time
	old  bool
}

// MarshalJSON writes the time.
func (t Timestamp) MarshalJSON() ([]byte, error) {
	switch {
	case t.time.IsZero():
		return []byte("null"), nil
	case t.old:
		return []byte(t.time.UTC().Format(`"2006-01-02 15:04:05 UTC"`)), nil
	}
	return []byte(t.time.UTC().Format(`"2006-01-02T15:04:05.000Z"`)), nil
}

// Time is t as the view writes times.
func (v *View) Time(t time.Time) Timestamp { return Timestamp{time: t, old: v.OldTimes} }

// graphQLID is the id of the same thing in the service's other API.
func graphQLID(kind, id string) string {
	return base64.StdEncoding.EncodeToString([]byte(kind + "---" + id))
}

// orNull is nil for "".
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (v *View) orgURL() string { return v.base + "/v2/organizations/" + v.engine.Organization() }

func (v *View) pipelineURL(slug string) string { return v.orgURL() + "/pipelines/" + slug }

func (v *View) buildURL(slug string, number int) string {
	return fmt.Sprintf("%s/builds/%d", v.pipelineURL(slug), number)
}

// buildPage is the page of a build for people.
func (v *View) buildPage(slug string, number int) string {
	return fmt.Sprintf("%s/%s/%s/builds/%d", v.base, v.engine.Organization(), slug, number)
}

// JobURL is where the API serves a job.
func (v *View) JobURL(j engine.Job) string {
	return v.buildURL(j.Pipeline, j.Number) + "/jobs/" + j.ID
}

func (v *View) clusterURL() string { return v.orgURL() + "/clusters/" + engine.ClusterID }

func (v *View) clusterPage() string {
	return v.base + "/organizations/" + v.engine.Organization() + "/clusters/" + engine.ClusterID
}

// QueueID is the id of the queue with a key, "" when there is none.
func (v *View) QueueID(key string) string {
	for _, q := range v.engine.Queues() {
		if q.Key == key {
			return q.ID
		}
	}
	return ""
}

// A Person is a creator, an author or a webhook's sender.
type Person struct {
	ID        string     `json:"id,omitempty"`
	GraphQLID string     `json:"graphql_id,omitempty"`
	Username  string     `json:"username,omitempty"`
	Name      string     `json:"name"`
	Email     string     `json:"email"`
	AvatarURL *string    `json:"avatar_url"`
	CreatedAt *Timestamp `json:"created_at,omitempty"`
}

// Person shows a person, nil when there is none.
func (v *View) Person(p engine.Person) *Person {
	if p == (engine.Person{}) {
		return nil
	}
	out := &Person{ID: p.ID, Username: p.Username, Name: p.Name, Email: p.Email}
	if p.ID != "" {
		out.GraphQLID = graphQLID("User", p.ID)
	}
	return out
}
