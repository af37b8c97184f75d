package policyfile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

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

// wrong reports a mistake at a value, or at the beginning of the file if that is nil.
func (d *decoder) wrong(n *yaml.Node, format string, args ...any) { d.wrongIn(n, -1, format, args...) }

// wrongIn reports a mistake at byte i of a text, or at its beginning if i is -1.
func (d *decoder) wrongIn(n *yaml.Node, i int, format string, args ...any) {
	switch {
	case len(d.errs) == maxErrors:
		d.more++ // without a search for the place
	case n == nil:
		d.wrongAt(0, format, args...)
	case i < 0:
		d.wrongAt(d.start(n), format, args...)
	default:
		d.wrongAt(d.inside(n, i), format, args...)
	}
}

// wrongAt reports a mistake at a byte of the file.
func (d *decoder) wrongAt(at int, format string, args ...any) {
	problem := fmt.Sprintf(format, args...)
	if len(problem) > maxProblem {
		problem = strings.ToValidUTF8(problem[:maxProblem], "") + "…"
	}
	d.errs = append(d.errs, d.error(at, problem))
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

// tree reads the text. It returns nil if it has reported that there is no tree of the
// values that JSON has: YAML also has anchors, aliases, tags and merged mappings.
func (d *decoder) tree() (root *yaml.Node) {
	if at := badByte(d.text); at >= 0 {
		d.wrongAt(at, "byte %#02x is not text: write UTF-8 without control characters", d.text[at])
		return nil
	}
	switch strings.ToLower(path.Ext(d.name)) {
	case ".yaml", ".yml":
		if d.text != "" && !strings.HasSuffix(d.text, "\n") {
			d.wrongAt(len(strings.TrimSuffix(d.text, "\r")), "the last line has no line feed, so the file may be half written: end the line")
			return nil
		}
	case ".json": // which is YAML that ends with a bracket: see block
	default:
		d.wrong(nil, "the name of the file does not say its format: end it with .yaml or .json")
		return nil
	}
	loader, err := yaml.NewLoader(strings.NewReader(d.text))
	var document, second yaml.Node
	if err == nil {
		err = loader.Load(&document)
	}
	if errors.Is(err, io.EOF) {
		d.wrong(nil, "the file is empty, or half written: begin with version: 1")
		return nil
	}
	if err == nil {
		err = loader.Load(&second)
	}
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		d.syntax(err)
	case second.Kind != 0:
		d.wrong(&second, "a second document: write one document, without a line of ---")
	case strings.EqualFold(path.Ext(d.name), ".json") && block(document.Content[0]):
		d.wrong(document.Content[0], "not JSON: begin the file with {, or end its name with .yaml")
	default:
		d.plain(document.Content[0])
	}
	if len(d.errs) > 0 {
		return nil
	}
	return document.Content[0]
}

// block reports whether a value is written in lines, as JSON has none: such a file may be
// half written wherever it ends.
func block(n *yaml.Node) bool {
	return n.Kind != yaml.ScalarNode && n.Style&yaml.FlowStyle == 0
}

// badByte returns the offset of a byte that is not text, or -1.
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

// syntax reports an error of the YAML library.
func (d *decoder) syntax(err error) {
	var load *yaml.LoadError
	end := len(strings.TrimRight(d.text, " \t\r\n"))
	if path.Ext(d.name) == ".json" && end > 0 && d.text[end-1] != '}' {
		d.wrongAt(end, "the document ends too early, or is half written: close all quotes and brackets")
		return
	}
	if !errors.As(err, &load) || load.Mark.Line == 0 {
		d.wrong(nil, "not YAML: %v", err)
		return
	}
	problem, mark := load.Message, load.Mark
	if load.ContextMsg != "" && load.ContextMark.Line > 0 {
		problem += ", " + load.ContextMsg
		if strings.Contains(load.Message, "end of stream") {
			mark = load.ContextMark // where it began says more than where the file ends
		}
	}
	d.wrongAt(d.offset(mark.Line, mark.Column), "not YAML: %s: close quotes and brackets, indent with spaces, and put a text with : or # in quotes", problem)
}

