package faultproxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
)

// read reads one value of RESP2 or RESP3, a command or a reply: its bytes, and the bulk
// strings in it, which are the words of a command. Push messages begin with '>'.
func read(r *bufio.Reader) (raw []byte, words []string, err error) {
	raw, err = r.ReadBytes('\n')
	if err != nil {
		return nil, nil, err
	}
	kind := raw[0]
	if bytes.IndexByte([]byte("+-:_#,("), kind) >= 0 {
		return raw, nil, nil
	}
	n, err := strconv.Atoi(string(bytes.TrimSuffix(raw[1:], []byte("\r\n"))))
	if err != nil {
		return nil, nil, fmt.Errorf("not a header: %q", raw)
	}
	switch kind {
	case '$', '=', '!':
		if n < 0 {
			return raw, nil, nil
		}
		text := make([]byte, n+2)
		if _, err := io.ReadFull(r, text); err != nil {
			return nil, nil, err
		}
		return append(raw, text...), []string{string(text[:n])}, nil
	case '*', '~', '>':
	case '%':
		n *= 2
	case '|': // attributes, and then the reply that they belong to
		n = 2*n + 1
	default:
		return nil, nil, fmt.Errorf("not RESP: %q", raw)
	}
	for range n {
		part, more, err := read(r)
		if err != nil {
			return nil, nil, err
		}
		raw, words = append(raw, part...), append(words, more...)
	}
	return raw, words, nil
}
