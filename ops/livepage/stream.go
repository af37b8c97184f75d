package livepage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	writeTimeout = 5 * time.Second
	checkEvery   = 60 // states: then it is checked whether the viewer still has the role
)

// me is what the state says of the viewer, and is put before the part that viewers share.
type me struct {
	Who    string            `json:"who"`
	Role   string            `json:"role"`
	Cannot map[string]string `json:"cannot"` // why, by what the viewer may not do: reset, ban, override
}

func (p *page) me(v viewer) me {
	m := me{excerpt(v.who, 200), "operator", map[string]string{}}
	if p.options.Bans == nil {
		m.Cannot["ban"] = "Bans need Redis: set livepage.Options.Bans (limitctl demo: --redis URL)."
	}
	if p.options.Overrides == nil {
		m.Cannot["override"] = "Overrides need Redis: set livepage.Options.Overrides (limitctl demo: --redis URL)."
	}
	if v.role < Operator {
		const why = "Viewers cannot change anything: livepage.Options.Authorize makes operators."
		m.Role, m.Cannot = "viewer", map[string]string{"reset": why, "ban": why, "override": why}
	}
	return m
}

// events sends the state at once and then each second, until the viewer disconnects or the server
// shuts down. Viewers get it at the same moment, so that they share it. One that reads slowly
// misses states, and is dropped if it does not read at all.
func (p *page) events(w http.ResponseWriter, r *http.Request, v viewer) {
	if err := sameOrigin(r); err != nil {
		answer(w, nil, err)
		return
	}
	if r.Method == http.MethodHead {
		return // it would hold a place and get nothing
	}
	replaced, ok := p.viewers.enter(v.id)
	if !ok {
		w.Header().Set("Retry-After", "10")
		answer(w, nil, problemf(http.StatusServiceUnavailable, "%d people look at this page: close one that is not needed", maxViewers))
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
		select {
		case <-time.After(p.collector.untilNext()):
		case <-r.Context().Done():
			return
		case <-replaced:
			_ = send("replaced", []byte(`{}`)) // it closes in any case
			return
		case <-shutdown:
			_ = send("error", []byte(`{"error":"the server is shutting down"}`)) // it closes in any case
			return
		}
	}
}

func (p *page) still(r *http.Request, v viewer) bool {
	if p.options.Authorize == nil {
		return true
	}
	who, role := p.options.Authorize(r)
	return who == v.who && min(role, Operator) == v.role
}

func (c *collector) untilNext() time.Duration {
	return time.Second - time.Since(c.start)%time.Second
}

// servers are those of the page, each with a channel: one that shuts down waits for its requests,
// so it must end the streams.
type servers struct{ sync.Map }

// shutdown returns a channel that closes when the server of a request shuts down, or nil if that is
// unknown.
func (s *servers) shutdown(r *http.Request) <-chan struct{} {
	server, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	if !ok {
		return nil
	}
	made := make(chan struct{})
	down, known := s.LoadOrStore(server, made)
	if !known {
		server.RegisterOnShutdown(sync.OnceFunc(func() {
			close(made)
			s.Delete(server)
		}))
	}
	return down.(chan struct{})
}

const (
	maxViewers = 64 // streams of all viewers
	maxStreams = 8  // streams of one viewer
)

// viewers are the open streams. A viewer that opens too many loses its oldest one, and never takes
// the place of a viewer with fewer.
type viewers struct {
	mu    sync.Mutex
	open  map[string][]chan struct{} // by viewer, the oldest first
	total int
}

func (v *viewers) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.total
}

// enter opens a stream of a viewer. The channel is closed when a newer stream replaces it.
// ok is false if as many viewers are there as may be.
func (v *viewers) enter(id string) (replaced chan struct{}, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	own := len(v.open[id])
	if v.total >= maxViewers || own >= maxStreams {
		loser := id
		if own < maxStreams {
			for other, streams := range v.open {
				if len(streams) > max(own+1, len(v.open[loser])) {
					loser = other
				}
			}
		}
		if len(v.open[loser]) == 0 {
			return nil, false
		}
		close(v.open[loser][0])
		v.remove(loser, 0)
	}
	if v.open == nil {
		v.open = map[string][]chan struct{}{}
	}
	replaced = make(chan struct{})
	v.open[id] = append(v.open[id], replaced)
	v.total++
	return replaced, true
}

func (v *viewers) leave(id string, stream chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if i := slices.Index(v.open[id], stream); i >= 0 {
		v.remove(id, i)
	}
}

func (v *viewers) remove(id string, i int) {
	v.total--
	if v.open[id] = slices.Delete(v.open[id], i, i+1); len(v.open[id]) == 0 {
		delete(v.open, id)
	}
}
