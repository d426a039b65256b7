package condition

// Variables lists the variables of steps' conditions.
var Variables = []string{
	"build.author.email", "build.author.id", "build.author.name", "build.author.teams",
	"build.branch", "build.commit",
	"build.creator.email", "build.creator.id", "build.creator.name", "build.creator.teams", "build.creator.verified",
	"build.id", "build.merge_queue.base_branch", "build.merge_queue.base_commit", "build.message", "build.number",
	"build.pull_request.base_branch", "build.pull_request.draft", "build.pull_request.id", "build.pull_request.label",
	"build.pull_request.labels", "build.pull_request.repository", "build.pull_request.repository.fork",
	"build.source", "build.state", "build.tag",
	"organization.id", "organization.slug",
	"pipeline.default_branch", "pipeline.id", "pipeline.repository", "pipeline.slug",
}
