package contest

import (
	"fmt"
	"io"
	"strings"

	"github.com/routelimit/limit/benchmarks/internal/stats"
)

// Results are the cells of all rounds, by contender.
type Results map[string][]Cell

// Of returns a value of each round.
func (r Results) Of(contender string, value func(Cell) float64) []float64 {
	var out []float64
	for _, c := range r[contender] {
		out = append(out, value(c))
	}
	return out
}

// Ratios returns the ratios of a value of two contenders in each round.
func (r Results) Ratios(one, other string, value func(Cell) float64) []float64 {
	return stats.Ratios(r.Of(one, value), r.Of(other, value))
}

// A Column of a table has a value, or the ratio of it to that of another contender. The
// format is for one number.
type Column struct {
	Title, Format string
	Value         func(Cell) float64
	To            string // the other contender
}

// The values of several tables.
func PerSecond(c Cell) float64 { return c.PerSecond / 1000 }
func P50(c Cell) float64       { return c.P50 }
func P99(c Cell) float64       { return c.P99 }
func Redis(c Cell) float64     { return c.Redis }
func Client(c Cell) float64    { return c.Client }
func Calls(c Cell) float64     { return c.Calls }
func Allocs(c Cell) float64    { return c.Allocs }
func Admitted(c Cell) float64  { return c.Admitted }

// Write writes a table in Markdown with a row for each contender.
func (r Results) Write(w io.Writer, contenders []Contender, columns ...Column) {
	fmt.Fprint(w, "| |")
	for _, c := range columns {
		fmt.Fprintf(w, " %s |", c.Title)
	}
	fmt.Fprintf(w, "\n|%s\n", strings.Repeat("---|", len(columns)+1))
	for _, row := range contenders {
		fmt.Fprintf(w, "| %s |", row.Name)
		for _, c := range columns {
			values := r.Of(row.Name, c.Value)
			if c.To != "" {
				values = r.Ratios(row.Name, c.To, c.Value)
			}
			fmt.Fprintf(w, " %s |", stats.Spread(c.Format, values))
		}
		fmt.Fprintln(w)
	}
}
