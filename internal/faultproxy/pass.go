package faultproxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// serve passes one connection on.
func (p *Proxy) serve(client net.Conn) {
	defer p.drop(client)
	if !p.keep(client) {
		return
	}
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer p.drop(server)
	if !p.keep(server) {
		return
	}
	pending := make(chan Fault, 1024) // the faults of the commands whose replies are to come
	gone := make(chan struct{})
	var replies sync.WaitGroup
	replies.Go(func() {
		defer client.Close()
		defer server.Close()
		p.replies(client, bufio.NewReader(server), pending, gone)
	})
	p.requests(bufio.NewReader(client), server, pending)
	close(gone)
	close(pending)
	server.Close()
	client.Close()
	replies.Wait()
}

// requests passes the commands of a client on until it or a fault ends the
// connection.
func (p *Proxy) requests(client *bufio.Reader, server net.Conn, pending chan<- Fault) {
	for {
		raw, words, err := Read(client)
		if err != nil || len(words) == 0 {
			return
		}
		fault := p.choose(raw, words)
		switch fault.Kind {
		case CutRequest:
			server.Write(raw[:min(max(0, fault.At), len(raw))])
			return
		case Swallow:
			continue
		}
		pending <- fault
		if fault.Kind == Forge {
			raw = []byte("*1\r\n$4\r\nPING\r\n") // so that replies stay in order
		}
		if _, err := server.Write(raw); err != nil {
			return
		}
	}
}

// replies passes the replies of the server on.
func (p *Proxy) replies(client net.Conn, server *bufio.Reader, pending <-chan Fault, gone <-chan struct{}) {
	for {
		reply, _, err := Read(server)
		if err != nil {
			return
		}
		if reply[0] == '>' { // a push message, which no command asked for
			if _, err := client.Write(reply); err != nil {
				return
			}
			continue
		}
		fault, ok := <-pending
		if !ok {
			return
		}
		if fault.Delay > 0 {
			select {
			case <-time.After(fault.Delay):
			case <-gone:
				return
			}
		}
		switch fault.Kind {
		case LoseReply:
			return
		case NoReply:
			continue
		case CutReply:
			client.Write(reply[:min(max(0, fault.At), len(reply))])
			return
		case DuplicateReply:
			reply = append(reply, reply...)
		case Forge:
			reply = []byte(fault.Reply)
		case SwapReply:
			if reply = p.swap(reply, gone); reply == nil {
				return
			}
		}
		if _, err := client.Write(reply); err != nil {
			return
		}
	}
}

// swap exchanges a reply for that of the next call of swap.
func (p *Proxy) swap(reply []byte, gone <-chan struct{}) []byte {
	p.mu.Lock()
	if p.partner != nil {
		p.partner <- reply
		reply, p.partner, p.swapped = p.swapped, nil, nil
		p.mu.Unlock()
		return reply
	}
	mine := make(chan []byte, 1)
	p.partner, p.swapped = mine, reply
	p.mu.Unlock()
	select {
	case other := <-mine:
		return other
	case <-gone:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.partner == mine {
		p.partner, p.swapped = nil, nil
	}
	return nil
}

// Read reads one value of RESP2 or RESP3, a command or a reply: its bytes, and the bulk
// strings in it, which are the words of a command. Push messages begin with '>'.
func Read(r *bufio.Reader) (raw []byte, words []string, err error) {
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
		part, more, err := Read(r)
		if err != nil {
			return nil, nil, err
		}
		raw, words = append(raw, part...), append(words, more...)
	}
	return raw, words, nil
}
