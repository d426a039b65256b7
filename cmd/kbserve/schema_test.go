package main

import (
	"reflect"
	"testing"

	"github.com/gpu-mode/kbgen/internal/schematest"
	"github.com/gpu-mode/kbgen/server/diagnosis"
	"github.com/gpu-mode/kbgen/server/listing"
	"github.com/gpu-mode/kbgen/server/simulate"
	"github.com/gpu-mode/kbgen/store"
)

// What list --json prints is what its published schema says.
func TestPublishedSchemas(t *testing.T) {
	for _, d := range []schematest.Document{
		{Name: "boards", Title: "kbserve board list --json: the boards of a competition", Type: reflect.TypeFor[[]listed]()},
		{Name: "rankings", Title: "kbserve board show --json: who ranks on a board, by GPU type", Type: reflect.TypeFor[[]listing.Ranking]()},
		{Name: "users", Title: "kbserve user list --json: who has an account", Type: reflect.TypeFor[[]store.User]()},
		{Name: "invites", Title: "kbserve invite list --json: invites to boards", Type: reflect.TypeFor[[]listedInvite]()},
		{Name: "limits", Title: "kbserve limits show --json: submissions per user and hour", Type: reflect.TypeFor[[]store.Limit]()},
		{Name: "submissions", Title: "kbserve submission list --json: submissions, the newest first", Type: reflect.TypeFor[[]store.Listed]()},
		{Name: "submission-record", Title: "kbserve submission show --json: one submission and its runs", Type: reflect.TypeFor[listing.Details]()},
		{Name: "stats", Title: "kbserve stats --json: numbers of all boards", Type: reflect.TypeFor[store.Stats]()},
		{Name: "diagnosis", Title: "kbserve doctor --json: what is stuck or wrong, and what to do", Type: reflect.TypeFor[diagnosis.Diagnosis]()},
		{Name: "simulation", Title: "kbserve simulate --json: waiting times, use and limits of a simulated competition", Type: reflect.TypeFor[simulate.Report]()},
	} {
		schematest.CheckFilled(t, d, *update, nil)
	}
}

// Each page names every flag of its command.
func TestPagesAreWhole(t *testing.T) {
	for _, fault := range program().Undocumented() {
		t.Error(fault)
	}
}
