package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// documents of the repository that go into every archive.
var documents = []string{"LICENSE", "README.md", "CHANGELOG.md"}

// name is that of an architecture's archive, and the directory in it.
func (r *release) name(arch string) string {
	return fmt.Sprintf("kbgen_%s_linux_%s", strings.TrimPrefix(r.version, "v"), arch)
}

// create begins a file of the architecture in hand.
func (r *release) create(name string) (*os.File, error) {
	r.made = append(r.made, name)
	return os.Create(filepath.Join(r.out, name))
}

// archive writes kbgen_VERSION_linux_ARCH.tar.gz: everything, sorted, with the
// commit's date and no owner.
func (r *release) archive(bin, shared, arch string) (err error) {
	name := r.name(arch)
	type entry struct {
		path, from string
		mode       int64
	}
	var entries []entry
	add := func(dir, below string) error {
		return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			rel, err := filepath.Rel(dir, path)
			mode := int64(0o644)
			if below == "bin" && filepath.Ext(path) == "" {
				mode = 0o755
			}
			entries = append(entries, entry{filepath.ToSlash(filepath.Join(name, below, rel)), path, mode})
			return err
		})
	}
	if err := errors.Join(add(bin, "bin"), add(shared, "")); err != nil {
		return err
	}
	for _, document := range documents {
		entries = append(entries, entry{name + "/" + document, filepath.Join(r.root, document), 0o644})
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.path, b.path) })

	f, err := r.create(name + ".tar.gz")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	for _, e := range entries {
		data, err := os.ReadFile(e.from)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: e.path, Mode: e.mode, Size: int64(len(data)), ModTime: r.date, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if err := t.WriteHeader(header); err != nil {
			return err
		}
		if _, err := t.Write(data); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}

// A packaged is one package: which commands, and what it says of itself.
type packaged struct {
	name, about string
	has         func(command string) bool
}

func onNode(command string) bool { return slices.Contains(nodeCommands, command) }

var packagesMade = []packaged{
	{"kbgen-node", "judge kernel submissions on a GPU machine\nkbrun for the machines that vendors lend: statically linked, and with NVML\n(kbrun-nvml) where a driver is; kbnode sets the machine up, one isolated agent for each GPU.", onNode},
	{"kbgen-tools", "pipelines, builds and verdicts of kernel competitions\nkbgen renders checked Buildkite pipelines and seals values for nodes, kblaunch\nstarts builds and fetches their results, kblocal stands in for Buildkite on\nloopback, kbserve keeps boards and standings.",
		func(command string) bool { return !onNode(command) }},
}

// packages writes a .deb and an .rpm for nodes and one for tools.
func (r *release) packages(bin, shared, arch string) error {
	for _, p := range packagesMade {
		info, err := r.info(p, bin, shared, arch)
		if err != nil {
			return err
		}
		for _, format := range []string{"deb", "rpm"} {
			packager, err := nfpm.Get(format)
			if err != nil {
				return err
			}
			info := nfpm.WithDefaults(info)
			f, err := r.create(packager.ConventionalFileName(info))
			if err != nil {
				return err
			}
			info.Target = f.Name()
			if err := errors.Join(packager.Package(info, f), f.Close()); err != nil {
				return fmt.Errorf("packing %s: %w", filepath.Base(info.Target), err)
			}
		}
	}
	return nil
}

func (r *release) info(p packaged, bin, shared, arch string) (*nfpm.Info, error) {
	entries, err := os.ReadDir(bin)
	if err != nil {
		return nil, err
	}
	var contents files.Contents
	add := func(from, to string, mode fs.FileMode) {
		contents = append(contents, &files.Content{Source: from, Destination: to, FileInfo: &files.ContentFileInfo{Mode: mode, MTime: r.date, Owner: "root", Group: "root"}})
	}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".txt")
		if !p.has(name) {
			continue
		}
		if name != e.Name() { // what a binary was built on
			add(filepath.Join(bin, e.Name()), "/usr/share/doc/"+p.name+"/"+e.Name(), 0o644)
			continue
		}
		add(filepath.Join(bin, name), "/usr/bin/"+name, 0o755)
		if name == "kbnode" { // kbnode verify starts it; its place in PATH is the tools' package's
			add(filepath.Join(bin, "kblocal"), "/usr/lib/"+p.name+"/kblocal", 0o755)
		}
		for from, to := range map[string]string{
			"man/" + name + ".1":            "/usr/share/man/man1/" + name + ".1",
			"completions/" + name + ".bash": "/usr/share/bash-completion/completions/" + name,
			"completions/_" + name:          "/usr/share/zsh/vendor-completions/_" + name,
			"completions/" + name + ".fish": "/usr/share/fish/vendor_completions.d/" + name + ".fish",
		} {
			from = filepath.Join(shared, filepath.FromSlash(from))
			if _, err := os.Stat(from); err == nil { // kbrun-nvml has kbrun's
				add(from, to, 0o644)
			}
		}
	}
	for _, document := range documents {
		add(filepath.Join(r.root, document), "/usr/share/doc/"+p.name+"/"+document, 0o644)
	}
	slices.SortFunc(contents, func(a, b *files.Content) int { return strings.Compare(a.Destination, b.Destination) })
	return &nfpm.Info{
		Name: p.name, Arch: arch, Platform: "linux", Version: r.version, Section: "devel", Priority: "optional",
		Maintainer: "The kbgen maintainers <https://github.com/gpu-mode/kbgen/issues>", Description: p.about, Vendor: "GPU MODE",
		Homepage: "https://github.com/gpu-mode/kbgen", License: "MIT", MTime: r.date,
		Overridables: nfpm.Overridables{
			Contents: contents,
			RPM:      nfpm.RPM{BuildHost: "kbgen"},
		},
	}, nil
}
