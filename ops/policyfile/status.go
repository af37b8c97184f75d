package policyfile

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/notice"
	"github.com/routelimit/limit/ops/access"
)

// A state is what is in force. It does not change.
type state struct {
	version
	since          time.Time
	exempt, barred *access.List
	targets        map[string]*target // by pattern
	served         atomic.Bool        // whether a handler has had a request
}

// A target is what a route leads to.
type target struct {
	policy *limit.Policy
	values []string     // path values that its rules need
	met    *atomic.Bool // whether a request has matched, also of an earlier state
}

// prepare returns the state of a version, without the policies of its routes.
func prepare(v version, before *state) *state {
	s := &state{version: v, since: time.Now(), targets: make(map[string]*target)}
	s.exempt, _ = build(v.exempt) // they are valid
	s.barred, _ = build(v.barred)
	for i := range v.policies {
		for _, r := range v.policies[i].routes {
			t := &target{values: r.values, met: new(atomic.Bool)}
			if before != nil && before.targets[r.pattern] != nil {
				t.met = before.targets[r.pattern].met
			}
			s.targets[r.pattern] = t
		}
	}
	return s
}

// A Status says what is in force in this process.
type Status struct {
	Source string    // the path of the file, or the name of the pushed one
	Sum    string    // the first 12 hexadecimal digits of the SHA-256 of its text
	By     string    // who pushed it; "" for a file
	Since  time.Time // when it was put in force

	// Unmet lists the routes that no request has matched so far, in this process: new
	// ones, rare ones, and those with a mistake.
	Unmet []string

	// Err says why the file, or what was pushed last, is not in force. It is nil if
	// there is nothing wrong.
	Err error
}

// Status returns what is in force.
func (p *Policies) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status()
}

func (p *Policies) status() Status {
	s := p.state.Load()
	return Status{Source: s.origin, Sum: s.source.sum(), By: s.by, Since: s.since, Unmet: s.unmet(), Err: errors.Join(p.problems[:]...)}
}

// unmet returns the routes that no request has matched, in the order of the file.
func (s *state) unmet() (patterns []string) {
	for i := range s.policies {
		for _, r := range s.policies[i].routes {
			if !s.targets[r.pattern].met.Load() {
				patterns = append(patterns, r.pattern)
			}
		}
	}
	return patterns
}

// unmetAfter is how long routes may meet no request before a line says so.
const unmetAfter = time.Hour

// noticeUnmet warns about the routes of a state that no request has met, if it is still
// in force and there were requests, or no handler that could have any.
func (p *Policies) noticeUnmet(s *state) {
	if patterns := s.unmet(); p.state.Load() == s && len(patterns) > 0 && (s.served.Load() || !p.handles.Load()) {
		notice.Write(&p.lines, notice.UnmetRoutes, "policyfile: no request has matched some routes so far, so their policies limit nothing: "+
			"compare them with the paths of requests, and put Policies.Handler before your router", 0,
			"source", s.origin, "routes", listed(patterns), "after", unmetAfter)
	}
}
