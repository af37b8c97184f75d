package policyfile

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/routelimit/limit/rules"
)

// Bounds on a file.
const (
	maxFile     = 1 << 20
	maxPolicies = 1000
	maxRoutes   = 2000
	maxErrors   = 100
	maxProblem  = 1000
)

// A decoder reads a file, and collects what is wrong with it.
type decoder struct {
	*source
	functions rules.Functions // that rules can name

	errs []*Error
	more int // mistakes that are not in errs
}

func (d *decoder) wrong(at int, problem string) {
	if len(d.errs) == maxErrors {
		d.more++
		return
	}
	if len(problem) > maxProblem {
		problem = strings.ToValidUTF8(problem[:maxProblem], "") + "…"
	}
	d.errs = append(d.errs, d.error(at, problem))
}

func (d *decoder) wrongf(at int, format string, args ...any) {
	d.wrong(at, fmt.Sprintf(format, args...))
}

// err joins the errors in the order of their places.
func (d *decoder) err() error {
	slices.SortStableFunc(d.errs, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	d.errs = slices.CompactFunc(d.errs, func(a, b *Error) bool { return *a == *b })
	errs := make([]error, 0, len(d.errs)+1)
	for _, err := range d.errs {
		errs = append(errs, err)
	}
	if d.more > 0 {
		errs = append(errs, fmt.Errorf("%s: %d more mistakes", d.name, d.more))
	}
	return errors.Join(errs...)
}

// tree reads the text in the format that the name of the file says. It returns nil if
// it has reported that there is none.
func (d *decoder) tree() *node {
	if at := badByte(d.text); at >= 0 {
		d.wrongf(at, "byte %#02x is not text: write UTF-8 without control characters", d.text[at])
		return nil
	}
	switch strings.ToLower(path.Ext(d.name)) {
	case ".yaml", ".yml":
		if d.halfWritten() {
			return nil
		}
		return d.parseYAML()
	case ".json":
		return d.parseJSON()
	case ".toml":
		if d.halfWritten() {
			return nil
		}
		return d.parseTOML()
	}
	d.wrong(0, "the name of the file does not say its format: end it with .yaml, .json or .toml")
	return nil
}

// halfWritten reports a last line without an end. JSON has another sign.
func (d *decoder) halfWritten() bool {
	if d.text == "" || strings.HasSuffix(d.text, "\n") {
		return false
	}
	d.wrong(len(d.text), "the last line has no line feed, so the file may be half written: end the line")
	return true
}

// badByte returns the place of a byte that is not text, or -1.
func badByte(text string) int {
	for at, c := range text {
		switch {
		case c == utf8.RuneError && !strings.HasPrefix(text[at:], "\uFFFD"):
			return at
		case c < ' ' && c != '\t' && c != '\n' && c != '\r', c == 0x7f, 0x80 <= c && c < 0xa0:
			return at
		}
	}
	return -1
}

// object returns the fields of a mapping with known names.
func (d *decoder) object(n *node, what string, known ...string) map[string]field {
	fields := make(map[string]field)
	for _, f := range d.members(n, what) {
		if !slices.Contains(known, f.name) {
			d.wrongf(f.at, "unknown field %s of %s: write one of %s", quoted(f.name), what, strings.Join(known, ", "))
			continue
		}
		fields[f.name] = f
	}
	return fields
}

// members returns the fields of a mapping without those that have a name twice.
func (d *decoder) members(n *node, what string) []field {
	if n == nil {
		return nil // reported
	}
	if n.kind != mapping {
		d.wrongf(n.at, "%s is a mapping of names to values, and not %s", what, kinds[n.kind])
		return nil
	}
	first := make(map[string]int)
	var fields []field
	for _, f := range n.fields {
		if at, twice := first[f.name]; twice {
			line, _ := d.line(at)
			d.wrongf(f.at, "%s has %s twice, first in line %d: remove one of them", what, quoted(f.name), line+1)
			continue
		}
		first[f.name] = f.at
		fields = append(fields, f)
	}
	return fields
}

// texts returns the texts of a list. If one is set, a text alone is a list of one.
func (d *decoder) texts(n *node, what, example string, one bool) []*node {
	switch {
	case n == nil:
		return nil
	case one && n.kind == text:
		return []*node{n}
	case n.kind != list:
		d.wrongf(n.at, "%s is a list of texts, and not %s: write [%s]", what, kinds[n.kind], example)
		return nil
	}
	var texts []*node
	for _, item := range n.items {
		switch {
		case item == nil:
		case item.kind != text:
			d.wrongf(item.at, "%s is a list of texts, and this is %s: write %s", what, kinds[item.kind], example)
		default:
			texts = append(texts, item)
		}
	}
	return texts
}

// version reports whether this program knows the version of the file.
func (d *decoder) version(root *node, fields map[string]field) bool {
	f, ok := fields["version"]
	switch {
	case !ok:
		if root.kind == mapping {
			d.wrong(root.at, "no version: write version: 1, so that later programs know how to read the file")
		}
		return true
	case f.value == nil:
	case f.value.kind != integer:
		d.wrongf(f.value.at, "the version is a number, and not %s: write 1", kinds[f.value.kind])
	default:
		n, err := strconv.Atoi(f.value.text)
		if err == nil && n > formatVersion {
			d.errs, d.more = nil, 0
			d.wrongf(f.value.at, "the file has version %d, and this program knows %d: update the program, or write a file of version %d", n, formatVersion, formatVersion)
			return false
		}
		if n != formatVersion {
			d.wrongf(f.value.at, "no version of this format: write %d", formatVersion)
		}
	}
	return true
}
