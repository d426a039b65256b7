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
	config := mapping()
	if !s.Checkout {
		// The step's own checkout leaves the container in the pod.
		config.set("checkout", mapping(field{"skip", truth(true)}))
	}
	config.set("podSpecPatch", podPatch(g, resource))
	return plugin("kubernetes", config), nil
}

func podPatch(g pipelines.GPUType, resource string) node {
	patch := mapping()
	// The command runs somebody's code: no token of the cluster's beside it.
	patch.set("automountServiceAccountToken", truth(false))
	if g.Pod.RuntimeClass != "" {
		patch.set("runtimeClassName", str(g.Pod.RuntimeClass))
	}
	if len(g.Pod.NodeSelector) > 0 {
		labels := mapping()
		for _, label := range g.Pod.NodeSelector {
			labels.set(label.Name, str(label.Value))
		}
		patch.set("nodeSelector", labels)
	}
	if len(g.Pod.Tolerations) > 0 {
		taints := list()
		for _, t := range g.Pod.Tolerations {
			taints.add(toleration(t))
		}
		patch.set("tolerations", taints)
	}
	patch.set("containers", list(mapping(
		field{"name", str(commandContainer)},
		field{"resources", limits(g, resource)},
		field{"volumeMounts", list(mapping(field{"name", str(shmVolume)}, field{"mountPath", str("/dev/shm")}))},
	)))
	size := fmt.Sprintf("%dGi", cmp.Or(g.ShmGiB, min(pipelines.DefaultShmGiB, g.MemoryGiB)))
	patch.set("volumes", list(mapping(
		field{"name", str(shmVolume)},
		field{"emptyDir", mapping(field{"medium", str("Memory")}, field{"sizeLimit", str(size)})},
	)))
	return patch
}

func toleration(t pipelines.Toleration) node {
	n := mapping(field{"key", str(t.Key)})
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
	values := mapping()
	if resource != "" {
		values.set(resource, num(g.GPUs))
	}
	values.set("cpu", num(g.CPUs))
	values.set("memory", str(fmt.Sprintf("%dGi", g.MemoryGiB)))
	return mapping(field{"limits", values})
}
