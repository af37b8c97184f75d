package policyfile

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/grammar"
)

const (
	// noPolicies is the value of policies in a file that has none: a word, so that no
	// accident lifts all limits.
	noPolicies = "none"

	// maxWait bounds how long a file lets requests wait: connections, proxies and
	// clients give up before.
	maxWait = 10 * time.Minute

	// maxParts bounds how many rules of a text are read, valid or not.
	maxParts = 100

	// maxWaiting bounds how many requests may wait for one key.
	maxWaiting = 10_000
)

// policies reads the policies of a file.
func (d *decoder) policies(f *File, root *node, fields map[string]field) {
	all, ok := fields["policies"]
	if !ok {
		if root.kind == mapping {
			d.wrong(root.at, "no policies, or the file is half written: write policies, or policies: none")
		}
		return
	}
	if n := all.value; n != nil && n.kind == text {
		if n.text != noPolicies {
			d.wrongf(n.at, "policies is a mapping of names to policies, or the word %s, and not %s", noPolicies, quoted(n.text))
		}
		f.mux = http.NewServeMux()
		return
	}
	members := d.members(all.value, "policies")
	if n := all.value; n != nil && n.kind == mapping && len(n.fields) == 0 && len(d.errs) == 0 {
		d.wrongf(n.at, "no policies: write at least one or, if the file is to limit nothing, policies: %s", noPolicies)
		return
	}
	if len(members) > maxPolicies {
		d.wrongf(members[maxPolicies].at, "more than %d policies: join those that have the same rules", maxPolicies)
		return
	}
	for _, member := range members {
		f.policies = append(f.policies, d.policy(member))
	}
	d.routes(f)
}

func (d *decoder) policy(member field) policy {
	p := policy{name: member.name, at: member.at}
	if !grammar.ValidName(p.name) {
		d.wrongf(p.at, "policy name %s: write 1 to %d letters, digits, '.', '_' or '-'", quoted(p.name), grammar.MaxName)
	}
	what := "policy " + quoted(p.name)
	fields := d.object(member.value, what, policyFields...)
	if f, ok := fields["routes"]; ok {
		for _, n := range d.texts(f.value, "routes", `"POST /login"`, false) {
			p.routes = append(p.routes, route{pattern: n.text, node: n})
		}
	}
	rules, ok := fields["rules"]
	if !ok {
		if member.value != nil && member.value.kind == mapping {
			d.wrongf(p.at, "%s has no rules: write rules: \"100/1m per ip\"", what)
		}
		return p
	}
	before := len(d.errs)
	p.rules = d.rules(rules.value)
	if len(d.errs) == before {
		p.set = limit.Named(p.name, d.validated(p.rules)...)
	}
	if f, ok := fields["refuse"]; ok && f.value != nil {
		d.refuse(&p, f.value, len(d.errs) == before)
	}
	return p
}

// A rule is one of a policy, and its place.
type rule struct {
	grammar.Rule
	at int
}

// rules reads rules, each for itself so that all mistakes of form are found.
func (d *decoder) rules(n *node) (rules []rule) {
	for _, n := range d.texts(n, "rules", `"100/1m per ip"`, true) {
		rules = append(rules, d.rulesOf(n)...)
	}
	switch {
	case n == nil || n.kind != list:
	case len(n.items) == 0:
		d.wrong(n.at, "no rules: write at least one, such as \"100/1m per ip\"")
	}
	if len(rules) > core.MaxCharges {
		d.wrongf(rules[core.MaxCharges].at, "more than %d rules: a request is decided by at most %d: split the policy", core.MaxCharges, core.MaxCharges)
	}
	return rules
}

func (d *decoder) rulesOf(n *node) (rules []rule) {
	for start, parts := 0, 0; start <= len(n.text); {
		end := len(n.text)
		if i := strings.IndexAny(n.text[start:], ";\n"); i >= 0 {
			end = start + i
		}
		part := n.text[start:end]
		first := start + len(part) - len(strings.TrimLeft(part, " \t\r"))
		if first < end || end < len(n.text) && n.text[end] == ';' || n.text == "" {
			if parts++; parts > maxParts { // finding the place of each takes the time of all before it
				d.wrongf(n.at, "more than %d rules: a request is decided by at most %d: split the policy", maxParts, core.MaxCharges)
				return rules
			}
			d.rule(n, start, part, func(r grammar.Rule) { rules = append(rules, rule{r, d.inside(n, first)}) })
		}
		start = end + 1
	}
	if len(rules) == 0 && strings.TrimSpace(n.text) == "" && n.text != "" {
		d.rule(n, 0, "", nil)
	}
	return rules
}

