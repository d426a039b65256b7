package generator

import (
	"cmp"
	"fmt"

	"github.com/gpu-mode/kbgen/pipelines"
)

// commandContainer is the container that runs the command of a pod without a
// podSpec. Under another name the patch would add one.
const commandContainer = "container-0"

// shmVolume is /dev/shm of that container: a pod's own has 64 MiB.
const shmVolume = "kbgen-shm"

// kubernetesPlugin is nothing where a resource class holds the devices: such a
// cluster may prohibit the plugin, and then fails every job with it. The pod's
// container for the checkout starts there for nothing; its agent skips.
//
// Else the step patches its own pod: the key must be exactly this, without a
// version, or the controller takes it for an ordinary plugin and the pod gets no
// GPU.
func kubernetesPlugin(s pipelines.CommandStep) (node, error) {
	g := s.On
	resource, err := resourceName(g)
	if g.Isolation != pipelines.Step || err != nil {
		return node{}, err
	}
	config := node{kind: mapping}
	if !s.Checkout {
		config.set("checkout", single("skip", truth(true))) // the step's own checkout leaves the container in the pod
	}
	config.set("podSpecPatch", podPatch(g, resource))
	return plugin("kubernetes", config), nil
}

func podPatch(g pipelines.GPUType, resource string) node {
	patch := node{kind: mapping}
	// The command runs somebody's code: no token of the cluster's beside it.
	patch.set("automountServiceAccountToken", truth(false))
	if g.Pod.RuntimeClass != "" {
		patch.set("runtimeClassName", str(g.Pod.RuntimeClass))
	}
	if len(g.Pod.NodeSelector) > 0 {
		labels := node{kind: mapping}
		for _, label := range g.Pod.NodeSelector {
			labels.set(label.Name, str(label.Value))
		}
		patch.set("nodeSelector", labels)
	}
	if len(g.Pod.Tolerations) > 0 {
		taints := node{kind: list}
		for _, t := range g.Pod.Tolerations {
			taints.add(toleration(t))
		}
		patch.set("tolerations", taints)
	}
	container := node{kind: mapping}
	container.set("name", str(commandContainer))
	container.set("resources", limits(g, resource))
	mount := node{kind: mapping}
	mount.set("name", str(shmVolume))
	mount.set("mountPath", str("/dev/shm"))
	container.set("volumeMounts", node{kind: list, items: []node{mount}})
	patch.set("containers", node{kind: list, items: []node{container}})
	memory := node{kind: mapping}
	memory.set("medium", str("Memory"))
	memory.set("sizeLimit", str(fmt.Sprintf("%dGi", cmp.Or(g.ShmGiB, min(pipelines.DefaultShmGiB, g.MemoryGiB)))))
	volume := node{kind: mapping}
	volume.set("name", str(shmVolume))
	volume.set("emptyDir", memory)
	patch.set("volumes", node{kind: list, items: []node{volume}})
	return patch
}

func toleration(t pipelines.Toleration) node {
	n := node{kind: mapping}
	n.set("key", str(t.Key))
	if t.Value == "" {
		n.set("operator", str("Exists"))
	} else {
		n.set("operator", str("Equal"))
		n.set("value", str(t.Value))
	}
	if t.Effect != "" {
		n.set("effect", str(t.Effect))
	}
	return n
}

// limits are a container's resources. Requests follow limits: they must be equal.
func limits(g pipelines.GPUType, resource string) node {
	values := node{kind: mapping}
	if resource != "" {
		values.set(resource, num(g.GPUs))
	}
	values.set("cpu", num(g.CPUs))
	values.set("memory", str(fmt.Sprintf("%dGi", g.MemoryGiB)))
	return single("limits", values)
}
