package setup

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/node"
	"github.com/gpu-mode/kbgen/node/docker"
	"github.com/gpu-mode/kbgen/node/image"
)

// ImageRemover returns a function that removes the images which kbnode pulled on the
// machine below root, and kbnode's tags of other images. If it cannot, it logs which
// images stay.
func ImageRemover(root string, log func(format string, args ...any)) func(context.Context) {
	socket := "/run/docker.sock" // if an undo that was cut removed the config
	if config, err := node.ReadConfig(root); err == nil {
		socket = config.Docker.Socket
	}
	return func(ctx context.Context) {
		pins, err := node.ReadPins(root)
		if err != nil {
			log("the images that kbnode pulled stay: %v", err)
			return
		}
		ids := imagesOf(pins)
		if len(ids) == 0 {
			return
		}
		m := &image.Manager{Engine: docker.New(socket), Root: root, Now: time.Now, Log: log}
		_, err = m.Collect(ctx, nil)
		for _, id := range ids {
			if err == nil {
				err = untag(ctx, m.Engine, id)
			}
		}
		if err != nil {
			log("images stay: %v; to remove them: docker image rm %s", err, strings.Join(ids, " "))
		}
	}
}

// imagesOf returns the short IDs of all images in pins.
func imagesOf(pins *node.Pins) []string {
	var ids []string
	for _, pin := range pins.Images {
		for _, id := range append(pin.Old, pin.ID, pin.Previous) {
			if id != "" {
				ids = append(ids, image.Short(id))
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// untag removes the tag by which package image kept an image from being pruned.
func untag(ctx context.Context, engine *docker.Client, id string) error {
	err := engine.Do(ctx, http.MethodDelete, "/images/"+image.Tagged+":"+id, nil, nil, nil)
	if docker.Is(err, http.StatusNotFound) || docker.Is(err, http.StatusConflict) { // gone, or a container has it
		return nil
	}
	return err
}
