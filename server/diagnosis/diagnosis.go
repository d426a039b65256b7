// Package diagnosis looks for what is stuck in an installation: in its database and,
// with a launcher, among the agents that its boards need.
package diagnosis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpu-mode/kbgen/launcher"
	"github.com/gpu-mode/kbgen/pipelines"
	"github.com/gpu-mode/kbgen/schema/text"
	"github.com/gpu-mode/kbgen/store"
)

// Options say where to look.
type Options struct {
	Store    *store.Store // nil: Fault is why it could not be opened
	Fault    error
	Launcher *launcher.Client // nil: agents are not looked at
	Fleet    pipelines.Table
	Age      time.Duration // how old something must be to count as stuck
}

// Kinds of what a Finding says.
const (
	foundWaiting   = "waiting"       // planned, and nobody has taken it
	foundAbandoned = "abandoned"     // begun, and whoever held it is gone
	foundSlow      = "slow"          // begun, held, and not over
	foundForgotten = "forgotten"     // not done, and nothing of it is planned
	foundPast      = "past deadline" // a board that has ended and has open runs
	foundStandings = "standings"     // they are not what the runs say
	foundHook      = "hook"          // it has not decided, or has not taken a result
	foundSilence   = "silence"       // events came once, and do not any more
	foundMachines  = "machines"      // a GPU type of an open board that no agent serves
	foundDatabase  = "database"      // it does not answer
	foundBuildkite = "buildkite"     // its API does not answer
)

// A Diagnosis is what [Run] found.
type Diagnosis struct {
	OK    bool      `json:"ok"`
	Found []Finding `json:"found"`
}

// A Finding is one fault of an installation.
type Finding struct {
	Kind       string `json:"kind"`
	Board      string `json:"board"`
	Submission int64  `json:"submission"` // 0: none
	RunID      string `json:"run_id"`
	Build      int64  `json:"build_number"` // 0: none that is known
	Text       string `json:"text"`
	ToDo       string `json:"to_do"`
}

// Run makes a diagnosis. A database or an API that does not answer is a finding,
// beside what can be found without it.
func Run(ctx context.Context, o Options) *Diagnosis {
	d := &Diagnosis{Found: []Finding{}}
	fault := o.Fault
	var boards []store.Board
	if o.Store != nil {
		for _, look := range []func(context.Context, *store.Store) ([]Finding, error){o.stuck, o.hook, o.pastDeadline, o.standings, o.silence} {
			found, err := look(ctx, o.Store)
			d.Found = append(d.Found, found...)
			fault = cmp.Or(fault, err)
		}
		var err error
		boards, err = o.Store.Boards(ctx)
		fault = cmp.Or(fault, err)
	}
	if fault != nil {
		d.Found = append(d.Found, Finding{Kind: foundDatabase, Text: text.Line(fault.Error(), 500), ToDo: "look at the database, at --database and at the network"})
	}
	d.Found = append(d.Found, o.machines(ctx, boards)...)
	d.OK = len(d.Found) == 0
	return d
}

// stuck says what has not finished for long, by its reason.
func (o *Options) stuck(ctx context.Context, s *store.Store) ([]Finding, error) {
	list, err := s.Stuck(ctx, o.Age)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	var found []Finding
	for _, x := range list {
		if x.State == store.StateHeld {
			continue // see hook
		}
		f := Finding{Board: x.Board, Submission: x.Submission, RunID: x.RunID, Build: x.BuildNumber}
		what := fmt.Sprintf("submission %d on %s of %s", x.Submission, text.Line(cmp.Or(x.GPU, "none"), 40), text.Line(x.Board, 100))
		age := now.Sub(x.Created).Round(time.Second)
		switch {
		case x.RunID == "":
			f.Kind, f.Text = foundForgotten, fmt.Sprintf("%s has not finished for %v, and no evaluation of it is planned", what, age)
			f.ToDo = fmt.Sprintf("if no server of Kernelbot's evaluates it: kbserve submission delete %d", x.Submission)
		case x.State == store.StatePlanned:
			f.Kind, f.Text = foundWaiting, fmt.Sprintf("%s has waited for %v", what, age)
			f.ToDo = "is a server running, has the queue agents, is the GPU type paused?"
		case x.Until.Before(now):
			f.Kind, f.Text = foundAbandoned, fmt.Sprintf("%s: %s held it until %s", what, text.Line(x.LeaseOwner, 100), x.Until.Format(time.RFC3339))
			f.ToDo = "a server that runs takes it over and looks for its build"
		default:
			f.Kind, f.Text = foundSlow, fmt.Sprintf("%s: %s for %v, build %d", what, x.State, age, x.BuildNumber)
			f.ToDo = "look at the build; cancel it there if it hangs, and its submission fails"
		}
		found = append(found, f)
	}
	return found, nil
}