// plain reports what JSON does not have.
func (d *decoder) plain(n *yaml.Node) {
	switch {
	case n.Anchor != "":
		d.wrong(n, "an anchor: write the value where it is needed, and name addresses in lists")
	case n.Kind == yaml.AliasNode:
		d.wrong(n, "an alias: write the value out, and name addresses in lists")
	case n.Style&yaml.TaggedStyle != 0:
		d.wrong(n, "a tag: leave it out, and put a text in quotes")
	}
	for i, child := range n.Content {
		if key := n.Kind == yaml.MappingNode && i%2 == 0; key && (child.Kind != yaml.ScalarNode || child.Tag == "!!merge") {
			d.wrong(child, "not the name of a field: write one word")
			continue
		}
		d.plain(child)
	}
}

const (
	tagText    = "!!str"
	tagNumber  = "!!int"
	tagList    = "!!seq"
	tagMapping = "!!map"
)

// kind describes a value.
func kind(n *yaml.Node) string {
	names := map[string]string{tagText: "a text", tagNumber: "a number", tagList: "a list", tagMapping: "a mapping",
		"!!null": "nothing", "!!bool": "true or false"}
	return cmp.Or(names[n.Tag], "a value of another kind")
}

// A field is a part of a mapping.
type field struct {
	name  string
	node  *yaml.Node // of the name
	value *yaml.Node
}

// object returns the fields of a mapping with known names. Those that are missing are
// nil.
func (d *decoder) object(n *yaml.Node, what string, known ...string) map[string]*yaml.Node {
	fields := make(map[string]*yaml.Node)
	for _, f := range d.members(n, what) {
		if !slices.Contains(known, f.name) {
			d.wrong(f.node, "unknown field %s of %s: write one of %s", quoted(f.name), what, strings.Join(known, ", "))
			continue
		}
		fields[f.name] = f.value
	}
	return fields
}

// members returns the fields of a mapping without those that have a name twice.
func (d *decoder) members(n *yaml.Node, what string) (fields []field) {
	if n == nil {
		return nil
	}
	if n.Tag != tagMapping {
		d.wrong(n, "%s is a mapping of names to values, and not %s", what, kind(n))
		return nil
	}
	first := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		f := field{n.Content[i].Value, n.Content[i], n.Content[i+1]}
		if line, twice := first[f.name]; twice {
			d.wrong(f.node, "%s has %s twice, first in line %d: remove one of them", what, quoted(f.name), line)
			continue
		}
		first[f.name] = f.node.Line
		fields = append(fields, f)
	}
	return fields
}

// texts returns the texts of a list, or none of nil.
func (d *decoder) texts(n *yaml.Node, what, example string) (texts []*yaml.Node) {
	if n == nil {
		return nil
	}
	if n.Tag != tagList {
		d.wrong(n, "%s is a list of texts, and not %s: write [%s]", what, kind(n), example)
		return nil
	}
	for _, item := range n.Content {
		if item.Tag != tagText {
			d.wrong(item, "%s is a list of texts, and this is %s: write %s", what, kind(item), example)
			continue
		}
		texts = append(texts, item)
	}
	return texts
}

// version reports whether this program knows the version of the file.
func (d *decoder) version(root, version *yaml.Node) bool {
	switch {
	case version == nil:
		if root.Tag == tagMapping {
			d.wrong(root, "no version: write version: 1, so that later programs know how to read the file")
		}
	case version.Tag != tagNumber:
		d.wrong(version, "the version is a number, and not %s: write 1", kind(version))
	default:
		n, err := strconv.Atoi(version.Value)
		if err == nil && n > formatVersion {
			d.errs, d.more = nil, 0
			d.wrong(version, "the file has version %d, and this program knows %d: update the program, or write a file of version %d",
				n, formatVersion, formatVersion)
			return false
		}
		if n != formatVersion {
			d.wrong(version, "no version of this format: write %d", formatVersion)
		}
	}
	return true
}
