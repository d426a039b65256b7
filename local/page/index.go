package page

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/local/engine"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/verdict/view"
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
	Path         string // of the list
	Query        string // words that the builds shown have
	State        string // the state they have; empty: any
	States       []string
	All          int // builds before the filter
	Agents       []agentRow
	Gone         []agentRow // agents that have left
	Queues       []queueRow
}

type buildRow struct {
	Number   int
	Path     string
	Pipeline link
	Title    string // what it is about, else its message
	Message  string // when it is not the title
	Branch   string
	State    view.State
	Subject  subject
	Duration span
	Created  view.Moment
}

type agentRow struct {
	Name, Queue string
	State       view.State
	Note        string // why it is paused
	Host        string
	Version     string
	Job         link // what it has; empty: nothing
}

type queueRow struct {
	Key             string
	State           view.State
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
	content.Path, content.All, content.States = path, len(builds), filterStates
	shown, err := content.turnTo(r.URL.Query(), path, p.filter(content, r.URL.Query(), builds))
	if err != nil {
		return nil, err
	}
	for i := range shown {
		content.Builds = append(content.Builds, p.buildRow(&shown[i]))
	}
	f.Refresh = slices.ContainsFunc(all, func(b engine.Build) bool { return !b.Over() })
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
			return nil, refuse(http.StatusNotFound, "The list of builds has %d pages, %q is none of them.", c.Pages, text.Line(asked, 20))
		}
		c.Page = page
	}
	to := func(page int) string {
		q := url.Values{"page": {strconv.Itoa(page)}}
		for name, value := range map[string]string{"q": c.Query, "state": c.State} {
			if value != "" {
				q.Set(name, value)
			}
		}
		return path + "?" + q.Encode()
	}
	if c.Page > 1 {
		c.Newer = to(c.Page - 1)
	}
	if c.Page < c.Pages {
		c.Older = to(c.Page + 1)
	}
	from := (c.Page - 1) * perPage
	return builds[from:min(from+perPage, len(builds))], nil
}

// filterStates are the words that the list can be narrowed to: of builds, and of
// verdicts.
var filterStates = []string{"running", "blocked", "passed", "failed", "canceled", "correct", "wrong"}

// filter returns the builds that have every word of the query and the state asked
// for.
func (p *pages) filter(c *indexPage, query url.Values, builds []engine.Build) []engine.Build {
	c.Query, c.State = text.Line(query.Get("q"), 200), query.Get("state")
	if !slices.Contains(filterStates, c.State) {
		c.State = ""
	}
	words := strings.Fields(strings.ToLower(c.Query))
	if len(words) == 0 && c.State == "" {
		return builds // without a look into their results
	}
	var out []engine.Build
	for i := range builds {
		b := &builds[i]
		row := p.buildRow(b)
		if row.has(words, b) && row.is(c.State, b) {
			out = append(out, *b)
		}
	}
	return out
}

// has reports whether every word is in what the row shows, or in the meta-data.
func (r *buildRow) has(words []string, b *engine.Build) bool {
	if len(words) == 0 {
		return true
	}
	all := []string{fmt.Sprintf("#%d", b.Number), b.Pipeline, b.Message, b.Branch, b.Commit, string(b.State), r.Title, r.Subject.Verdict.Text, b.Creator.Name}
	for _, value := range b.MetaData {
		all = append(all, text.Shorten(value, 200))
	}
	hay := strings.ToLower(strings.Join(all, "\n"))
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(hay, w) })
}

// is reports whether the row is in a state of filterStates.
func (r *buildRow) is(state string, b *engine.Build) bool {
	switch state {
	case "":
		return true
	case "running":
		return !b.Over() && !b.Blocked
	case "blocked":
		return b.Blocked
	case "correct":
		return r.Subject.Verdict.Tone == "good"
	case "wrong":
		return r.Subject.Verdict.Text != "" && r.Subject.Verdict.Tone != "good"
	}
	return string(b.State) == state && !b.Blocked
}

func (p *pages) buildRow(b *engine.Build) buildRow {
	about := p.subjectOf(b)
	row := buildRow{
		Number:   b.Number,
		Path:     p.buildPath(b.Pipeline, b.Number),
		Pipeline: link{b.Pipeline, p.pipelinePath(b.Pipeline)},
		Title:    about.Title,
		Message:  withEmoji(firstLine(b.Message, 200)),
		Branch:   text.Line(b.Branch, 100),
		State:    buildState(b, about),
		Subject:  about,
		Duration: between(b.StartedAt, b.FinishedAt, p.engine.Now()),
		Created:  p.moment(b.CreatedAt),
	}
	if row.Title == "" {
		row.Title, row.Message = cmp.Or(row.Message, "no message"), ""
	}
	return row
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
		if b.Over() {
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