// hook says which submissions the organizer's hook has not decided about, and which
// results it has not taken. A try that has failed is reported at once.
func (o *Options) hook(ctx context.Context, s *store.Store) (found []Finding, err error) {
	waits, err := s.HookWaits(ctx)
	for _, w := range waits {
		age := time.Since(w.Since)
		if w.Error == "" && age < o.Age {
			continue
		}
		f := Finding{Kind: foundHook, Board: w.Board, Submission: w.Submission, ToDo: fmt.Sprintf("look at the program behind KBSERVE_HOOK_URL, or decide: kbserve submission accept %d", w.Submission)}
		state := "has waited for the organizers' check"
		switch {
		case w.Done:
			state, f.ToDo = "has a result that the hook has not taken", "look at the program behind KBSERVE_HOOK_URL"
		case w.Held:
			state, f.ToDo = "is held", fmt.Sprintf("decide: kbserve submission accept %d, or reject", w.Submission)
		case w.Tries == 0:
			f.ToDo = fmt.Sprintf("is a server running that has KBSERVE_HOOK_URL? Or decide: kbserve submission accept %d", w.Submission)
		}
		f.Text = fmt.Sprintf("submission %d of %s %s for %v, tries: %d", w.Submission, text.Line(w.Board, 100), state, age.Round(time.Second), w.Tries)
		if w.Error != "" {
			f.Text += ", the last: " + w.Error
		}
		found = append(found, f)
	}
	return found, err
}

// pastDeadline says which boards are over and have open runs.
func (o *Options) pastDeadline(ctx context.Context, s *store.Store) ([]Finding, error) {
	list, err := s.Stuck(ctx, 0)
	if err != nil {
		return nil, err
	}
	var found []Finding
	open := map[string]int{}
	for _, x := range list {
		if x.RunID == "" || time.Since(x.Deadline) < o.Age {
			continue
		}
		if open[x.Board]++; open[x.Board] == 1 {
			found = append(found, Finding{Kind: foundPast, Board: x.Board, Text: "past its deadline of " + x.Deadline.Format(time.RFC3339), ToDo: "its ranking is not final before they end"})
		}
	}
	for i := range found {
		f := &found[i]
		f.Text = fmt.Sprintf("board %s is %s and has open runs: %d", text.Line(f.Board, 100), f.Text, open[f.Board])
	}
	return found, nil
}

// standings says where they are not what the runs say.
func (o *Options) standings(ctx context.Context, s *store.Store) (found []Finding, err error) {
	faults, err := s.Check(ctx)
	for _, fault := range faults {
		found = append(found, Finding{Kind: foundStandings, Text: fault, ToDo: "kbserve db rebuild"})
	}
	return found, err
}

// silence says when runs finish and no events come, where some came before.
func (o *Options) silence(ctx context.Context, s *store.Store) ([]Finding, error) {
	event, finished, err := s.Events(ctx)
	if err != nil || event.IsZero() || finished.Sub(event) < o.Age {
		return nil, err
	}
	return []Finding{{
		Kind: foundSilence, Text: fmt.Sprintf("the last of Buildkite's events came at %s, and a run finished at %s", event.Format(time.RFC3339), finished.Format(time.RFC3339)),
		ToDo: "look at the webhook's last requests in Buildkite's settings; results come all the same, later and for more requests",
	}}, nil
}

// machines says which GPU types of open boards no agent serves. Without a
// launcher nothing is asked.
func (o *Options) machines(ctx context.Context, boards []store.Board) (found []Finding) {
	if o.Launcher == nil {
		return nil
	}
	agents, err := o.Launcher.Agents(ctx)
	if err != nil {
		return []Finding{{Kind: foundBuildkite, Text: text.Line(err.Error(), 500), ToDo: "look at BUILDKITE_API_TOKEN (scope read_agents), at the organization and at the network"}}
	}
	count := launcher.ByQueue(agents)
	for _, b := range boards {
		for _, gpu := range b.GPUs {
			row, err := o.Fleet.Lookup(gpu)
			if !b.Deadline.After(time.Now()) || err == nil && count[row.Queue].Agents > 0 {
				continue
			}
			f := Finding{Kind: foundMachines, Board: b.Name, Text: fmt.Sprintf("board %s: no agent serves %s", text.Line(b.Name, 100), text.Line(cmp.Or(gpu, "none"), 40)), ToDo: "connect one, or take the GPU type off the board"}
			var off *pipelines.OffError
			switch {
			case errors.As(err, &off):
				f.Text = fmt.Sprintf("board %s: %s is switched off: %s", text.Line(b.Name, 100), text.Line(cmp.Or(gpu, "none"), 40), off.Reason)
			case err == nil:
				f.Text += fmt.Sprintf(" (queue %s, paused agents: %d)", row.Queue, count[row.Queue].Paused)
			}
			found = append(found, f)
		}
	}
	return found
}
