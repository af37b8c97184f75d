package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/routelimit/limit/internal/excerpt"
)

// String describes a server in a line.
func (s Server) String() string {
	var b strings.Builder
	b.WriteString(excerpt.Printable(s.Address))
	if s.Version != "" {
		fmt.Fprintf(&b, ", Redis %s", excerpt.Printable(s.Version))
	}
	if s.Primary > 1 {
		fmt.Fprintf(&b, ", a Cluster of %d primaries", s.Primary)
	}
	if s.Replicas > 0 {
		fmt.Fprintf(&b, ", %s", count(float64(s.Replicas), "replica"))
	}
	if s.Local {
		b.WriteString(", on this machine")
	}
	return b.String()
}

// Before says how busy the server was before it is loaded, for a person who decides
// whether to load it. It returns "" if the server does not say.
func (s Server) Before() string {
	if s.Commands < 0 {
		return ""
	}
	return fmt.Sprintf("It ran %s a second just before. ", count(s.Commands, "command"))
}

// JSON writes a result as one object.
func (r *Result) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Text writes a result for a person.
func (r *Result) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Redis      %s\n", r.Server)
	for i, p := range r.Policies {
		head := ""
		if i == 0 {
			head = "Rules"
		}
		text := excerpt.Printable(strings.Join(p.Texts, "; "))
		if len(r.Policies) > 1 {
			text = p.Name + ": " + text
		}
		fmt.Fprintf(&b, "%-10s %s\n", head, text)
	}
	fmt.Fprintf(&b, "Windows    shortened so that no request is refused\n")
	fmt.Fprintf(&b, "Clients    %s\n", thousands(float64(r.Clients)))
	if r.RoundTrip > 0 {
		fmt.Fprintf(&b, "PING       %s (p50)\n", short(r.RoundTrip))
	}
	b.WriteString("\n")
	t := tabwriter.NewWriter(&b, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "callers\tdecisions/s\tp50\tp90\tp99\tp99.9\tmax\tRedis busy\tcores here\tdecisions/call\t\n")
	for _, run := range r.Runs {
		callers, server, call := fmt.Sprint(run.Callers), "?", "?"
		if run.Hot {
			callers += ", one client"
		}
		if run.ServerBusy > 0 {
			server = fmt.Sprintf("%.0f %%", 100*run.ServerBusy)
		}
		if run.PerCall > 0 {
			call = fmt.Sprintf("%.1f", run.PerCall)
		}
		l := run.Latency
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.1f\t%s\t\n", callers, thousands(run.PerSecond),
			short(l.P50), short(l.P90), short(l.P99), short(l.P999), short(l.Max), server, run.ClientCores, call)
	}
	t.Flush() // a strings.Builder does not fail
	fmt.Fprintf(&b, "\nThe limit is %s\n", r.Why)
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "Note: %s\n", excerpt.Printable(note))
	}
	if r.Interrupted {
		b.WriteString("Interrupted before the last run.\n")
	}
	fmt.Fprintf(&b, "\n%s\n", r.Summary)
	_, err := io.WriteString(w, b.String())
	return err
}
