package page

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/schema/text"
)

// perPage is how many builds one page of the list shows.
const perPage = 50

// indexPage is the list of builds, of all pipelines or of one.
type indexPage struct {
	Organization string
	Pipeline     string // empty: all
	Builds       []buildRow
	Total        int
	Page, Pages  int
	Newer, Older string // paths of the neighbouring pages, empty: none
	Agents       []agentRow
	Gone         []agentRow // agents that have left
	Queues       []queueRow
}

type buildRow struct {
	Number   int
	Path     string
	Pipeline link
	Message  string
	Branch   string
	State    state
	Duration span
	Created  moment
}

type agentRow struct {
	Name, Queue string
	State       state
	Note        string // why it is paused
	Host        string
	Version     string
	Job         link // what it has; empty: nothing
}

type queueRow struct {
	Key             string
	State           state
	Note            string
	Agents          int // connected
	Waiting, Active int // jobs: ready for an agent, held by one
}

func (p *pages) index(r *http.Request) (*frame, error) {
	slug := r.PathValue("pipeline")
	f := &frame{Page: "index", Title: "Builds", Events: "/events"}
	path := "/"
	if slug != "" {
		if err := p.checkOrganization(r); err != nil {
			return nil, err
		}
		if _, err := p.engine.Pipeline(slug); err != nil {
			return nil, err
		}
		path = p.pipelinePath(slug)
		f.Title = slug
		f.Crumbs = []link{{slug, ""}}
	}
	content := &indexPage{Organization: p.engine.Organization(), Pipeline: slug}
	all := p.engine.Builds(engine.BuildFilter{})
	builds := all
	if slug != "" {
		builds = slices.DeleteFunc(slices.Clone(all), func(b engine.Build) bool { return b.Pipeline != slug })
	}
	shown, err := content.turnTo(r.URL.Query(), path, builds)
	if err != nil {
		return nil, err
	}
	for i := range shown {
		content.Builds = append(content.Builds, p.buildRow(&shown[i]))
	}
	f.Refresh = slices.ContainsFunc(all, func(b engine.Build) bool { return !b.State.Terminal() })
	agents := p.engine.Agents()
	content.Agents, content.Gone = p.agentRows(agents)
	content.Queues = queueRows(p.engine.Queues(), agents, all)
	f.Content = content
	return f, nil
}

// turnTo notes which page of the list is shown, and returns its builds.
func (c *indexPage) turnTo(query url.Values, path string, builds []engine.Build) ([]engine.Build, error) {
	c.Total, c.Page = len(builds), 1
	c.Pages = max(1, (len(builds)+perPage-1)/perPage)
	if asked := query.Get("page"); asked != "" {
		page, err := strconv.Atoi(asked)
		if err != nil || page < 1 || page > c.Pages {
			return nil, notFound("The list of builds has %d pages, %q is none of them.", c.Pages, text.Line(asked, 20))
		}
		c.Page = page
	}
	if c.Page > 1 {
		c.Newer = fmt.Sprintf("%s?page=%d", path, c.Page-1)
	}
	if c.Page < c.Pages {
		c.Older = fmt.Sprintf("%s?page=%d", path, c.Page+1)
	}
	from := (c.Page - 1) * perPage
	return builds[from:min(from+perPage, len(builds))], nil
}

func (p *pages) buildRow(b *engine.Build) buildRow {
	return buildRow{
		Number:   b.Number,
		Path:     p.buildPath(b.Pipeline, b.Number),
		Pipeline: link{b.Pipeline, p.pipelinePath(b.Pipeline)},
		Message:  cmp.Or(firstLine(b.Message, 200), "no message"),
		Branch:   text.Line(b.Branch, 100),
		State:    buildState(b.State),
		Duration: between(b.StartedAt, b.FinishedAt, p.engine.Now()),
		Created:  p.moment(b.CreatedAt),
	}
}

// agentRows separates the agents that are connected or may be from those that
// have left.
func (p *pages) agentRows(agents []engine.Agent) (here, gone []agentRow) {
	for i := range agents {
		a := &agents[i]
		row := agentRow{
			Name: text.Line(a.Name, 100), Queue: text.Line(a.Queue, 100), State: agentState(a),
			Note: text.Line(a.PausedNote, 200), Host: text.Line(a.Hostname, 100), Version: text.Line(a.Version, 40),
		}
		if j, err := p.engine.Job(a.JobID); err == nil {
			row.Job = link{fmt.Sprintf("%s #%d", j.Pipeline, j.Number), p.jobPath(&j)}
		}
		switch a.State {
		case engine.AgentLost, engine.AgentDisconnected, engine.AgentStopped:
			gone = append(gone, row)
		default:
			here = append(here, row)
		}
	}
	return here, gone
}

func queueRows(queues []engine.Queue, agents []engine.Agent, builds []engine.Build) []queueRow {
	rows := make([]queueRow, len(queues))
	at := map[string]*queueRow{}
	for i, q := range queues {
		rows[i] = queueRow{Key: text.Line(q.Key, 100), State: newState("open", "good", "dot"), Note: text.Line(q.PausedNote, 200)}
		if q.Paused {
			rows[i].State = newState("paused", "warn", "dash")
		}
		at[q.Key] = &rows[i]
	}
	for _, a := range agents {
		if row := at[a.Queue]; row != nil && a.State == engine.AgentConnected {
			row.Agents++
		}
	}
	for _, b := range builds {
		if b.State.Terminal() {
			continue
		}
		for _, j := range b.Jobs {
			row := at[j.Queue]
			switch {
			case row == nil:
			case j.State.Held():
				row.Active++
			case j.State == engine.JobScheduled || j.State == engine.JobLimited:
				row.Waiting++
			}
		}
	}
	return rows
}
