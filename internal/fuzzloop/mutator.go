package fuzzloop

import (
	"fmt"
	"math/rand/v2"
)

// A mutator changes values at random.
type mutator struct {
	*rand.Rand
	seeds [][]any
}

// change returns a value like another.
func (m *mutator) change(like any) any {
	switch v := like.(type) {
	case string:
		return string(m.bytes([]byte(v)))
	case []byte:
		return m.bytes(v)
	case bool:
		return m.IntN(2) == 0
	case int:
		return int(m.number(int64(v)))
	case int64:
		return m.number(v)
	case uint64:
		return uint64(m.number(int64(v)))
	case uint16:
		return uint16(m.number(int64(v)))
	case uint8:
		return uint8(m.number(int64(v)))
	}
	panic(fmt.Sprintf("fuzzloop: write how to change a %T", like))
}

func (m *mutator) number(n int64) int64 {
	switch m.IntN(6) {
	case 0:
		return n
	case 1:
		return n + m.Int64N(9) - 4
	case 2:
		return n ^ 1<<m.IntN(64)
	case 3:
		return -n
	case 4:
		return int64(m.Uint64() >> m.IntN(64))
	}
	return m.Int64N(1024) - 128
}

// bytes returns some changes of b, none in one of eight cases.
func (m *mutator) bytes(b []byte) []byte {
	const most = 4096
	b = append([]byte(nil), b...)
	for range m.IntN(8) {
		at := m.IntN(len(b) + 1)
		switch m.IntN(7) {
		case 0: // flips a bit
			if at < len(b) {
				b[at] ^= 1 << m.IntN(8)
			}
		case 1: // another byte
			if at < len(b) {
				b[at] = byte(m.Uint32())
			}
		case 2: // of those with a meaning
			const special = "\x00\x01\x7f\x80\xff\n\r\t\x1b \"\\%;:,=/[](){}0159aZ-._*+"
			b = append(b[:at], append([]byte{special[m.IntN(len(special))]}, b[at:]...)...)
		case 3: // cuts
			to := at + m.IntN(len(b)-at+1)
			b = append(b[:at], b[to:]...)
		case 4: // repeats
			to := at + m.IntN(len(b)-at+1)
			b = append(b[:to], append(append([]byte(nil), b[at:to]...), b[to:]...)...)
		case 5: // a part of another seed
			other := m.seeds[m.IntN(len(m.seeds))]
			var text []byte
			switch v := other[m.IntN(len(other))].(type) {
			case string:
				text = []byte(v)
			case []byte:
				text = v
			}
			from := m.IntN(len(text) + 1)
			text = text[from : from+m.IntN(len(text)-from+1)]
			b = append(b[:at], append(append([]byte(nil), text...), b[at:]...)...)
		case 6: // random ones
			random := make([]byte, m.IntN(9))
			for i := range random {
				random[i] = byte(m.Uint32())
			}
			b = append(b[:at], append(random, b[at:]...)...)
		}
		if len(b) > most {
			b = b[:most]
		}
	}
	return b
}
