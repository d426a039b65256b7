package competition

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/schema/task"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store"
)

// GitHub is where repositories are downloaded from.
const GitHub = "https://github.com"

const (
	maxArchive   = 64 << 20 // bytes
	maxFile      = 1 << 20  // bytes of a competition's file
	downloadTime = 25 * time.Second
)

var repositoryName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}$`)

// Download reads the competitions of a repository, "owner/name", on a branch: the
// files problems/*.yaml with their tasks, or problems/SET.yaml alone. base is GitHub.
// Nothing is written to disk.
//
// Errors: [*store.Refusal] with Invalid for invalid names and for files that cannot
// be used; otherwise the error of the download.
func Download(ctx context.Context, base, repository, branch, set string) ([]store.Board, error) {
	for _, part := range strings.Split(repository+"/"+branch+"/"+set, "/") {
		if part == "." || part == ".." {
			return nil, store.NewRefusal(store.Invalid, "repository, branch and problem_set: want names without '.' and '..' as parts")
		}
	}
	switch {
	case !repositoryName.MatchString(repository):
		return nil, store.NewRefusal(store.Invalid, "repository: got %s, want owner/name", text.Quote(text.Shorten(repository, 100)))
	case branch == "" || len(branch) > 200:
		return nil, store.NewRefusal(store.Invalid, "branch: got %s, want its name", text.Quote(text.Shorten(branch, 100)))
	}
	ctx, stop := context.WithTimeout(ctx, downloadTime)
	defer stop()
	owner, name, _ := strings.Cut(repository, "/")
	data, err := get(ctx, base+"/"+url.PathEscape(owner)+"/"+url.PathEscape(name)+"/archive/"+url.PathEscape(branch)+".zip")
	if err != nil {
		return nil, fmt.Errorf("downloading %s: %w", repository, err)
	}
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, fmt.Errorf("downloading %s: its archive: %w", repository, err)
	}
	boards, err := readArchive(archive, set)
	if err != nil {
		return nil, store.NewRefusal(store.Invalid, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return boards, nil
}

func get(ctx context.Context, address string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return nil, store.NewRefusal(store.Invalid, "there is no such repository or branch")
	default:
		return nil, fmt.Errorf("got status %d, want 200", answer.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxArchive+1))
	if err == nil && len(data) > maxArchive {
		err = store.NewRefusal(store.Invalid, "the repository has more than %d bytes", maxArchive)
	}
	return data, err
}

// readArchive reads problems/*.yaml in the one folder of an archive.
func readArchive(archive *zip.Reader, set string) (boards []store.Board, err error) {
	pattern := "*/problems/*.yaml"
	if set != "" {
		pattern = "*/problems/" + globText(set) + ".yaml"
	}
	names, err := fs.Glob(archive, pattern)
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("got no file %s, want at least one", strings.TrimPrefix(pattern, "*/"))
	}
	if err != nil {
		return nil, err
	}
	var faults []error
	for _, name := range names {
		f, err := archive.Open(name)
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(io.LimitReader(f, maxFile))
		f.Close() // it was only read
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		more, err := parse(name, data, func(directory string) (*task.Task, error) {
			return task.Load(archive, path.Join(path.Dir(name), directory))
		})
		boards, faults = append(boards, more...), append(faults, err)
	}
	return boards, errors.Join(faults...)
}

// globText is a text as a pattern that matches it alone.
func globText(s string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(s)
}
