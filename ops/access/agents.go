package access

import (
	"slices"
	"time"
)

// agents are parts of a User-Agent to find. What it costs to look for them depends on
// the length of the text, and hardly on how many there are: a client chooses the text.
// The zero value is ready to use.
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
