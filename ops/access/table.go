package access

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gaissmai/bart"

	"github.com/routelimit/limit"
)

// A table finds the entries that a request matches. It does not change once it is in
// use. Each entry has the time until which it holds; the zero Time is for good.
type table struct {
	prefixes bart.Table[time.Time]
	users    map[string]time.Time
	agents   agents

	checked atomic.Pointer[limit.Limiter] // the last one that checkProxies has seen
	warned  atomic.Bool                   // by checkProxies
}

func newTable() *table {
	return &table{users: make(map[string]time.Time)}
}

// add adds an entry, or returns why there cannot be another one of its kind. Of prefixes within
// others, the wider one is added first. The other one then holds at least as long, so that the
// longest match alone says how long.
func (t *table) add(e Entry) (problem string) {
	switch e.kind {
	case byPrefix:
		if around, within := t.prefixes.LookupPrefix(e.prefix); within {
			e.until = later(e.until, around)
		}
		t.prefixes.Insert(e.prefix, e.until)
	case byUser:
		if until, listed := t.users[e.text]; listed {
			e.until = later(e.until, until)
		}
		t.users[e.text] = e.until
	case byAgent:
		if len(t.agents.until) == maxAgents {
			return fmt.Sprintf("more than %d agents: write parts that several have in common", maxAgents)
		}
		t.agents.add(e.text, e.until)
	}
	return ""
}

// later returns the later of two times. The zero Time is later than all others.
func later(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && a.After(b) {
		return a
	}
	return b
}

// remaining returns the longest that the entries which a request matches still hold: limit.Never
// for good, 0 if there is none.
func (t *table) remaining(c limit.Client) time.Duration {
	var longest time.Duration
	hold := func(until time.Time) {
		if until.IsZero() {
			longest = limit.Never
		} else if longest != limit.Never {
			longest = max(longest, time.Until(until))
		}
	}
	if t.prefixes.Size() > 0 {
		if ip := c.IP(); ip.IsValid() {
			if until, ok := t.prefixes.Lookup(ip); ok {
				hold(until)
			}
		}
	}
	if len(t.users) > 0 && longest != limit.Never {
		if until, ok := t.users[c.User()]; ok { // no entry is of the user ""
			hold(until)
		}
	}
	if len(t.agents.until) > 0 && longest != limit.Never {
		t.agents.each(c.Request.UserAgent(), hold)
	}
	return longest
}

// agents are parts of a User-Agent to find. To look for them costs by the length of the text, which
// a client chooses, and hardly by how many they are. The zero value is ready to use.
type agents struct {
	until   map[string]time.Time // by part, in lower case, of at least minAgent bytes
	lengths map[string][]int     // of the parts, by their first minAgent bytes
	begins  [1 << 16 / 64]uint64 // has a bit for the first two bytes of each, to skip most look-ups
}

// begin returns the bit of a part in agents.begins.
func begin[T string | []byte](part T) (word int, bit uint64) {
	first := int(part[0])<<8 | int(part[1])
	return first / 64, 1 << (first % 64)
}

func (a *agents) add(part string, until time.Time) {
	if a.until == nil {
		a.until, a.lengths = make(map[string]time.Time), make(map[string][]int)
	}
	if listed, twice := a.until[part]; twice {
		until = later(listed, until)
	}
	a.until[part] = until
	word, bit := begin(part)
	a.begins[word] |= bit
	if begin := part[:minAgent]; !slices.Contains(a.lengths[begin], len(part)) {
		a.lengths[begin] = append(a.lengths[begin], len(part))
	}
}

// each calls hold for each agent that is in a User-Agent.
func (a *agents) each(userAgent string, hold func(time.Time)) {
	var room [maxUserAgent]byte
	for text := lower(room[:0], userAgent); len(text) >= minAgent; text = text[1:] {
		if word, bit := begin(text); a.begins[word]&bit == 0 {
			continue
		}
		for _, n := range a.lengths[string(text[:minAgent])] {
			if n > len(text) {
				continue
			}
			if until, listed := a.until[string(text[:n])]; listed {
				hold(until)
			}
		}
	}
}

// maxUserAgent bounds what a long User-Agent costs.
const maxUserAgent = 1024

// lower appends the beginning of a text to b, with the letters A to Z in lower case.
func lower(b []byte, text string) []byte {
	b = append(b, text[:min(len(text), cap(b)-len(b))]...)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return b
}
