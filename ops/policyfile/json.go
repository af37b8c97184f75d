package policyfile

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// maxDepth is how deep the values of a file may be nested: more than any has.
const maxDepth = 16

// parseJSON reads a file of JSON.
func (d *decoder) parseJSON() *node {
	p := jsonParser{decoder: d, json: json.NewDecoder(strings.NewReader(d.text))}
	p.json.UseNumber()
	n, ok := p.value(0)
	if !ok {
		return nil
	}
	if at := afterBlanks(d.text, int(p.json.InputOffset())); at < len(d.text) {
		d.wrong(at, "text after the end of the document: write one JSON object")
		return nil
	}
	return n
}

type jsonParser struct {
	*decoder
	json *json.Decoder
	at   int // of the last token
}

// token reads a token. It reports whether there is one.
func (p *jsonParser) token() (json.Token, bool) {
	before := int(p.json.InputOffset())
	token, err := p.json.Token()
	p.at = before + len(p.text[before:]) - len(strings.TrimLeft(p.text[before:], " \t\r\n,:"))
	if err == nil {
		return token, true
	}
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		p.wrong(int(syntax.Offset)-1, "not JSON: "+syntax.Error())
	case strings.TrimSpace(p.text) == "":
		p.wrong(0, `the file is empty, or half written: begin with {"version": 1`)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		p.wrong(len(strings.TrimRight(p.text, " \t\r\n")), "not JSON: the document ends too early, or is half written: close all quotes and brackets")
	default:
		p.wrong(p.at, "not JSON: "+err.Error())
	}
	return nil, false
}

func (p *jsonParser) value(depth int) (*node, bool) {
	token, ok := p.token()
	if !ok {
		return nil, false
	}
	return p.from(token, depth)
}

// from returns the value that begins with a token.
func (p *jsonParser) from(token json.Token, depth int) (*node, bool) {
	n := &node{at: p.at}
	if depth > maxDepth {
		p.wrong(n.at, "nested too deeply: no value of a policy file is")
		return nil, false
	}
	switch token := token.(type) {
	case nil:
		n.kind = nothing
	case bool:
		n.kind = boolean
	case json.Number:
		n.kind, n.text = integer, token.String()
		if strings.ContainsAny(n.text, ".eE") {
			n.kind = scalar
		}
	case string:
		n.kind, n.text, n.style = text, token, style{open: 1, escapes: '\\'}
	case json.Delim:
		for n.kind = list; ; {
			token2, ok := p.token()
			if !ok {
				return nil, false
			}
			if end, isEnd := token2.(json.Delim); isEnd && (end == ']' || end == '}') {
				if end == '}' {
					n.kind = mapping
				}
				return n, true
			}
			if token == '{' {
				name, at := token2.(string), p.at // the library lets no other key pass
				value, ok := p.value(depth + 1)
				if !ok {
					return nil, false
				}
				n.fields = append(n.fields, field{name, at, value})
				continue
			}
			item, ok := p.from(token2, depth+1)
			if !ok {
				return nil, false
			}
			n.items = append(n.items, item)
		}
	}
	return n, true
}
