package livepage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	writeTimeout = 5 * time.Second
	checkEvery   = 60 // states: then it is checked whether the viewer still has the role
)

// me is what the state says of the viewer, and is put before the part that viewers share.
type me struct {
	Who  string `json:"who"`
	Role string `json:"role"`
	Can  can    `json:"can"`
}

// can says what the viewer may do, and why not.
type can struct {
	Reset    bool              `json:"reset"`
	Ban      bool              `json:"ban"`
	Override bool              `json:"override"`
	Why      map[string]string `json:"why"`
}

func (p *page) me(v viewer) me {
	m := me{Who: excerpt(v.who, 200), Role: "viewer", Can: can{Why: map[string]string{}}}
	deny := func(action string, may *bool, missing string) {
		switch {
		case v.role < Operator:
			m.Can.Why[action] = "Viewers cannot change anything: livepage.Options.Authorize makes operators."
		case missing != "":
			m.Can.Why[action] = missing
		default:
			*may = true
		}
	}
	if v.role == Operator {
		m.Role = "operator"
	}
	needsBans, needsOverrides := "", ""
	if p.options.Bans == nil {
		needsBans = "Bans need Redis: set livepage.Options.Bans (limitctl demo: --redis URL)."
	}
	if p.options.Overrides == nil {
		needsOverrides = "Overrides need Redis: set livepage.Options.Overrides (limitctl demo: --redis URL)."
	}
	deny("reset", &m.Can.Reset, "")
	deny("ban", &m.Can.Ban, needsBans)
	deny("override", &m.Can.Override, needsOverrides)
	return m
}

// events sends the state at once and then each second, until the viewer disconnects or
// the server shuts down. Viewers get it at the same moment, so that they share it. A
// viewer that reads slowly misses states, and is dropped if it does not read at all.
func (p *page) events(w http.ResponseWriter, r *http.Request, v viewer) {
	if !sameOrigin(w, r) {
		return
	}
	if r.Method == http.MethodHead {
		return // it would hold a place and get nothing
	}
	replaced, ok := p.viewers.enter(v.id)
	if !ok {
		w.Header().Set("Retry-After", "10")
		fail(w, http.StatusServiceUnavailable, "%d people look at this page: close one that is not needed", maxViewers)
		return
	}
	defer p.viewers.leave(v.id, replaced)
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // that of the server is for requests; not all writers have one
	shutdown := p.servers.shutdown(r)
	text, err := json.Marshal(p.me(v))
	if err != nil {
		panic(err) // the types have no value that JSON lacks
	}
	text = append(text[:len(text)-1], ',') // the state goes on within its braces
	q := queryOf(r.URL.Query())

	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("X-Accel-Buffering", "no") // for nginx
	var event bytes.Buffer
	send := func(kind string, parts ...[]byte) error {
		event.Reset()
		fmt.Fprintf(&event, "retry: 2000\nevent: %s\ndata: ", kind)
		for _, part := range parts {
			event.Write(part)
		}
		event.WriteString("\n\n")
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not all writers have one
		if _, err := w.Write(event.Bytes()); err != nil {
			return err
		}
		return control.Flush()
	}
	for states := 1; ; states++ {
		if states%checkEvery == 0 && !p.still(r, v) {
			return // the page connects again, and is answered anew
		}
		if send("state", text, p.view(q)[1:]) != nil {
			return
		}
		next := time.NewTimer(p.collector.untilNext())
		select {
		case <-next.C:
		case <-r.Context().Done():
			next.Stop()
			return
		case <-replaced:
			next.Stop()
			_ = send("replaced", []byte(`{}`)) // it closes in any case
			return
		case <-shutdown:
			next.Stop()
			_ = send("error", []byte(`{"error":"the server is shutting down"}`)) // it closes in any case
			return
		}
	}
}

// still reports whether the sender of a request is still the same viewer.
func (p *page) still(r *http.Request, v viewer) bool {
	if p.options.Authorize == nil {
		return true
	}
	who, role := p.options.Authorize(r)
	return who == v.who && min(role, Operator) == v.role
}

// untilNext returns how long until the next second begins.
func (c *collector) untilNext() time.Duration {
	return time.Second - time.Since(c.start)%time.Second
}

// servers are those that the page is on. A server that shuts down waits for its requests,
// so it must end the streams.
type servers struct {
	mu   sync.Mutex
	down map[*http.Server]chan struct{}
}

// maxServers is more than a program has. Streams of further ones end with the grace
// period of the server.
const maxServers = 16

// shutdown returns a channel that is closed when the server of a request shuts down, or
// nil if that is unknown.
func (s *servers) shutdown(r *http.Request) <-chan struct{} {
	server, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	down, ok := s.down[server]
	if !ok && len(s.down) < maxServers {
		if s.down == nil {
			s.down = map[*http.Server]chan struct{}{}
		}
		down = make(chan struct{})
		s.down[server] = down
		server.RegisterOnShutdown(sync.OnceFunc(func() { close(down) }))
	}
	return down
}
