package faultproxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
)

// readCommand reads one command: its bytes, and its words.
func readCommand(r *bufio.Reader) (raw []byte, words []string, err error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, nil, err
	}
	n, err := number(line, '*')
	if err != nil || n < 1 {
		return nil, nil, fmt.Errorf("not a command: %q", line)
	}
	raw = line
	for range n {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return nil, nil, err
		}
		size, err := number(line, '$')
		if err != nil {
			return nil, nil, err
		}
		word := make([]byte, size+2)
		if _, err := io.ReadFull(r, word); err != nil {
			return nil, nil, err
		}
		raw = append(append(raw, line...), word...)
		words = append(words, string(word[:size]))
	}
	return raw, words, nil
}

// readReply reads one reply of RESP2 or RESP3, and reports whether it is a push
// message.
func readReply(r *bufio.Reader) (raw []byte, push bool, err error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, false, err
	}
	parts := 0
	switch line[0] {
	case '+', '-', ':', '_', '#', ',', '(':
	case '$', '=', '!':
		size, err := number(line, line[0])
		if err != nil {
			return nil, false, err
		}
		if size >= 0 {
			text := make([]byte, size+2)
			if _, err := io.ReadFull(r, text); err != nil {
				return nil, false, err
			}
			line = append(line, text...)
		}
	case '*', '~', '>', '%', '|':
		if parts, err = number(line, line[0]); err != nil {
			return nil, false, err
		}
		push = line[0] == '>'
		switch line[0] {
		case '%':
			parts *= 2
		case '|': // attributes, and then the reply that they belong to
			parts = 2*parts + 1
		}
	default:
		return nil, false, fmt.Errorf("not a reply: %q", line)
	}
	raw = line
	for range parts {
		part, _, err := readReply(r)
		if err != nil {
			return nil, false, err
		}
		raw = append(raw, part...)
	}
	return raw, push, nil
}

// number reads the number of a line that begins with kind.
func number(line []byte, kind byte) (int, error) {
	if len(line) < 4 || line[0] != kind || !bytes.HasSuffix(line, []byte("\r\n")) {
		return 0, fmt.Errorf("not a header: %q", line)
	}
	return strconv.Atoi(string(line[1 : len(line)-2]))
}
