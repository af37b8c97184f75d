// Package doctor checks a deployment of the library and says what to change.
//
// [Redis] and [Web] ask servers and collect facts; a fact that is missing has a reason in its
// place. [Examine] runs the checks, which are pure functions from facts to findings. [Print] and
// [PrintJSON] make findings safe to display, since attackers choose the names of keys.
package doctor

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/routelimit/limit/cmd/limitctl/internal/words"
)

// Facts describe a deployment.
type Facts struct {
	Redis *RedisFacts // nil if no Redis was named
	Web   *WebFacts   // nil if no application was named
}

// A Verdict is the result of a check.
type Verdict string

const (
	OK      Verdict = "ok"
	Warn    Verdict = "warn"    // it works now, but not in every situation
	Fail    Verdict = "fail"    // limits do not hold, or requests are not decided
	Skipped Verdict = "skipped" // it could not be checked
)

// A Finding is what a check found, on one node or several.
type Finding struct {
	Check   string   `json:"check"` // its id, which does not change
	Verdict Verdict  `json:"verdict"`
	Nodes   []string `json:"nodes,omitempty"` // their addresses
	Found   string   `json:"found"`
	Why     string   `json:"why"`           // it matters
	Fix     []string `json:"fix,omitempty"` // what to change, as commands where possible
}

// ExitCode returns 2 if there is a failure, else 1 if there is a warning, else 0.
func ExitCode(findings []Finding) int {
	worst := 0
	for _, f := range findings {
		worst = max(worst, map[Verdict]int{Warn: 1, Fail: 2}[f.Verdict])
	}
	return worst
}

// A check has one function, for each node, for all nodes or for the application.
type check struct {
	id, why string
	node    func(*RedisFacts, *Node) Finding
	primary bool // whether node is for primaries only
	redis   func(*RedisFacts) Finding
	web     func(*WebFacts) Finding
}

// because returns a finding of a check, whose name and nodes Examine adds. The zero Finding means
// that the check does not apply.
func (v Verdict) because(format string, args ...any) Finding {
	return Finding{Verdict: v, Found: fmt.Sprintf(format, args...)}
}

// change adds what to change. Examine completes "redis-cli" by the address.
func (f Finding) change(fixes ...string) Finding {
	f.Fix = append(f.Fix, fixes...)
	return f
}

// Examine runs all checks. Nodes with the same result share a finding.
func Examine(facts Facts) (all []Finding) {
	for _, c := range checks {
		switch {
		case c.web != nil && facts.Web != nil:
			all = c.add(all, c.web(facts.Web), nil, "")
		case facts.Redis == nil:
		case c.redis != nil:
			all = c.add(all, c.redis(facts.Redis), facts.Redis, "")
		case c.node != nil:
			for i := range facts.Redis.Nodes {
				n := &facts.Redis.Nodes[i]
				if (n.Err == "" || c.id == "connect") && !(c.primary && n.replica()) {
					all = c.add(all, c.node(facts.Redis, n), facts.Redis, n.Addr)
				}
			}
		}
	}
	for _, f := range all { // commands first
		slices.SortStableFunc(f.Fix, func(a, b string) int {
			return cmp.Compare(isCommand(b), isCommand(a))
		})
	}
	return all
}

// add adds what the check found on a node, if it applies, to the same finding on another one.
func (c *check) add(all []Finding, found Finding, redis *RedisFacts, node string) []Finding {
	if found.Verdict == "" {
		return all
	}
	i := slices.IndexFunc(all, func(f Finding) bool {
		return f.Check == c.id && f.Verdict == found.Verdict && f.Found == found.Found
	})
	if i < 0 {
		i, all = len(all), append(all, Finding{Check: c.id, Verdict: found.Verdict, Found: found.Found, Why: c.why})
	}
	f := &all[i]
	if node != "" {
		f.Nodes = append(f.Nodes, node)
	}
	for _, fix := range found.Fix {
		if fix = complete(redis, fix, node); !slices.Contains(f.Fix, fix) {
			f.Fix = append(f.Fix, fix)
		}
	}
	return all
}

func isCommand(fix string) int {
	if strings.HasPrefix(fix, "redis-cli ") {
		return 1
	}
	return 0
}

func complete(facts *RedisFacts, fix, node string) string {
	rest, is := strings.CutPrefix(fix, "redis-cli ")
	host, port, err := net.SplitHostPort(node)
	if !is || err != nil {
		return fix
	}
	if facts.TLS {
		host += " --tls"
	}
	return "redis-cli -h " + host + " -p " + port + " " + rest
}

// Print writes findings as text that is safe to display, and their number by verdict.
func Print(w io.Writer, findings []Finding) error {
	var b strings.Builder
	line := func(format string, args ...any) {
		b.WriteString(words.Printable(fmt.Sprintf(format, args...)) + "\n")
	}
	count := make(map[Verdict]int)
	nodes := make(map[string]bool)
	for _, f := range findings {
		count[f.Verdict]++
		for _, n := range f.Nodes {
			nodes[n] = true
		}
	}
	for _, f := range findings {
		where := ""
		if len(nodes) > 1 && len(f.Nodes) > 0 {
			where = " [" + strings.Join(f.Nodes, ", ") + "]"
			if len(f.Nodes) == len(nodes) {
				where = " [all nodes]"
			}
		}
		line("%-8s %-16s %s%s", f.Verdict, f.Check, f.Found, where)
		if f.Verdict == Warn || f.Verdict == Fail {
			line("%26s%s", "", f.Why)
			for _, fix := range f.Fix {
				mark := "-"
				if isCommand(fix) > 0 {
					mark = ">"
				}
				line("%24s%s %s", "", mark, fix)
			}
		}
	}
	line("")
	line("%d ok, %d warn, %d fail, %d skipped", count[OK], count[Warn], count[Fail], count[Skipped])
	_, err := io.WriteString(w, b.String())
	return err
}

// PrintJSON writes each finding as a line of JSON.
func PrintJSON(w io.Writer, findings []Finding) error {
	for _, f := range findings {
		if err := words.WriteJSON(w, f, false); err != nil {
			return err
		}
	}
	return nil
}
