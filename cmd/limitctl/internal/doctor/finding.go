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

// A Verdict is the result of a check.
type Verdict string

// The verdicts.
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
	code := 0
	for _, f := range findings {
		switch f.Verdict {
		case Fail:
			return 2
		case Warn:
			code = 1
		}
	}
	return code
}

// A check has one function, for each node, for all nodes or for the application.
type check struct {
	id, why string
	node    func(*RedisFacts, *Node) result
	primary bool // whether node is for primaries only
	redis   func(*RedisFacts) result
	web     func(*WebFacts) result
}

// A result is what a check found on one node, or on all. The zero result means that
// the check does not apply.
type result struct {
	verdict Verdict
	found   string
	fix     []string
}

func ok(format string, args ...any) result {
	return result{verdict: OK, found: fmt.Sprintf(format, args...)}
}

func skipped(format string, args ...any) result {
	return result{verdict: Skipped, found: fmt.Sprintf(format, args...)}
}

func (v Verdict) because(format string, args ...any) result {
	return result{verdict: v, found: fmt.Sprintf(format, args...)}
}

// change adds what to change. Examine completes "redis-cli" by the address.
func (r result) change(fixes ...string) result {
	r.fix = append(r.fix, fixes...)
	return r
}

// Examine runs all checks. Nodes with the same result share a finding.
func Examine(facts Facts) []Finding {
	var all []Finding
	add := func(c check, r result, node string) {
		if r.verdict == "" {
			return
		}
		for i, fix := range r.fix {
			r.fix[i] = complete(facts.Redis, fix, node)
		}
		last := slices.IndexFunc(all, func(f Finding) bool {
			return f.Check == c.id && f.Verdict == r.verdict && f.Found == r.found
		})
		if last < 0 {
			all = append(all, Finding{Check: c.id, Verdict: r.verdict, Found: r.found, Why: c.why})
			last = len(all) - 1
		}
		f := &all[last]
		if node != "" {
			f.Nodes = append(f.Nodes, node)
		}
		for _, fix := range r.fix {
			if !slices.Contains(f.Fix, fix) {
				f.Fix = append(f.Fix, fix)
			}
		}
	}
	for _, c := range checks {
		switch {
		case c.web != nil && facts.Web != nil:
			add(c, c.web(facts.Web), "")
		case facts.Redis == nil:
		case c.redis != nil:
			add(c, c.redis(facts.Redis), "")
		case c.node != nil:
			for i := range facts.Redis.Nodes {
				n := &facts.Redis.Nodes[i]
				if (n.Err == "" || c.id == "connect") && !(c.primary && n.replica()) {
					add(c, c.node(facts.Redis, n), n.Addr)
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
		for _, n := range f.Nodes {
			nodes[n] = true
		}
	}
	for _, f := range findings {
		count[f.Verdict]++
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
