package resource

import "github.com/gpu-mode/kbgen/local/engine"

// An Organization is the only organization's JSON shape.
type Organization struct {
	ID           string    `json:"id"`
	GraphQLID    string    `json:"graphql_id"`
	URL          string    `json:"url"`
	WebURL       string    `json:"web_url"`
	Name         string    `json:"name"`
	Slug         string    `json:"slug"`
	PipelinesURL string    `json:"pipelines_url"`
	AgentsURL    string    `json:"agents_url"`
	EmojisURL    string    `json:"emojis_url"`
	CreatedAt    Timestamp `json:"created_at"`
}

// Organization is the shape of the organization, as old as its default queue.
func (s *Shapes) Organization() Organization {
	slug, url := s.engine.Organization(), s.orgURL()
	return Organization{
		ID: engine.OrganizationID, GraphQLID: graphQLID("Organization", engine.OrganizationID),
		URL: url, WebURL: s.base + "/" + slug, Name: slug, Slug: slug,
		PipelinesURL: url + "/pipelines", AgentsURL: url + "/agents", EmojisURL: url + "/emojis",
		CreatedAt: s.cluster().CreatedAt,
	}
}
