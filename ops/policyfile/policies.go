package policyfile

import (
	"errors"
	"net/http"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/rules"
)

// noPolicies is the value of policies in a file that has none: a word, so that no
// accident lifts all limits.
const noPolicies = "none"

// policies reads the policies of a file.
func (d *decoder) policies(f *File, root, n *yaml.Node) {
	switch {
	case n == nil && root.Tag == tagMapping:
		d.wrong(root, "no policies, or the file is half written: write policies, or policies: none")
	case n == nil:
	case n.Tag == tagText && n.Value == noPolicies:
		f.mux, f.lifts = http.NewServeMux(), true
	case n.Tag == tagText:
		d.wrong(n, "policies is a mapping of names to policies, or the word %s, and not %s", noPolicies, quoted(n.Value))
	case n.Tag == tagMapping && len(n.Content) == 0 && len(d.errs) == 0:
		d.wrong(n, "no policies: write at least one or, if the file is to limit nothing, policies: %s", noPolicies)
	default:
		members := d.members(n, "policies")
		if len(members) > maxPolicies {
			d.wrong(members[maxPolicies].node, "more than %d policies: join those that have the same rules", maxPolicies)
			return
		}
		for _, member := range members {
			f.policies = append(f.policies, d.policy(member))
		}
		d.routes(f)
	}
}

func (d *decoder) policy(member field) policy {
	p := policy{name: member.name, node: member.node}
	if !grammar.ValidName(p.name) {
		d.wrong(p.node, "policy name %s: write 1 to %d letters, digits, '.', '_' or '-'", quoted(p.name), grammar.MaxName)
	}
	what := "policy " + quoted(p.name)
	fields := d.object(member.value, what, policyFields...)
	for _, n := range d.texts(fields["routes"], "routes", `"POST /login"`) {
		p.routes = append(p.routes, route{policy: p.name, pattern: n.Value, node: n})
	}
	if fields["rules"] == nil {
		if member.value.Tag == tagMapping {
			d.wrong(p.node, "%s has no rules: write rules: \"100/1m per ip\"", what)
		}
		return p
	}
	before := len(d.errs)
	p.rules = d.rules(fields["rules"])
	if text := p.rules.text(); strings.TrimSpace(text) != "" {
		set, err := d.functions.Parse(text)
		d.misread(p.rules, err)
		p.own, p.set = set, set.Named(p.name)
	}
	if n := fields["refuse"]; n != nil {
		d.refuse(&p, n, len(d.errs) == before)
	}
	return p
}

// A passage is the text of rules: that of one value, or of several, one in a line.
type passage []*yaml.Node

func (p passage) text() string {
	texts := make([]string, len(p))
	for i, n := range p {
		texts[i] = n.Value
	}
	return strings.Join(texts, "\n")
}

// at returns the value that has byte i of a passage, and which of its bytes that is.
func (p passage) at(i int) (*yaml.Node, int) {
	for n, value := range p {
		if i <= len(value.Value) || n == len(p)-1 {
			return value, i
		}
		i -= len(value.Value) + len("\n")
	}
	return nil, 0
}

// rules reads the text of rules, or a list of texts.
func (d *decoder) rules(n *yaml.Node) passage {
	p := passage{n}
	if n.Tag != tagText {
		if p = d.texts(n, "rules", `"100/1m per ip"`); n.Tag == tagList && len(n.Content) == 0 {
			d.wrong(n, "no rules: write at least one, such as \"100/1m per ip\"")
		}
	}
	for _, n := range p {
		if strings.TrimSpace(n.Value) == "" {
			d.wrongIn(n, len(n.Value), `found no rule, want a count and a window, such as "5/2s"`)
		}
	}
	return p
}

// misread reports errors of package limit about a passage.
func (d *decoder) misread(p passage, err error) {
	for _, wrong := range ruleErrors(err) {
		n, i := p.at(wrong.Offset)
		d.wrongIn(n, i, "%s", wrong.Problem)
	}
}

// ruleErrors returns the errors of package limit that err joins.
func ruleErrors(err error) (all []*rules.Error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			all = append(all, ruleErrors(err)...)
		}
		return all
	}
	var wrong *rules.Error
	if err != nil && !errors.As(err, &wrong) {
		wrong = &rules.Error{Problem: err.Error()}
	}
	if wrong != nil {
		all = append(all, wrong)
	}
	return all
}

// refuse reads what refused requests meet, and applies it if the rules are valid.
func (d *decoder) refuse(p *policy, n *yaml.Node, valid bool) {
	if n.Tag != tagText && n.Tag != tagNumber { // 429
		d.wrong(n, "refuse is a text, and not %s: write what a rule says after refuse, such as 503 or wait 2s", kind(n))
		return
	}
	var refusal limit.Refusal
	err := refusal.UnmarshalText([]byte(n.Value))
	d.misread(passage{n}, err)
	if err != nil || !valid {
		return
	}
	p.set = p.set.OnRefusal(refusal)
	for _, wrong := range ruleErrors(p.set.Validate()) {
		d.wrong(n, "%s", wrong.Problem)
	}
}
