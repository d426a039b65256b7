package proxy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema/text"
)

// info says of the engine what a client may need to decide how to speak. The rest,
// such as the number of containers and the registries, is the machine's own.
func (p *Proxy) info(w http.ResponseWriter, c *call) {
	var of struct {
		ServerVersion, OSType, Architecture, OperatingSystem, KernelVersion string
		SecurityOptions                                                     []string
	}
	if err := p.engine.Do(c.Context(), http.MethodGet, "/info", nil, nil, &of); err != nil {
		refuse(w, http.StatusBadGateway, "%v", err)
		return
	}
	answer(w, http.StatusOK, of)
}

// noneID takes the place of the network's ID, which says nothing to anybody.
var noneID = strings.Repeat("0", 63) + "1"

// networks lists the one network there is here. The docker plugin looks for the
// network that its step names, and makes it when it is not listed.
func (p *Proxy) networks(w http.ResponseWriter, c *call) {
	asked, err := filters(c.URL.Query().Get("filters"))
	if err != nil {
		refuse(w, http.StatusBadRequest, "filters: %v", err)
		return
	}
	all := []map[string]any{}
	names := asked["name"]
	if len(names) == 0 || slices.ContainsFunc(names, func(part string) bool { return strings.Contains("none", part) }) {
		all = append(all, map[string]any{"Name": "none", "Id": noneID, "Driver": "null", "Scope": "local",
			"Created": "1970-01-01T00:00:00Z", "Labels": map[string]string{}})
	}
	answer(w, http.StatusOK, all)
}

// image looks at the image that a reference stands for here.
func (p *Proxy) image(w http.ResponseWriter, c *call) {
	id, err := p.pinned(c.name)
	if err != nil {
		refuse(w, http.StatusForbidden, "%v", err)
		return
	}
	c.path = "/images/" + id + "/json"
	p.pass(w, c)
}

// pinned is the image's ID that runs for a reference as a step writes it.
func (p *Proxy) pinned(reference string) (string, error) {
	if !slices.Contains(p.Slot.Images, reference) {
		return "", fmt.Errorf("image %s: want one of %q", text.Quote(reference), p.Slot.Images)
	}
	pins, err := p.Pins()
	if err != nil {
		return "", fmt.Errorf("image %s: reading the pins: %v", text.Quote(reference), err)
	}
	id := pins.Images[reference].ID
	if !strings.HasPrefix(id, "sha256:") {
		return "", fmt.Errorf("image %s: none is pinned on this node: kbnode image update %s", text.Quote(reference), reference)
	}
	return id, nil
}
