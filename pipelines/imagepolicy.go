package pipelines

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
)

// An ImageSource is a place whose images a build may name instead of its row's
// own ([schema.EnvImage]). Who may start builds may run every image there.
type ImageSource struct {
	// Name is a repository, "ghcr.io/gpu-mode/kernelbot"; with a slash at its
	// end all that lies below a registry or an organisation.
	Name string
	// DigestOnly takes no tags, for places where others may move them.
	DigestOnly bool
}

// ImageSources is the table of them. A flag of a person is not held to it.
var ImageSources = []ImageSource{
	{Name: "ghcr.io/gpu-mode/"},
}

// maxImage bounds an image reference, bytes.
const maxImage = 400

// takes reports whether the source holds the repository.
func (s ImageSource) takes(repository string) bool {
	if strings.HasSuffix(s.Name, "/") {
		return strings.HasPrefix(repository, s.Name)
	}
	return repository == s.Name
}

// imageRefusal says why a build may not name an image for rows; "" when it may.
func imageRefusal(ref string, rows []GPUType) string {
	const want = "a tag other than latest, or a sha256 digest"
	if len(ref) > maxImage || !isPinned(ref) {
		return "is not pinned, want registry/name with " + want
	}
	name, _, byDigest := strings.Cut(ref, "@")
	if at := strings.LastIndexByte(name, ':'); at > strings.LastIndexByte(name, '/') {
		name = name[:at]
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || !strings.Contains(smalls+digits, part[:1]) { // neither "..", nor nothing
			return "is no name of an image"
		}
	}
	listed := false
	for _, s := range ImageSources {
		if s.takes(name) && (byDigest || !s.DigestOnly) {
			if (Request{Image: ref, GPUs: rows}).oneVendor() != nil {
				return "cannot serve GPU types of several vendors"
			}
			return ""
		}
		listed = listed || s.takes(name)
	}
	if listed {
		return "has a tag, want a sha256 digest from there"
	}
	names := namesOf(ImageSources, func(s ImageSource) string { return s.Name })
	return "is from a place that builds may not name, have " + strings.Join(names, ", ")
}

// A Note is something that a build asked for and does not get, for people.
type Note struct {
	About string // "image": one annotation for each; empty: for the log alone
	Text  string // one line, with foreign text in quotes
}

// chooseImage returns the image that replaces the rows' own: the one that a person
// names, which must be pinned, or the one that the build names, as far as the
// table of sources lets it. What it does not let is the rows' own image and a
// note, or with refuse an error.
//
// Launchers of Kernelbot name an image with every build, "latest" at that: it
// must not cost the verdict, and must not choose what runs either.
func chooseImage(c Choice, rows []GPUType, get func(string) string) (ref string, notes []Note, err error) {
	if c.Image != nil {
		if *c.Image == "" {
			return "", nil, nil
		}
		return *c.Image, nil, CheckImage(*c.Image)
	}
	ref = get(schema.EnvImage)
	if ref == "" {
		return "", nil, nil
	}
	shown := fmt.Sprintf("%.200q", ref)
	if len(rows) > 0 && !slices.ContainsFunc(rows, contained) {
		return "", []Note{{Text: fmt.Sprintf("image %s is not used: %s runs in no container", shown, rows[0].Name)}}, nil
	}
	why := imageRefusal(ref, rows)
	switch {
	case why == "":
		return ref, nil, nil
	case c.RefuseImages:
		return "", nil, &imageError{ref: ref, why: why}
	}
	return "", []Note{{About: "image", Text: fmt.Sprintf("image %s %s: the GPU type's own image is used", shown, why)}}, nil
}
