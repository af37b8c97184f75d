package policyfile

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/notice"
	"github.com/routelimit/limit/operate"
)

// apply puts a version in force, or changes nothing.
func (p *Policies) apply(v version) error {
	if err := p.check(v); err != nil {
		return err
	}
	if err := p.change(v.File); err != nil {
		return v.placed(err)
	}
	next := prepare(v, p.state.Load())
	if err := p.attach(next); err != nil {
		return errors.Join(v.placed(err), p.change(p.inForce))
	}
	earlier := p.inForce
	p.inForce = v.File
	p.state.Store(next)
	if p.unmet != nil {
		p.unmet.Stop()
	}
	p.unmet = time.AfterFunc(unmetAfter, func() { p.noticeUnmet(next) })
	p.announce(v, earlier)
	return nil
}

// applyBase puts a version of the file in force.
func (p *Policies) applyBase(v version) error {
	err := p.apply(v)
	if err == nil {
		p.base = v
	}
	return err
}

// announce logs that a version is in force, and what may be a mistake in it.
func (p *Policies) announce(v version, earlier *File) {
	from := v.from()
	p.log().Info("policyfile: policies are in force", append(from, "sum", v.source.sum(), "policies", len(v.policies))...)
	if lifted := v.Lifts(earlier); len(lifted) > 0 {
		notice.Write(&p.lines, notice.PoliciesLifted, "policyfile: these limits are no longer in the file: those in code apply, if there are any", 0,
			append(from, "lifted", listed(lifted))...)
	}
	if entries := v.exemptProxies(operate.Proxies(p.limiter)); len(entries) > 0 {
		notice.Write(&p.lines, notice.ExemptProxy, "policyfile: exempt contains a trusted proxy, and so every client whose address the proxy does not send: "+
			"write prefixes without the proxy", 0, "entries", listed(entries))
	}
}

// listed returns the first texts of a list.
func listed(texts []string) string {
	const most = 10
	if more := len(texts) - most; more > 0 {
		texts = append(texts[:most:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// change gives the limiter the rules of a file.
func (p *Policies) change(f *File) error {
	if f.lifts {
		return operate.Lift(p.limiter)
	}
	return operate.Change(p.limiter, p.with(f)...)
}

// with returns the sets of a file, and the last ones of policies that Handler has attached and the
// file does not have. No route leads to those, but a policy must have rules.
func (p *Policies) with(f *File) []limit.RuleSet {
	var sets []limit.RuleSet
	names := make(map[string]bool)
	for _, policy := range f.policies {
		sets, names[policy.name] = append(sets, policy.set), true
	}
	for name, set := range p.attached {
		if !names[name] {
			sets = append(sets, set)
		}
	}
	return sets
}

// check returns an error if the policies cannot decide on their routes. Only adapters
// know other users than limit.Options.Caller, and Handler is none.
func (p *Policies) check(v version) error {
	var errs []error
	routed := v.routed()
	for i := range v.policies {
		if policy := &v.policies[i]; routed[policy.name] {
			errs = append(errs, operate.Validate(p.limiter, policy.set))
		}
	}
	d := decoder{source: v.source}
	v.misplaced(&d, errors.Join(errs...))
	entries := slices.Concat(v.exempt.entries, v.barred.entries)
	i := slices.IndexFunc(entries, func(e entry) bool { return e.IsUser() })
	if len(routed) > 0 && i >= 0 && operate.Validate(p.limiter, limit.Rules(limit.PerUser(time.Minute, 1))) != nil {
		d.wrongIn(entries[i].node, 0, "no user resolver: set Caller.User of limit.Options")
	}
	return d.err()
}

// attach declares the policies that have routes, unless the program has, and keeps the
// rules of those that only routes attach.
func (p *Policies) attach(s *state) error {
	declared, routed := operate.Declared(p.limiter), s.routed()
	for i := range s.policies {
		policy := &s.policies[i]
		_, ours := p.attached[policy.name]
		if ours || routed[policy.name] && !slices.Contains(declared, policy.name) {
			p.attached[policy.name] = policy.set
		}
		if len(policy.routes) == 0 {
			continue
		}
		bound, err := p.limiter.Policy(limit.Named(policy.name))
		if err != nil {
			return err
		}
		for _, r := range policy.routes {
			s.targets[r.pattern].policy = bound
		}
	}
	return nil
}

// placed returns errors of package limit with their places in the file.
func (f *File) placed(err error) error {
	d := decoder{source: f.source}
	f.misplaced(&d, err)
	return d.err()
}

// misplaced reports errors of package limit about the policies of the file.
func (f *File) misplaced(d *decoder, err error) {
	for _, wrong := range ruleErrors(err) {
		switch p := f.find(wrong.Policy); {
		case p == nil && wrong.Policy == "":
			d.wrong(nil, "%s", wrong.Problem)
		case p == nil:
			d.wrong(nil, "policy %q: %s", wrong.Policy, wrong.Problem)
		case wrong.Rule == "" || wrong.Text != p.rules.text():
			d.wrong(p.node, "policy %q: %s", wrong.Policy, wrong.Problem)
		default:
			d.misread(p.rules, wrong)
		}
	}
}
