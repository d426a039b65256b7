package schema

import "time"

// CompileLimit is the wall time of one warm-up or compilation; every phase has
// one of its own.
const CompileLimit = 120 * time.Second

// Phases lists the tester's modes in the order in which a payload's mode runs
// them. In mode profile there is one for each benchmark.
func (p *Payload) Phases() []string {
	switch p.Mode {
	case ModePrivate, ModeLeaderboard:
		return []string{ModeTest, ModeBenchmark, ModeLeaderboard}
	case ModeProfile:
		phases := make([]string, len(p.Benchmarks))
		for i := range phases {
			phases[i] = ModeProfile
		}
		return phases
	}
	return []string{p.Mode}
}

// Limit is the tester's wall time in a phase.
func (p *Payload) Limit(phase string) Timeout {
	switch phase {
	case ModeTest:
		return p.TestTimeout
	case ModeLeaderboard:
		return p.RankedTimeout
	}
	return p.BenchmarkTimeout
}

// Budget is the wall time that a payload's limits allow for all phases, with
// the warm-up or the compiler of each; limited is false when one has no limit.
func (p *Payload) Budget() (budget time.Duration, limited bool) {
	for _, phase := range p.Phases() {
		d, limited := p.Limit(phase).Limit()
		if !limited {
			return 0, false
		}
		budget += d + CompileLimit
	}
	return budget, true
}
