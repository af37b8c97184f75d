package policyfile

import (
	"errors"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// maxKeys bounds the keys and lists of a file of TOML. For each key the library looks through all
// before it: 60,000 of them in 770 kB take 6 s.
const maxKeys = 10_000

// parseTOML reads a file of TOML. The library checks it, and then shows the places of
// its values.
func (d *decoder) parseTOML() *node {
	if at := d.manyKeys(); at >= 0 {
		d.wrongf(at, "more than %d keys and lists: put long lists of clients into one list, or into files of package access, or write YAML or JSON", maxKeys)
		return nil
	}
	var checked map[string]any
	if err := toml.Unmarshal([]byte(d.text), &checked); err != nil {
		var wrong *toml.DecodeError
		if !errors.As(err, &wrong) {
			d.wrong(0, "not TOML: "+err.Error())
			return nil
		}
		line, column := wrong.Position() // in bytes
		d.wrong(d.starts[min(max(line, 1), len(d.starts))-1]+column-1, "not TOML: "+wrong.Error()[len("toml: "):])
		return nil
	}
	root := &node{kind: mapping}
	p := tomlParser{decoder: d, known: make(map[place]*node)}
	p.Reset([]byte(d.text))
	table := root
	for p.NextExpression() {
		switch e := p.Expression(); e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = p.table(root, e)
		case unstable.KeyValue:
			p.set(table, e)
		}
	}
	if len(checked) == 0 {
		d.wrong(0, "the file is empty, or half written: begin with version = 1")
		return nil
	}
	return root
}

// manyKeys returns the place of the first key after maxKeys, or -1. It stops at what is
// not TOML, as the library does.
func (d *decoder) manyKeys() int {
	var p unstable.Parser
	p.Reset([]byte(d.text))
	left, last := maxKeys, 0
	var count func(e *unstable.Node)
	count = func(e *unstable.Node) {
		switch e.Kind {
		case unstable.KeyValue, unstable.Table, unstable.ArrayTable:
			for it := e.Key(); it.Next() && left >= 0; left-- {
				last = int(it.Node().Raw.Offset)
			}
			if e.Kind == unstable.KeyValue {
				count(e.Value())
			}
		case unstable.Array, unstable.InlineTable:
			left-- // the library keeps those without names too
			for it := e.Children(); it.Next() && left >= 0; {
				count(it.Node())
			}
		}
	}
	for left >= 0 && p.NextExpression() {
		count(p.Expression())
	}
	if left >= 0 {
		return -1
	}
	return last
}

type tomlParser struct {
	*decoder
	unstable.Parser
	known map[place]*node
}

// A place is a name in a table.
type place struct {
	table *node
	name  string
}

// add adds a value to a table.
func (p *tomlParser) add(table *node, key *unstable.Node, value *node) *node {
	name := string(key.Data)
	table.fields = append(table.fields, field{name, int(key.Raw.Offset), value})
	p.known[place{table, name}] = value
	return value
}

// table returns the mapping of a header, such as [policies.login].
func (p *tomlParser) table(root *node, e *unstable.Node) *node {
	table := root
	for it := e.Key(); it.Next(); {
		key := it.Node()
		value := p.known[place{table, string(key.Data)}]
		if e.Kind == unstable.ArrayTable && it.IsLast() || value != nil && value.kind == list {
			// No field is a list of tables, which the decoder reports.
			if value == nil {
				value = p.add(table, key, &node{kind: list, at: int(key.Raw.Offset)})
			}
			if it.IsLast() {
				value.items = append(value.items, &node{kind: mapping, at: value.at})
			}
			table = value.items[len(value.items)-1]
			continue
		}
		table = p.within(table, key)
	}
	return table
}

// within returns the mapping of a name in another, and adds it if it is missing.
func (p *tomlParser) within(table *node, key *unstable.Node) *node {
	if value := p.known[place{table, string(key.Data)}]; value != nil {
		return value
	}
	return p.add(table, key, &node{kind: mapping, at: int(key.Raw.Offset)})
}

// set adds the value of a key, which may be dotted.
func (p *tomlParser) set(table *node, e *unstable.Node) {
	value := p.value(e.Value())
	for it := e.Key(); it.Next(); {
		key := it.Node()
		if it.IsLast() {
			if value.at == 0 {
				value.at = int(key.Raw.Offset)
			}
			p.add(table, key, value)
			return
		}
		table = p.within(table, key)
	}
}

func (p *tomlParser) value(e *unstable.Node) *node {
	n := &node{at: int(e.Raw.Offset), text: string(e.Data)}
	switch e.Kind {
	case unstable.String:
		n.kind = text
		raw := p.text[n.at:]
		n.style.open = 1
		if len(raw) > 5 && (raw[:3] == `"""` || raw[:3] == "'''") {
			n.style.open = 3
		}
		if raw[0] == '"' {
			n.style.escapes = '\\'
		}
	case unstable.Integer:
		n.kind = integer
	case unstable.Bool:
		n.kind = boolean
	case unstable.Array:
		n.kind, n.text = list, ""
		for it := e.Children(); it.Next(); {
			if it.Node().Kind != unstable.Comment {
				n.items = append(n.items, p.value(it.Node()))
			}
		}
	case unstable.InlineTable:
		n.kind, n.text = mapping, ""
		for it := e.Children(); it.Next(); {
			if it.Node().Kind == unstable.KeyValue {
				p.set(n, it.Node())
			}
		}
	default:
		n.kind = scalar
	}
	return n
}
