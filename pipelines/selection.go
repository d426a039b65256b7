package pipelines

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// A Selection says which steps of a pipeline are wanted. The others stay in it,
// skipped, with the reason on the build's page. The zero value wants all.
//
// A step must meet each criterion that is given, by one of its values. What a
// selected step depends on is selected with it.
type Selection struct {
	Keys []string // of steps; with * at the end all keys that begin so
	Tags []string // see [CommandStep.Tags]

	// ByChange selects the steps that the changed files concern, and those that
	// depend on such a step. Steps of kinds without [Kind.Paths] always are.
	ByChange bool
	Changed  []string // slashed paths from the root of the repository
}

// All reports whether there is no criterion, so that every step is wanted.
func (s Selection) All() bool { return len(s.Keys) == 0 && len(s.Tags) == 0 && !s.ByChange }

// notSelected is why a step is skipped; Buildkite takes 70 characters.
const notSelected = "not selected"

// apply sets Skip in the steps that are not selected.
//
// Errors: [UnknownError] for a key or tag that no step has.
func (s Selection) apply(steps []CommandStep) error {
	if s.All() {
		return nil
	}
	if err := s.known(steps); err != nil {
		return err
	}
	at := map[string]int{}
	for i := range steps {
		at[steps[i].Key] = i
	}
	affected := s.affected(steps, at)
	wanted := make([]bool, len(steps))
	var want func(i int)
	want = func(i int) {
		if wanted[i] {
			return
		}
		wanted[i] = true
		for _, key := range steps[i].DependsOn {
			if j, ok := at[key]; ok {
				want(j)
			}
		}
	}
	for i := range steps {
		if s.hasKey(steps[i].Key) && s.hasTag(steps[i].Tags) && affected[i] {
			want(i)
		}
	}
	for i := range steps {
		if !wanted[i] {
			steps[i].Skip = notSelected
			if s.ByChange && !affected[i] {
				steps[i].Skip += ": no changed file concerns it"
			}
			steps[i].from("skip", CommandLine, "--only, --tag, --changed-since or --changed-files")
		}
	}
	return nil
}

// known refuses what selects nothing because nothing is called so.
func (s Selection) known(steps []CommandStep) error {
	var keys, tags []string
	for i := range steps {
		keys = append(keys, steps[i].Key)
		for _, tag := range steps[i].Tags {
			if !slices.Contains(tags, tag) {
				tags = append(tags, tag)
			}
		}
	}
	for _, pattern := range s.Keys {
		if !slices.ContainsFunc(keys, func(key string) bool { return keyMatches(pattern, key) }) {
			return Unknown("step", pattern, keys)
		}
	}
	for _, tag := range s.Tags {
		if !slices.Contains(tags, tag) {
			return Unknown("tag", tag, tags)
		}
	}
	return nil
}

func (s Selection) hasKey(key string) bool {
	return len(s.Keys) == 0 || slices.ContainsFunc(s.Keys, func(pattern string) bool { return keyMatches(pattern, key) })
}

func keyMatches(pattern, key string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(key, prefix)
	}
	return pattern == key
}

func (s Selection) hasTag(tags []string) bool {
	return len(s.Tags) == 0 || slices.ContainsFunc(s.Tags, func(tag string) bool { return slices.Contains(tags, tag) })
}

// affected says which steps the changed files concern.
func (s Selection) affected(steps []CommandStep, at map[string]int) []bool {
	out := make([]bool, len(steps))
	for i := range steps {
		paths := pathsOf(steps[i].Kind)
		out[i] = !s.ByChange || len(paths) == 0 || slices.ContainsFunc(s.Changed, func(file string) bool { return concerns(paths, file) })
	}
	for again := true; again; {
		again = false
		for i := range steps {
			for _, key := range steps[i].DependsOn {
				if j, ok := at[key]; ok && out[j] && !out[i] {
					out[i], again = true, true
				}
			}
		}
	}
	return out
}

func pathsOf(kind string) []string {
	for _, k := range Kinds {
		if k.Name == kind {
			return k.Paths
		}
	}
	return nil
}

// concerns reports whether a file is among paths: the last one that matches it
// decides, and one behind "!" leaves it out.
func concerns(paths []string, file string) bool {
	found := false
	for _, pattern := range paths {
		pattern, out := strings.CutPrefix(pattern, "!")
		if pathMatches(pattern, file) {
			found = !out
		}
	}
	return found
}

// pathMatches: a pattern is one of package path, where ** at the end stands for
// all that lies below.
func pathMatches(pattern, file string) bool {
	if above, ok := strings.CutSuffix(pattern, "**"); ok {
		return strings.HasPrefix(file, above)
	}
	ok, err := path.Match(pattern, file)
	return ok && err == nil // a test holds all patterns against their form
}

// tag sets a step's tags: its kind, and its row's vendor, platform, isolation and name.
func (s *CommandStep) tag() {
	s.Tags = []string{s.Kind, string(s.On.Vendor), string(s.On.Platform), string(s.On.Isolation), s.On.Name}
}

// validate refuses names that no version control system lists.
func (s Selection) validate() error {
	for _, file := range s.Changed {
		if path.IsAbs(file) || strings.HasPrefix(file, "../") {
			return fmt.Errorf("changed file %.80q: want a path from the root of the repository", file)
		}
	}
	return nil
}
