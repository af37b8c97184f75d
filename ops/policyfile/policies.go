package policyfile

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/grammar"
)

const (
	// noPolicies is the value of policies in a file that has none: a word, so that no
	// accident lifts all limits.
	noPolicies = "none"

	// maxWait bounds how long a file lets requests wait: connections, proxies and
	// clients give up before.
	maxWait = 10 * time.Minute

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
	if strings.TrimSpace(p.rules.text) != "" {
		set, err := d.functions.Parse(p.rules.text)
		d.misread(p.rules, err)
		p.own, p.set = set, set.Named(p.name)
	}
	if len(d.errs) == before {
		d.absurd(&p)
	}
	if f, ok := fields["refuse"]; ok && f.value != nil {
		d.refuse(&p, f.value, len(d.errs) == before)
	}
	return p
}

// A passage is the text of rules in one node, or in several, one in a line.
type passage struct {
	nodes []*node
	text  string
}

// within returns the place of byte i of a passage.
func (s *source) within(p *passage, i int) int {
	for _, n := range p.nodes {
		if i <= len(n.text) {
			return s.inside(n, i)
		}
		i -= len(n.text) + len("\n")
	}
	return 0
}

// rules reads the text of rules.
func (d *decoder) rules(n *node) *passage {
	p := &passage{nodes: d.texts(n, "rules", `"100/1m per ip"`, true)}
	if n != nil && n.kind == list && len(n.items) == 0 {
		d.wrong(n.at, "no rules: write at least one, such as \"100/1m per ip\"")
	}
	texts := make([]string, len(p.nodes))
	for i, n := range p.nodes {
		if texts[i] = n.text; strings.TrimSpace(n.text) == "" {
			d.wrong(d.inside(n, len(n.text)), `found no rule, want a count and a window, such as "5/2s"`)
		}
	}
	p.text = strings.Join(texts, "\n")
	return p
}

// misread reports errors of package limit about a passage.
func (d *decoder) misread(p *passage, err error) {
	for _, err := range leaves(err) {
		var wrong *limit.RuleError
		if errors.As(err, &wrong) {
			d.wrong(d.within(p, wrong.Offset), wrong.Problem)
		}
	}
}

// absurd reports waits that no client lives to see the end of.
func (d *decoder) absurd(p *policy) {
	for i, r := range p.set.Rules() {
		if queue, ok := r.Algorithm.(limit.Queue); ok && queue.MaxWait > maxWait {
			d.misread(p.rules, p.set.Errorf(i, "the rule has requests wait for up to %s: write at most %s, since clients and proxies give up before", grammar.FormatWindow(queue.MaxWait), grammar.FormatWindow(maxWait)))
		}
		if problem := absurdRefusal(&r.OnRefusal); problem != "" {
			d.misread(p.rules, p.set.Errorf(i, "%s", problem))
		}
	}
}

func absurdRefusal(r *limit.Refusal) string {
	switch {
	case r.Wait > maxWait:
		return fmt.Sprintf("refused requests wait for up to %s: write at most %s, since clients and proxies give up before", grammar.FormatWindow(r.Wait), grammar.FormatWindow(maxWait))
	case r.Waiters > maxWaiting:
		return fmt.Sprintf("%d requests may wait for one key: write at most %d, since each holds a connection", r.Waiters, maxWaiting)
	}
	return ""
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
	var refusal limit.Refusal
	alone := &passage{nodes: []*node{n}}
	err := refusal.UnmarshalText([]byte(n.text))
	d.misread(alone, err)
	if err != nil {
		return
	}
	if problem := absurdRefusal(&refusal); problem != "" {
		d.wrong(n.at, problem)
		return
	}
	if !valid {
		return
	}
	p.set = p.set.OnRefusal(refusal)
	for _, err := range leaves(p.set.Validate()) {
		var wrong *limit.RuleError
		if errors.As(err, &wrong) {
			d.wrong(n.at, wrong.Problem)
		}
	}
}
