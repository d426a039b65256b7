package document

import "github.com/gpu-mode/kbgen/local/engine"

// An Organization is the only organization as JSON.
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

// Organization shows the organization, which is as old as its default queue.
func (v *View) Organization() Organization {
	slug, url := v.engine.Organization(), v.orgURL()
	return Organization{
		ID: engine.OrganizationID, GraphQLID: graphQLID("Organization", engine.OrganizationID),
		URL: url, WebURL: v.base + "/" + slug, Name: slug, Slug: slug,
		PipelinesURL: url + "/pipelines", AgentsURL: url + "/agents", EmojisURL: url + "/emojis",
		CreatedAt: v.Cluster().CreatedAt,
	}
}
