package facts

import (
	"context"
	"encoding/json"
	"path"
	"slices"

	"gopkg.in/yaml.v3"
)

func (r *reader) docker(ctx context.Context) {
	cli, ok := r.Tools["docker"]
	if !ok {
		return
	}
	d := &Docker{CLI: cli, CDIDirs: []string{}, DaemonJSON: r.file("etc/docker/daemon.json")}
	r.Docker = d
	for _, socket := range []string{"/run/docker.sock", "/var/run/docker.sock"} {
		if d.Socket == "" && r.there(socket) {
			d.Socket = socket
		}
	}
	out := r.run(ctx, cli, "info", "--format", "{{json .}}")
	if out == "" {
		return
	}
	var info struct {
		ServerVersion      string
		CgroupDriver       string
		CDISpecDirs        []string
		LiveRestoreEnabled bool
		DockerRootDir      string
		ContainersRunning  int
		ServerErrors       []string
	}
	if err := json.Unmarshal([]byte(out), &info); err != nil {
		r.unread("docker info: %v", err)
		return
	}
	for _, e := range info.ServerErrors { // docker info ends with 0 then
		r.unread("docker info: %s", e)
	}
	d.Version, d.CgroupDriver, d.LiveRestore = info.ServerVersion, info.CgroupDriver, info.LiveRestoreEnabled
	d.Root, d.Running = info.DockerRootDir, info.ContainersRunning
	d.CDIDirs = append(d.CDIDirs, info.CDISpecDirs...)
}

// CDISpecs reads the specs of a machine below root where an engine looks for them.
// It calls fault for a file that is not one.
func CDISpecs(root string, fault func(file string, err error)) []CDISpec {
	r := &reader{Machine: Machine{Root: root}}
	var files []string
	for _, dir := range []string{"etc/cdi", "var/run/cdi"} {
		for _, ext := range []string{"*.json", "*.yaml"} { // engines read no other
			files = append(files, r.glob(path.Join(dir, ext))...)
		}
	}
	slices.Sort(files)
	specs := []CDISpec{}
	for _, file := range files {
		var spec struct {
			Kind    string `yaml:"kind"`
			Devices []struct {
				Name string `yaml:"name"`
			} `yaml:"devices"`
		}
		if err := yaml.Unmarshal([]byte(r.file(file)), &spec); err != nil { // JSON is YAML
			fault(file, err)
			continue
		}
		s := CDISpec{Path: file, Kind: spec.Kind, Devices: []string{}}
		for _, d := range spec.Devices {
			s.Devices = append(s.Devices, d.Name)
		}
		specs = append(specs, s)
	}
	return specs
}
