package proxy

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/docker"
	"github.com/gpu-mode/kbgen/schema/text"
)

// A route is an endpoint that the slot may ask for.
type route struct {
	method string
	path   *regexp.Regexp // its group, if any, names a container or an image
	query  []string       // parameters that are passed on; the rest is dropped
	serve  func(*Proxy, http.ResponseWriter, *call)
}

// A call is a request for a route.
type call struct {
	*http.Request
	version string // "/v1.45", or empty
	path    string // without the version
	name    string // what the route's group matched
	query   url.Values
}

var (
	version = regexp.MustCompile(`^/v1\.[0-9]{1,3}/`)
	named   = `([a-zA-Z0-9][a-zA-Z0-9_.-]{0,127})`
	ref     = `([a-zA-Z0-9][a-zA-Z0-9_./:@-]{0,255})`
)

var routes = []route{
	{"GET", regexp.MustCompile(`^/_ping$`), nil, (*Proxy).pass},
	{"HEAD", regexp.MustCompile(`^/_ping$`), nil, (*Proxy).pass},
	{"GET", regexp.MustCompile(`^/version$`), nil, (*Proxy).pass},
	{"GET", regexp.MustCompile(`^/info$`), nil, (*Proxy).info},
	{"GET", regexp.MustCompile(`^/networks$`), nil, (*Proxy).networks},
	{"GET", regexp.MustCompile(`^/images/` + ref + `/json$`), nil, (*Proxy).image},
	{"POST", regexp.MustCompile(`^` + Clean + `$`), nil, (*Proxy).clean},
	{"POST", regexp.MustCompile(`^` + Share + `$`), nil, (*Proxy).share},
	{"POST", regexp.MustCompile(`^/containers/create$`), nil, (*Proxy).create},
	{"GET", regexp.MustCompile(`^/containers/json$`), []string{"all", "limit", "size"}, (*Proxy).list},
	{"GET", regexp.MustCompile(`^/containers/` + named + `/json$`), nil, (*Proxy).container},
	{"GET", regexp.MustCompile(`^/containers/` + named + `/logs$`), []string{"follow", "stdout", "stderr", "since", "until", "timestamps", "tail"}, (*Proxy).container},
	{"POST", regexp.MustCompile(`^/containers/` + named + `/start$`), []string{"detachKeys"}, (*Proxy).container},
	{"POST", regexp.MustCompile(`^/containers/` + named + `/attach$`), []string{"detachKeys", "logs", "stream", "stdin", "stdout", "stderr"}, (*Proxy).container},
	{"POST", regexp.MustCompile(`^/containers/` + named + `/wait$`), []string{"condition"}, (*Proxy).container},
	{"POST", regexp.MustCompile(`^/containers/` + named + `/kill$`), []string{"signal"}, (*Proxy).container},
	{"POST", regexp.MustCompile(`^/containers/` + named + `/stop$`), []string{"t", "signal"}, (*Proxy).container},
	{"POST", regexp.MustCompile(`^/containers/` + named + `/resize$`), []string{"h", "w"}, (*Proxy).container},
	{"DELETE", regexp.MustCompile(`^/containers/` + named + `$`), []string{"v", "force"}, (*Proxy).container},
}

// These endpoints are kbnode's, not docker's. A job's files belong to the job's user,
// so the agent asks the proxy to do what it cannot do itself.
const (
	Share = "/kbnode/share" // a POST lets the agent read the files that lie directly in jobs' directories
	Clean = "/kbnode/clean" // a POST removes the containers and directories that the slot's jobs left
)

// ServeHTTP answers one request of the slot's.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// What is escaped, or not as plain as the client writes it, is matched by no route.
	c := &call{Request: r, path: r.URL.EscapedPath(), query: url.Values{}}
	if prefix := version.FindString(c.path); prefix != "" {
		c.version = strings.TrimSuffix(prefix, "/")
		c.path = c.path[len(c.version):]
	}
	for _, route := range routes {
		found := route.path.FindStringSubmatch(c.path)
		if route.method != r.Method || found == nil || strings.Contains(c.path, "..") || strings.Contains(c.path, "//") {
			continue
		}
		if len(found) > 1 {
			c.name = found[1]
		}
		asked := r.URL.Query()
		for _, name := range route.query {
			if values := asked[name]; len(values) > 0 {
				c.query[name] = values[:1]
			}
		}
		route.serve(p, w, c)
		return
	}
	p.Log("refused: %s %s", text.Line(r.Method, 20), text.Line(c.path, 200))
	refuse(w, http.StatusForbidden, "not allowed here: %s %s", text.Line(r.Method, 20), text.Line(c.path, 200))
}