// rule reads a rule that begins at byte start of a text.
func (d *decoder) rule(n *node, start int, text string, add func(grammar.Rule)) {
	parsed, err := grammar.Parse(text)
	if err == nil {
		d.absurd(n, start, &parsed[0])
		add(parsed[0])
		return
	}
	var wrong *grammar.ParseError
	if !errors.As(err, &wrong) {
		d.wrong(d.inside(n, start), err.Error())
		return
	}
	found := quoted(wrong.Found)
	if wrong.Found == "" {
		if found = "the end of the rule"; strings.TrimSpace(text) == "" {
			found = "no rule"
		}
	}
	d.wrongf(d.inside(n, start+wrong.Offset), "found %s, want %s", found, wrong.Want)
}

// absurd reports waits that no client lives to see the end of.
func (d *decoder) absurd(n *node, start int, r *grammar.Rule) {
	at := d.inside(n, start+len(n.text[start:])-len(strings.TrimLeft(n.text[start:], " \t\r")))
	if r.MaxWait > maxWait {
		d.wrongf(at, "the rule has requests wait for up to %s: write at most %s, since clients and proxies give up before", grammar.FormatWindow(r.MaxWait), grammar.FormatWindow(maxWait))
	}
	if problem := absurdRefusal(&r.Refusal); problem != "" {
		d.wrong(at, problem)
	}
}

func absurdRefusal(r *grammar.Refusal) string {
	switch {
	case r.Wait > maxWait:
		return fmt.Sprintf("refused requests wait for up to %s: write at most %s, since clients and proxies give up before", grammar.FormatWindow(r.Wait), grammar.FormatWindow(maxWait))
	case r.Waiters > maxWaiting:
		return fmt.Sprintf("%d requests may wait for one key: write at most %d, since each holds a connection", r.Waiters, maxWaiting)
	}
	return ""
}

// validated returns rules of package limit, and reports what is wrong with them.
func (d *decoder) validated(rules []rule) []limit.Rule {
	if len(rules) == 0 {
		return nil // reported
	}
	texts := make([]string, len(rules))
	for i := range rules {
		texts[i] = rules[i].String()
	}
	set, err := limit.Parse(strings.Join(texts, "; "))
	for _, err := range leaves(err) {
		at, problem := rules[0].at, err.Error()
		var wrong *limit.RuleError
		if errors.As(err, &wrong) {
			problem = wrong.Problem
			for i := range rules { // of equal rules the last one is wrong
				if texts[i] == wrong.Rule {
					at = rules[i].at
				}
			}
		}
		d.wrong(at, problem)
	}
	parsed := set.Rules()
	for i := range parsed {
		parsed[i].Name = rules[i].Name // and not the one that it goes by
	}
	return parsed
}

// leaves returns the errors that err joins.
func leaves(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, err := range joined.Unwrap() {
			all = append(all, leaves(err)...)
		}
		return all
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// refuse reads what refused requests meet, and applies it if the rules are valid.
func (d *decoder) refuse(p *policy, n *node, valid bool) {
	if n.kind != text && n.kind != integer { // 429
		d.wrongf(n.at, "refuse is a text, and not %s: write 429, 503, redirect, degrade, mark or wait", kinds[n.kind])
		return
	}
	parsed, err := grammar.ParseRefusal(n.text)
	if err != nil {
		var wrong *grammar.ParseError
		if errors.As(err, &wrong) {
			found := quoted(wrong.Found)
			if wrong.Found == "" {
				found = "the end"
			}
			d.wrongf(d.inside(n, wrong.Offset), "found %s, want %s", found, wrong.Want)
		}
		return
	}
	if problem := absurdRefusal(&parsed); problem != "" {
		d.wrong(n.at, problem)
		return
	}
	refusal := limit.Refusal{Wait: parsed.Wait, Waiters: int(parsed.Waiters), Status: parsed.Status,
		Redirect: parsed.Redirect, Degrade: parsed.Degrade, Mark: parsed.Mark}
	_, err = limit.Named("refuse", limit.Global(time.Minute, 1)).OnRefusal(refusal).MarshalText()
	if err == nil && valid {
		p.set = p.set.OnRefusal(refusal)
		_, err = p.set.MarshalText()
	}
	for _, err := range leaves(err) {
		problem := err.Error()
		var wrong *limit.RuleError
		if errors.As(err, &wrong) {
			problem = wrong.Problem
		}
		d.wrong(n.at, problem)
	}
}
