package access

import (
	"bytes"
	"slices"
	"time"
)

// agents are parts of a User-Agent to find. What it costs to look for them depends on
// the length of the text, and hardly on how many there are: a client chooses the text.
type agents struct {
	sorted []agent
	begins [1 << beginBits / 64]uint64 // has a bit for the first bytes of each
}

type agent struct {
	text  []byte // in lower case, of at least minAgent bytes
	until time.Time
}

const beginBits = 13

// begin returns the bit of a text.
func begin(text []byte) uint32 {
	_ = text[minAgent-1]
	return (uint32(text[0])<<16 | uint32(text[1])<<8 | uint32(text[2])) * 2654435761 >> (32 - beginBits)
}

func (a *agents) add(text string, until time.Time) {
	added := agent{[]byte(text), until}
	at, listed := slices.BinarySearchFunc(a.sorted, added.text, func(a agent, text []byte) int { return bytes.Compare(a.text, text) })
	if listed {
		a.sorted[at].until = later(a.sorted[at].until, until)
		return
	}
	a.sorted = slices.Insert(a.sorted, at, added)
	bit := begin(added.text)
	a.begins[bit/64] |= 1 << (bit % 64)
}

// each calls hold for each agent that is in a User-Agent.
func (a *agents) each(userAgent string, hold func(time.Time)) {
	var room [maxUserAgent]byte
	for text := lower(room[:0], userAgent); len(text) >= minAgent; text = text[1:] {
		if bit := begin(text); a.begins[bit/64]>>(bit%64)&1 != 0 {
			a.eachAtBegin(text, hold)
		}
	}
}

// eachAtBegin calls hold for each agent that a text begins with.
func (a *agents) eachAtBegin(text []byte, hold func(time.Time)) {
	for len(text) >= minAgent {
		after, end := 0, len(a.sorted) // of the agents up to the text; slices.BinarySearchFunc would allocate
		for after < end {
			if middle := (after + end) / 2; bytes.Compare(a.sorted[middle].text, text) <= 0 {
				after = middle + 1
			} else {
				end = middle
			}
		}
		if after == 0 {
			return
		}
		last := &a.sorted[after-1] // begins with all that the text begins with
		same := 0
		for same < min(len(text), len(last.text)) && text[same] == last.text[same] {
			same++
		}
		if same == len(last.text) {
			hold(last.until)
			same--
		}
		text = text[:same]
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
