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
	p.lookUp(v)
	if err := operate.Change(p.limiter, p.with(v.File)...); err != nil {
		return v.placed(err)
	}
	next := prepare(v, p.state.Load().met)
	var tables []*table
	var err error
	if next.bound, err = p.attach(v); err == nil {
		tables, err = p.tables(next)
	}
	if err != nil {
		return errors.Join(v.placed(err), operate.Change(p.limiter, p.with(p.inForce)...))
	}
	lifted := v.Lifts(p.inForce)
	p.inForce = v.File
	for _, set := range v.policies {
		if _, ours := p.attached[set.name]; ours {
			p.attached[set.name] = set.set
		}
	}
	p.state.Store(next)
	for i, h := range p.handlers {
		h.table.Store(tables[i])
	}
	if p.unmet != nil {
		p.unmet.Stop()
	}
	p.unmet = time.AfterFunc(unmetAfter, func() { p.noticeUnmet(next) })
	status := p.status()
	p.log().Info("policyfile: policies are in force", "source", status.Source, "sum", status.Sum, "by", status.By, "policies", len(v.policies))
	if len(lifted) > 0 {
		notice.Write(&p.lines, notice.PoliciesLifted, "policyfile: these limits are no longer in the file: those in code apply, if there are any", 0,
			"source", status.Source, "by", status.By, "lifted", listed(lifted))
	}
	if entries := v.exemptProxies(operate.Proxies(p.limiter)); len(entries) > 0 {
		notice.Write(&p.lines, notice.ExemptProxy, "policyfile: exempt contains a trusted proxy, and so every client whose address the proxy does not send: "+
			"write prefixes without the proxy", 0, "entries", listed(entries))
	}
	return nil
}

// listed returns the first texts of a list.
func listed(texts []string) string {
	const most = 10
	if more := len(texts) - most; more > 0 {
		texts = append(texts[:most:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// lookUp finds out which policies the program has declared, before they are changed.
func (p *Policies) lookUp(v version) {
	declared := operate.Declared(p.limiter)
	for i := range v.policies {
		name := v.policies[i].name
		if _, known := p.inCode[name]; !known {
			p.inCode[name] = slices.Contains(declared, name)
		}
	}
}

// with returns the sets of a file, and the last ones of policies that Handler has
// attached and the file does not have. No route leads to those, but a policy must have
// rules.
func (p *Policies) with(f *File) []limit.RuleSet {
	sets, names := f.Sets(), make(map[string]bool)
	for _, policy := range f.policies {
		names[policy.name] = true
	}
	for name, set := range p.attached {
		if !names[name] {
			sets = append(sets, set)
		}
	}
	return sets
}

// check returns an error if the policies cannot decide on their routes.
func (p *Policies) check(v version) error {
	var errs []error
	for i := range v.policies {
		if policy := &v.policies[i]; len(policy.routes) > 0 {
			errs = append(errs, operate.Validate(p.limiter, policy.set))
		}
	}
	d := decoder{source: v.source}
	v.misplaced(&d, errors.Join(errs...))
	byUser := limit.Rules(limit.PerUser(time.Minute, 1))
	if e, listed := v.users(); listed && routed(v.policies) && operate.Validate(p.limiter, byUser) != nil {
		d.wrong(v.source.inside(e.node, 0), "no user resolver: set limit.Options.User")
	}
	return d.err()
}

// routed reports whether a policy has routes. Only adapters know other users than
// limit.Options.User, and Handler is none.
func routed(policies []policy) bool {
	return slices.ContainsFunc(policies, func(p policy) bool { return len(p.routes) > 0 })
}

// attach returns the policies that have routes.
func (p *Policies) attach(v version) (map[string]*limit.Policy, error) {
	bound := make(map[string]*limit.Policy)
	for i := range v.policies {
		policy := &v.policies[i]
		if len(policy.routes) == 0 {
			continue
		}
		b, err := p.limiter.Policy(limit.Named(policy.name))
		if err != nil {
			return nil, err
		}
		if !p.inCode[policy.name] {
			p.attached[policy.name] = policy.set
		}
		bound[policy.name] = b
	}
	return bound, nil
}

// placed returns errors of package limit with their places in the file.
func (f *File) placed(err error) error {
	d := decoder{source: f.source}
	f.misplaced(&d, err)
	return d.err()
}

// misplaced reports errors of package limit about the policies of the file.
func (f *File) misplaced(d *decoder, err error) {
	for _, err := range leaves(err) {
		var wrong *limit.RuleError
		if !errors.As(err, &wrong) {
			d.wrong(0, err.Error())
			continue
		}
		i := slices.IndexFunc(f.policies, func(p policy) bool { return p.name == wrong.Policy })
		switch {
		case i < 0 && wrong.Policy == "":
			d.wrong(0, wrong.Problem)
		case i < 0:
			d.wrongf(0, "policy %q: %s", wrong.Policy, wrong.Problem)
		case wrong.Rule == "" || wrong.Text != f.policies[i].rules.text:
			d.wrongf(f.policies[i].at, "policy %q: %s", wrong.Policy, wrong.Problem)
		default:
			d.wrong(d.within(f.policies[i].rules, wrong.Offset), wrong.Problem)
		}
	}
}
