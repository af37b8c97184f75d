package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/ops/policyfile"
)

// completeKey completes the policy and the rule of POLICY RULE KEY, from --policy and
// --rules. It asks no Redis: a shell waits for it.
func (d *deployment) completeKey(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return d.complete(args), cobra.ShellCompDirectiveNoFileComp
}

// completeOverride is completeKey for a command that takes a limit too.
func (d *deployment) completeOverride(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 2 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return d.completeKey(cmd, args, text)
}

func (d *deployment) complete(args []string) (names []string) {
	sets := make(map[string][]limit.Rule)
	var policies []string
	add := func(name string, rules limit.RuleSet) {
		if _, known := sets[name]; !known {
			policies = append(policies, name)
		}
		for _, r := range rules.Rules() {
			// cobra reads the flags twice, and a route may have two sets.
			if !slices.ContainsFunc(sets[name], func(other limit.Rule) bool { return other.Name == r.Name }) {
				sets[name] = append(sets[name], r)
			}
		}
	}
	if f, err := policyfile.Read(d.policy); err == nil {
		for _, p := range f.Policies() {
			add(p.Name, p.Rules)
		}
	}
	for i, text := range d.rules {
		if rules, err := limit.Parse(text); err == nil && i < len(d.on) {
			add(strings.TrimPrefix(d.on[i], "each "), rules)
		}
	}
	switch len(args) {
	case 0:
		return policies
	case 1:
		for _, r := range sets[args[0]] {
			names = append(names, r.Name+"\t"+strings.TrimPrefix(r.String(), r.Name+": "))
		}
	}
	return names
}
