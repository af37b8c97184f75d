// Package grammar reads and writes rules as text, such as
// "5/2s per ip; 1000/1m global". The grammar is in the comment of limit.Parse.
//
// The package checks the form of a text. Package limit converts the result to
// its own rules, and validates them.
package grammar

import (
	"strconv"
	"strings"
	"time"

	"github.com/routelimit/limit/core"
)

// A Rule is a rule as a text declares it. A field is zero if the text does not
// mention it.
type Rule struct {
	Name   string
	Limit  int64
	Window time.Duration // 0 if there is a Calendar
	Key    Key

	Algorithm core.Algorithm
	Aligned   bool
	Calendar  core.Calendar // the zone, and the unit that replaces the window
	Cells     int64
	Burst     int64
	Missing   int64
	Empty     bool // a bucket that begins empty; Missing is 0
	MaxWait   time.Duration
	Bar       time.Duration // of a ban
	MaxBar    time.Duration
	Values    Key // that are to be distinct
	OnError   core.OnError

	Refusal  Refusal
	Shadow   bool
	Enforced int64 // a percentage
	Replaces string
	Hidden   bool

	Plans   map[string]int64 // limits
	Reserve map[string]int64 // units for classes
	Exempt  []string         // "ip 10.0.0.0/8"
}

// String returns r as a text. Parse reads it back, unless a value of r has no
// text.
func (r Rule) String() string {
	var b strings.Builder
	if r.Name != "" {
		b.WriteString(r.Name + ": ")
	}
	b.WriteString(strconv.FormatInt(r.Limit, 10) + "/")
	if r.Calendar.Unit != 0 {
		b.WriteString(UnitWord(r.Calendar.Unit))
	} else {
		b.WriteString(FormatWindow(r.Window))
	}
	if r.Key.Kind != Global {
		b.WriteString(" per")
	}
	b.WriteString(" " + r.Key.String())
	r.writeAttributes(&b)
	return b.String()
}

// Format returns rules as a text.
func Format(rules []Rule) string {
	texts := make([]string, len(rules))
	for i, r := range rules {
		texts[i] = r.String()
	}
	return strings.Join(texts, "; ")
}

// MaxName is the length in bytes of the longest name.
const MaxName = 64

// ValidName reports whether name can be the name of a rule or of a policy:
// letters, digits, '.', '_' and '-', at most MaxName of them.
func ValidName(name string) bool {
	return name != "" && len(name) <= MaxName && !strings.ContainsFunc(name, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			c == '.' || c == '_' || c == '-')
	})
}
