package policyfile

import (
	"errors"
	"io"
	"strings"

	"go.yaml.in/yaml/v4"
)

// parseYAML reads a file of YAML. Of YAML it takes what JSON has too, and comments and
// the ways of writing a text.
func (d *decoder) parseYAML() *node {
	loader, err := yaml.NewLoader(strings.NewReader(d.text))
	var document, second yaml.Node
	if err == nil {
		err = loader.Load(&document)
	}
	switch {
	case errors.Is(err, io.EOF):
		d.wrong(0, "the file is empty, or half written: begin with version: 1")
		return nil
	case err != nil:
		d.yamlError(err)
		return nil
	}
	root := document.Content[0]
	if d.yamlError(loader.Load(&second)) {
		return nil
	}
	if second.Kind != 0 {
		d.wrong(d.offset(second.Line, second.Column), "a second document: write one document, without a line of ---")
		return nil
	}
	return d.fromYAML(root)
}

// yamlError reports an error of the library, and whether there is one.
func (d *decoder) yamlError(err error) bool {
	if err == nil || errors.Is(err, io.EOF) {
		return false
	}
	var load *yaml.LoadError
	if !errors.As(err, &load) || load.Mark.Line == 0 {
		d.wrong(0, "not YAML: "+err.Error())
		return true
	}
	problem, mark := load.Message, load.Mark
	if load.ContextMsg != "" && load.ContextMark.Line > 0 {
		problem += ", " + load.ContextMsg
		if strings.Contains(load.Message, "end of stream") {
			mark = load.ContextMark // where it began says more than where the file ends
		}
	}
	d.wrong(d.offset(mark.Line, mark.Column), "not YAML: "+problem+": close quotes and brackets, indent with spaces, and put a text with : or # in quotes")
	return true
}

func (d *decoder) fromYAML(y *yaml.Node) *node {
	n := &node{at: d.offset(y.Line, y.Column), text: y.Value}
	switch {
	case y.Anchor != "":
		d.wrong(n.at, "an anchor: write the value where it is needed, and name addresses in lists")
	case y.Kind == yaml.AliasNode:
		d.wrong(n.at, "an alias: write the value out, and name addresses in lists")
		return nil
	case y.Style&yaml.TaggedStyle != 0:
		d.wrong(n.at, "a tag: leave it out, and put a text in quotes")
	}
	switch y.Kind {
	case yaml.MappingNode:
		n.kind = mapping
		for i := 0; i+1 < len(y.Content); i += 2 {
			key := y.Content[i]
			at := d.offset(key.Line, key.Column)
			if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" || key.Anchor != "" {
				d.wrong(at, "not the name of a field: write one word")
				continue
			}
			n.fields = append(n.fields, field{key.Value, at, d.fromYAML(y.Content[i+1])})
		}
	case yaml.SequenceNode:
		n.kind = list
		for _, item := range y.Content {
			n.items = append(n.items, d.fromYAML(item))
		}
	case yaml.ScalarNode:
		switch y.Tag {
		case "!!str":
			n.kind = text
		case "!!int":
			n.kind = integer
		case "!!bool":
			n.kind = boolean
		case "!!null":
			n.kind = nothing
		default:
			n.kind = scalar
		}
		switch {
		case y.Style&yaml.DoubleQuotedStyle != 0:
			n.style = style{open: 1, escapes: '\\'}
		case y.Style&yaml.SingleQuotedStyle != 0:
			n.style = style{open: 1, escapes: '\''}
		case y.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
			n.style = style{block: true}
		}
	}
	return n
}