// pass hands a call to the engine, with its query and without its body: all that
// the routes need is in the path, and an upgraded connection has none yet.
func (p *Proxy) pass(w http.ResponseWriter, c *call) {
	out := c.Clone(c.Context())
	out.URL = &url.URL{Scheme: "http", Host: "docker", Path: c.version + c.path, RawQuery: c.query.Encode()}
	out.Host, out.RequestURI = "docker", ""
	out.Body, out.ContentLength, out.TransferEncoding = http.NoBody, 0, nil
	out.Header = http.Header{"User-Agent": c.Header["User-Agent"]}
	// No other upgrade, h2c above all: behind that the engine would read requests
	// that nobody here has seen.
	if strings.HasSuffix(c.path, "/attach") && c.Header.Get("Upgrade") == "tcp" {
		out.Header["Connection"], out.Header["Upgrade"] = []string{"Upgrade"}, []string{"tcp"}
	}
	p.forward.ServeHTTP(w, out)
}

// container is a call for one container, which must be the slot's. The engine is
// asked by ID from here on: a name could be another's the next moment.
func (p *Proxy) container(w http.ResponseWriter, c *call) {
	id, ok := p.owned(w, c)
	if !ok {
		return
	}
	c.path = strings.Replace(c.path, "/"+c.name, "/"+id, 1)
	switch {
	case strings.HasSuffix(c.path, "/start"):
		defer p.watch(id)
	case strings.HasSuffix(c.path, "/attach"):
		defer p.abandon(c.Context(), id)
	}
	p.pass(w, c)
}

// abandon removes a container if its attach connection ended first. So a container
// never outlives the process that started it, even if that process is killed.
func (p *Proxy) abandon(call context.Context, id string) {
	if call.Err() == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(call), endedTime)
	defer cancel()
	p.Log("the client of container %.12s is gone", id)
	if err := p.engine.Remove(ctx, id); err != nil {
		p.Log("removing it: %v", err)
	}
}

// owned is the ID of the container that a call names. Another slot's is not there.
func (p *Proxy) owned(w http.ResponseWriter, c *call) (string, bool) {
	id, labels, err := p.engine.Inspect(c.Context(), c.name)
	switch {
	case err == nil && labels[node.SlotLabel] == p.Slot.Name:
		return id, true
	case err == nil || docker.Is(err, http.StatusNotFound):
		answer(w, http.StatusNotFound, map[string]string{"message": "No such container: " + c.name})
	default:
		refuse(w, http.StatusBadGateway, "looking for container %s: %v", c.name, err)
	}
	return "", false
}

// filterNames are the filters of a listing that are passed on. The others name a
// container or an image, of which there may be others'.
var filterNames = []string{"id", "name", "label", "status", "exited"}

// list lists the slot's containers, whatever filters are asked for.
func (p *Proxy) list(w http.ResponseWriter, c *call) {
	asked, err := filters(c.URL.Query().Get("filters"))
	if err != nil {
		refuse(w, http.StatusBadRequest, "filters: %v", err)
		return
	}
	for name := range asked {
		if !slices.Contains(filterNames, name) {
			refuse(w, http.StatusForbidden, "filter %s: want one of %q", text.Quote(name), filterNames)
			return
		}
	}
	asked["label"] = append(asked["label"], p.Slot.Label())
	maps.Copy(c.query, docker.Filter(asked))
	p.pass(w, c)
}

// filters decodes both spellings: {"label":{"a":true}} and {"label":["a"]}.
func filters(raw string) (map[string][]string, error) {
	out := map[string][]string{}
	if raw == "" {
		return out, nil
	}
	if json.Unmarshal([]byte(raw), &out) == nil && out != nil {
		return out, nil
	}
	var sets map[string]map[string]bool
	if err := json.Unmarshal([]byte(raw), &sets); err != nil {
		return nil, err
	}
	out = map[string][]string{}
	for name, set := range sets {
		out[name] = slices.Sorted(maps.Keys(set))
	}
	return out, nil
}
