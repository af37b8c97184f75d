package accesslog

import (
	"slices"
)

// A target says which field of a [Record] a value is for.
type target uint8

const (
	tTime target = iota
	tClient
	tUser
	tMethod
	tTarget // a path, maybe with its query, or a URL
	tQuery
	tStatus
	tBytes
	tAgent
	tHost
	tRequest   // a whole request line
	tForwarded // X-Forwarded-For, whose last entry is the client
	tField     // and those after it: Record.Fields
)

const (
	maxFields  = 8
	maxTargets = int(tField) + maxFields
)

// A tree says what the names in a JSON object mean.
type tree struct {
	root     branch
	required []target
}

// A branch is a JSON object. Most names in a log are of no interest, so they are
// searched by their lengths: names[from[n]:from[n+1]] have n bytes.
type branch struct {
	names []name
	from  [maxName + 2]uint8
}

// maxName is the length of the longest name that a format may search.
const maxName = 64

type name struct {
	text   string
	inside *branch // of an object
	target target  // otherwise
	rank   uint8   // of several names for one target, the lowest one that has a value counts
}

// add gives a target to a name, with dots between the names of nested objects. A name
// may also contain the dots itself.
func (t *tree) add(path string, to target, rank uint8) {
	at := &t.root
	at.set(name{text: path, target: to, rank: rank})
	for {
		before, after, nested := cutName(path)
		if !nested {
			return
		}
		next := at.inside(before)
		next.set(name{text: after, target: to, rank: rank})
		at, path = next, after
	}
}

func cutName(path string) (before, after string, ok bool) {
	for i := 1; i+1 < len(path); i++ {
		if path[i] == '.' {
			return path[:i], path[i+1:], true
		}
	}
	return path, "", false
}

func (b *branch) set(n name) {
	for i := range b.names {
		if b.names[i].text == n.text && b.names[i].inside == nil {
			b.names[i] = n
			return
		}
	}
	b.names = append(b.names, n)
}

func (b *branch) inside(text string) *branch {
	for i := range b.names {
		if b.names[i].text == text && b.names[i].inside != nil {
			return b.names[i].inside
		}
	}
	n := name{text: text, inside: new(branch)}
	b.names = append(b.names, n)
	return n.inside
}

// A scanner reads one line of JSON. It allocates nothing: values are parts of the line.
type scanner struct {
	b     []byte
	at    int
	found [maxTargets][]byte
	ranks [maxTargets]uint8 // 0 where nothing was found, otherwise the rank and 1
}

// maxDepth bounds how deep objects and lists are nested.
const maxDepth = 64

func (s *scanner) blanks() {
	for s.at < len(s.b) {
		switch s.b[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return
		}
	}
}

// accept skips blanks and a byte that must be next.
func (s *scanner) accept(c byte) bool {
	s.blanks()
	if s.at < len(s.b) && s.b[s.at] == c {
		s.at++
		return true
	}
	return false
}

// text reads a string, and returns what is between its quotes.
func (s *scanner) text() ([]byte, bool) {
	if !s.accept('"') {
		return nil, false
	}
	n := quote(s.b[s.at:])
	if n < 0 {
		return nil, false
	}
	v := s.b[s.at : s.at+n]
	s.at += n + 1
	return v, true
}

// object reads an object. A nil branch has no name of interest.
func (s *scanner) object(in *branch, depth int) bool {
	if depth > maxDepth || !s.accept('{') {
		return false
	}
	if s.accept('}') {
		return true
	}
	for {
		key, ok := s.text()
		if !ok || !s.accept(':') {
			return false
		}
		var target *name
		var inside *branch
		if in != nil {
			target, inside = in.find(key)
		}
		if !s.value(target, inside, depth+1) {
			return false
		}
		if s.accept('}') {
			return true
		}
		if !s.accept(',') {
			return false
		}
	}
}

// index prepares find, when all names have been added.
func (b *branch) index() {
	slices.SortStableFunc(b.names, func(x, y name) int { return len(x.text) - len(y.text) })
	for length := range b.from {
		i := slices.IndexFunc(b.names, func(n name) bool { return len(n.text) >= length })
		if i < 0 {
			i = len(b.names)
		}
		b.from[length] = uint8(i)
	}
	for i := range b.names {
		if inside := b.names[i].inside; inside != nil {
			inside.index()
		}
	}
}

// find returns what a name means. It may be a value in one log and an object in another.
func (b *branch) find(key []byte) (target *name, inside *branch) {
	if len(key) > maxName {
		return nil, nil
	}
	for i := b.from[len(key)]; i < b.from[len(key)+1]; i++ {
		if n := &b.names[i]; n.text == string(key) {
			if n.inside != nil {
				inside = n.inside
			} else {
				target = n
			}
		}
	}
	return target, inside
}

// value reads a value, and keeps it if it has a target: of a list, the first one.
func (s *scanner) value(to *name, inside *branch, depth int) bool {
	s.blanks()
	if s.at == len(s.b) || depth > maxDepth {
		return false
	}
	var v []byte
	switch c := s.b[s.at]; c {
	case '{':
		return s.object(inside, depth)
	case '[':
		s.at++
		if s.accept(']') {
			return true
		}
		for {
			if !s.value(to, nil, depth+1) {
				return false
			}
			to = nil
			if s.accept(']') {
				return true
			}
			if !s.accept(',') {
				return false
			}
		}
	case '"':
		var ok bool
		if v, ok = s.text(); !ok {
			return false
		}
	default:
		start := s.at
		for s.at < len(s.b) && !delimiter(s.b[s.at]) {
			s.at++
		}
		v = s.b[start:s.at]
		if !scalar(v) {
			return false
		}
		if v[0] == 'n' { // null
			return true
		}
	}
	if to == nil || len(v) == 0 || len(v) == 1 && v[0] == '-' {
		return true
	}
	if t := to.target; s.ranks[t] == 0 || to.rank+1 < s.ranks[t] {
		s.found[t], s.ranks[t] = v, to.rank+1
	}
	return true
}

func delimiter(c byte) bool {
	switch c {
	case ',', '}', ']', ' ', '\t', '\r', '\n', ':', '"', '{', '[':
		return true
	}
	return false
}

func scalar(v []byte) bool {
	switch {
	case len(v) == 0:
		return false
	case v[0] == '-' || '0' <= v[0] && v[0] <= '9':
		return true
	}
	return string(v) == "true" || string(v) == "false" || string(v) == "null"
}

// parseJSON reads a line of JSON by the tree of its format.
func parseJSON(f *Format, line []byte, r *Record) error {
	s := scanner{b: line}
	if !s.object(&f.tree.root, 0) {
		return errJSON
	}
	if s.blanks(); s.at < len(line) {
		return errMore
	}
	for _, t := range f.tree.required {
		if s.ranks[t] == 0 {
			return errMissing
		}
	}
	return r.fill(&s.found)
}
