package doctor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/runner/device"
	"github.com/gpu-mode/kbgen/schema"
)

// proof checks that kbrun prove has shown that the isolated harness works on the slot's
// GPU, and that driver and images are the same since. Otherwise tasks with tensors on the
// GPU are judged by their own harnesses, which is why a fault is a warning only.
func (r *run) proof(s *node.Slot) {
	switch {
	case !s.HasGPU():
		r.skip("the slot has no GPU")
		return
	case s.Platform != "docker":
		r.skip("its jobs run on the machine itself: kbrun doctor lists the proofs there")
		return
	}
	uuid, driver := r.gpu(s)
	if uuid == "" {
		r.skip("the driver does not show its GPU")
		return
	}
	fix := "kbnode verify " + s.Name
	file := node.ProofsDir + "/" + uuid + ".json"
	info := r.stat(file)
	if info == nil {
		r.warn(fix, "no proof in %s: nothing shows that the isolated harness works on its GPU", node.ProofsDir)
		return
	}
	if uid, _ := r.m.Owner(info); uid != 0 || info.Mode().Perm()&0o022 != 0 {
		r.warn(fix, "%s: owner %d, mode %04o; kbrun accepts it only if root owns it and only root can write it", file, uid, info.Mode().Perm())
		return
	}
	var p schema.Proof
	if err := json.Unmarshal([]byte(r.read(file)), &p); err != nil {
		r.warn(fix, "%s is not a proof: %v", file, err)
		return
	}
	if changed := r.changed(s, &p, driver); len(changed) > 0 {
		r.warn(fix, "its GPU's proof of %s is stale: %s", p.Time.Format("2006-01-02 15:04"), strings.Join(changed, "; "))
		return
	}
	if p.Failed() != "" {
		r.warn(fix, "the isolated harness does not work on its GPU: %s", p.Summary())
		return
	}
	r.report(OK, "", "the isolated harness works on its GPU: %s", p.Summary())
}

// changed lists what has changed since a slot's GPU was proved. The image contains kbrun and
// torch, so a newer image counts as a change.
func (r *run) changed(s *node.Slot, p *schema.Proof, driver string) (changed []string) {
	if p.Driver != driver && driver != "" {
		changed = append(changed, fmt.Sprintf("the driver was %s, and is %s", p.Driver, driver))
	}
	pins, err := node.ReadPins(r.m.Root)
	if err != nil {
		return changed // said by the check of the images
	}
	for _, ref := range s.Images {
		if pin, ok := pins.Images[ref]; ok && pin.At.After(p.Time) {
			changed = append(changed, fmt.Sprintf("%s was replaced on %s by an image whose kbrun or torch may differ", ref, pin.At.Format("2006-01-02 15:04")))
		}
	}
	return changed
}

// gpu returns the UUID of a slot's first GPU, "" for an AMD GPU that the driver does not
// show, and the driver's version, "" if it is unknown.
func (r *run) gpu(s *node.Slot) (uuid, driver string) {
	own := s.Devices[0]
	if own.Vendor == device.NVIDIA {
		v, _ := readVersion(r.read("/proc/driver/nvidia/version"))
		return own.UUID, v.text
	}
	m := r.m.Device
	m.Vendor, m.OneShot = own.Vendor, true
	watch := device.Probe(r.ctx, m)
	defer watch.Close()
	report := watch.Report()
	if at := slices.IndexFunc(report.Devices, func(d schema.Device) bool { return strings.EqualFold(d.PCI, own.PCI) }); at >= 0 {
		uuid = report.Devices[at].UUID
	}
	return uuid, report.Driver
}
