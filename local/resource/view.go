package resource

import (
	"encoding/base64"
	"fmt"
	"time"

	"github.com/gpu-mode/kbgen/local/engine"
)

// Shapes turns the engine's values into JSON shapes. It looks agents, queues
// and pipelines up once and keeps them, so make a new one for each answer. It
// is not safe for concurrent use.
type Shapes struct {
	// OldTimes writes times as "2006-01-02 15:04:05 UTC", as many webhook
	// payloads do.
	OldTimes bool

	engine    *engine.Engine
	base      string
	queues    map[string]string // key to id
	agents    map[string]engine.Agent
	pipelines map[string]*Pipeline
}

// NewShapes makes shapes whose URLs start with base, an origin without a
// slash at its end.
func NewShapes(e *engine.Engine, base string) *Shapes {
	return &Shapes{engine: e, base: base, agents: map[string]engine.Agent{}, pipelines: map[string]*Pipeline{}}
}

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

func (s *Shapes) at(t time.Time) Timestamp { return Timestamp{time: t, old: s.OldTimes} }

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

func (s *Shapes) orgURL() string { return s.base + "/v2/organizations/" + s.engine.Organization() }

func (s *Shapes) pipelineURL(slug string) string { return s.orgURL() + "/pipelines/" + slug }

func (s *Shapes) buildURL(slug string, number int) string {
	return fmt.Sprintf("%s/builds/%d", s.pipelineURL(slug), number)
}

// buildPage is the page of a build for people.
func (s *Shapes) buildPage(slug string, number int) string {
	return fmt.Sprintf("%s/%s/%s/builds/%d", s.base, s.engine.Organization(), slug, number)
}

func (s *Shapes) jobURL(j *engine.Job) string {
	return s.buildURL(j.Pipeline, j.Number) + "/jobs/" + j.ID
}

func (s *Shapes) clusterURL() string { return s.orgURL() + "/clusters/" + engine.ClusterID }

func (s *Shapes) clusterPage() string {
	return s.base + "/organizations/" + s.engine.Organization() + "/clusters/" + engine.ClusterID
}

// queueID is the id of the queue with a key, "" when there is none.
func (s *Shapes) queueID(key string) string {
	if id, ok := s.queues[key]; ok {
		return id
	}
	s.queues = map[string]string{}
	for _, q := range s.engine.Queues() {
		s.queues[q.Key] = q.ID
	}
	return s.queues[key]
}

// agentOf looks an agent up.
func (s *Shapes) agentOf(id string) (engine.Agent, bool) {
	a, ok := s.agents[id]
	if !ok {
		var err error
		if a, err = s.engine.Agent(id); err != nil {
			return engine.Agent{}, false
		}
		s.agents[id] = a
	}
	return a, true
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

// Person is null for nobody.
func (s *Shapes) Person(p engine.Person) *Person {
	if p == (engine.Person{}) {
		return nil
	}
	out := &Person{ID: p.ID, Username: p.Username, Name: p.Name, Email: p.Email}
	if p.ID != "" {
		out.GraphQLID = graphQLID("User", p.ID)
	}
	return out
}
