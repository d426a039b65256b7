package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"aead.dev/minisign"
	"github.com/CycloneDX/cyclonedx-go"
	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

const repository = "https://github.com/gpu-mode/kbgen"

// attest writes the bill of materials and the provenance of an architecture's
// files.
func (r *release) attest(bin, arch string) error {
	entries, err := os.ReadDir(bin)
	if err != nil {
		return err
	}
	infos := map[string]*buildinfo.BuildInfo{}
	programs := []sum{}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != "" { // what a binary was built on
			continue
		}
		path := filepath.Join(bin, e.Name())
		if infos[e.Name()], err = buildinfo.ReadFile(path); err != nil {
			return err
		}
		s, err := sumOf(path, r.name(arch)+"/bin/"+e.Name())
		if err != nil {
			return err
		}
		programs = append(programs, s)
	}
	r.programs = append(r.programs, programs...)
	if err := r.billOfMaterials(r.name(arch)+".cdx.json", programs, infos); err != nil {
		return err
	}
	return r.provenance(bin, arch, programs, infos)
}

// billOfMaterials names the programs, and the modules that are linked into each. A
// module's hash is the one in go.sum, as hexadecimal digits.
func (r *release) billOfMaterials(name string, programs []sum, infos map[string]*buildinfo.BuildInfo) error {
	var components []cyclonedx.Component
	var dependencies []cyclonedx.Dependency
	modules := map[string]cyclonedx.Component{}
	for _, p := range programs {
		components = append(components, cyclonedx.Component{
			BOMRef: p.name, Type: cyclonedx.ComponentTypeApplication, Name: filepath.Base(p.name), Version: r.version,
			Hashes: &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: p.sha256}},
		})
		info := infos[filepath.Base(p.name)]
		linked := []string{}
		for _, m := range append(slices.Clone(info.Deps), &debug.Module{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}) {
			c, err := component(m)
			if err != nil {
				return err
			}
			modules[c.BOMRef] = c
			linked = append(linked, c.BOMRef)
		}
		slices.Sort(linked)
		dependencies = append(dependencies, cyclonedx.Dependency{Ref: p.name, Dependencies: &linked})
	}
	for _, ref := range slices.Sorted(maps.Keys(modules)) {
		components = append(components, modules[ref])
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{
		Timestamp: r.date.Format(time.RFC3339),
		Component: &cyclonedx.Component{Type: cyclonedx.ComponentTypeApplication, Name: "kbgen", Version: r.version, PackageURL: "pkg:golang/github.com/gpu-mode/kbgen@" + r.version},
	}
	bom.Components, bom.Dependencies = &components, &dependencies
	f, err := r.create(name)
	if err != nil {
		return err
	}
	return errors.Join(cyclonedx.NewBOMEncoder(f, cyclonedx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false).EncodeVersion(bom, cyclonedx.SpecVersion1_5), f.Close())
}

// component is a module of a bill of materials.
func component(m *debug.Module) (cyclonedx.Component, error) {
	m = cmp.Or(m.Replace, m)
	purl := "pkg:golang/" + m.Path + "@" + m.Version
	c := cyclonedx.Component{BOMRef: purl, Type: cyclonedx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: purl}
	if m.Sum == "" { // the standard library's
		return c, nil
	}
	hash, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
	if err != nil {
		return c, fmt.Errorf("module %s: sum %q: %w", m.Path, m.Sum, err)
	}
	c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(hash)}}
	return c, nil
}

// provenance writes the sources and settings that an architecture's files were built from.
func (r *release) provenance(bin, arch string, programs []sum, infos map[string]*buildinfo.BuildInfo) error {
	var subjects []*intoto.ResourceDescriptor
	for _, name := range r.made {
		s, err := sumOf(filepath.Join(r.out, name), name)
		if err != nil {
			return err
		}
		subjects = append(subjects, descriptor(s))
	}
	for _, s := range programs {
		subjects = append(subjects, descriptor(s))
	}
	modules, err := sumOf(filepath.Join(r.root, "go.sum"), "go.sum")
	if err != nil {
		return err
	}
	inner := map[string]any{"go": infos[filepath.Base(programs[0].name)].GoVersion, "flags": list(r.buildFlags()), "environment": list(buildEnvironment)}
	switch note, err := os.ReadFile(filepath.Join(bin, "kbrun-nvml.txt")); {
	case err == nil:
		inner["kbrun-nvml"] = strings.TrimSpace(string(note))
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	external, err := structpb.NewStruct(map[string]any{"version": r.version, "architecture": arch})
	if err != nil {
		return err
	}
	internal, err := structpb.NewStruct(inner)
	if err != nil {
		return err
	}
	predicate, err := predicateStruct(&provenance.Provenance{
		BuildDefinition: &provenance.BuildDefinition{
			BuildType: repository + "/tree/main/tools/release", ExternalParameters: external, InternalParameters: internal,
			ResolvedDependencies: []*intoto.ResourceDescriptor{
				{Uri: "git+" + repository, Digest: map[string]string{"gitCommit": r.commit}}, descriptor(modules),
			},
		},
		RunDetails: &provenance.RunDetails{Builder: &provenance.Builder{Id: repository + "/tree/main/tools/release"}},
	})
	if err != nil {
		return err
	}
	data, err := protojson.Marshal(&intoto.Statement{
		Type: intoto.StatementTypeUri, Subject: subjects, PredicateType: "https://slsa.dev/provenance/v1", Predicate: predicate,
	})
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, data, "", "  "); err != nil { // protojson's own spaces are random
		return err
	}
	return os.WriteFile(filepath.Join(r.out, r.name(arch)+".intoto.json"), append(out.Bytes(), '\n'), 0o644)
}

func descriptor(s sum) *intoto.ResourceDescriptor {
	return &intoto.ResourceDescriptor{Name: s.name, Digest: map[string]string{"sha256": s.sha256}}
}

// list is a list as structpb takes it.
func list(words []string) []any {
	var all []any
	for _, w := range words {
		all = append(all, w)
	}
	return all
}

// predicateStruct converts a predicate to the type that a statement holds.
func predicateStruct(p *provenance.Provenance) (*structpb.Struct, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	data, err := protojson.Marshal(p)
	if err != nil {
		return nil, err
	}
	s := &structpb.Struct{}
	return s, protojson.Unmarshal(data, s)
}

// signingKey reads a minisign secret key; nil: none is named.
func signingKey(path, password string) (*minisign.PrivateKey, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("KBGEN_RELEASE_KEY: %w", err)
	}
	key := minisign.PrivateKey{}
	if minisign.IsEncrypted(text) {
		key, err = minisign.DecryptKey(password, text)
	} else {
		err = key.UnmarshalText(bytes.TrimSpace(text))
	}
	if err != nil {
		return nil, fmt.Errorf("KBGEN_RELEASE_KEY: %s: want a minisign secret key, and its password in KBGEN_RELEASE_PASSWORD: %w", path, err)
	}
	return &key, nil
}

// sign returns the minisign signature of the sums. The commit's date stands in it
// instead of the clock's.
func (r *release) sign(sums string) []byte {
	m := minisign.NewReader(strings.NewReader(sums))
	_, _ = io.Copy(io.Discard, m) // of a string, which does not fail
	return m.SignWithComments(*r.key, fmt.Sprintf("timestamp:%d\tfile:SHA256SUMS\tkbgen %s", r.date.Unix(), r.version), "signature of kbgen's releases")
}
