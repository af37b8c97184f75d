package livepage_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/must"
	"github.com/routelimit/limit/ops/livepage"
)

// events opens a stream for a person, and returns the response.
func (s *service) events(t *testing.T, who string) *http.Response {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := must.Get(http.NewRequestWithContext(ctx, "GET", s.URL+"/limits/events", nil))(t)
	r.Header.Set("X-Who", who)
	w := must.Get(http.DefaultTransport.RoundTrip(r))(t)
	t.Cleanup(func() { cancel(); w.Body.Close() })
	return w
}

// TestViewers checks that the 65th viewer is refused, and that a place becomes free.
func TestViewers(t *testing.T) {
	s := serve(t, nil, &livepage.Options{Authorize: func(r *http.Request) (string, livepage.Role) { return r.Header.Get("X-Who"), livepage.Viewer }})
	var one *http.Response
	for i := range 64 {
		one = s.events(t, fmt.Sprint("viewer-", i))
		require.Equal(t, 200, one.StatusCode)
		assert.Equal(t, "text/event-stream; charset=utf-8", one.Header.Get("Content-Type"))
	}
	w := s.events(t, "another")
	assert.Equal(t, 503, w.StatusCode)
	assert.Equal(t, "10", w.Header.Get("Retry-After"))
	assert.Equal(t, 200, s.events(t, "viewer-5").StatusCode, "a viewer replaces its own stream")
	one.Body.Close()
	require.Eventually(t, func() bool { return s.events(t, "another").StatusCode == 200 }, 5*time.Second, 20*time.Millisecond)
}

// TestStreamsOfOneViewer checks that a viewer with many streams loses its oldest ones, and
// locks out neither itself nor others.
func TestStreamsOfOneViewer(t *testing.T) {
	for name, who := range map[string]func(i int) string{
		"one name":  func(int) string { return "eve" },
		"ten names": func(i int) string { return fmt.Sprint("eve-", i%10) },
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, nil, &livepage.Options{Authorize: func(r *http.Request) (string, livepage.Role) { return r.Header.Get("X-Who"), livepage.Viewer }})
			ann := s.events(t, "ann")
			require.Equal(t, 200, ann.StatusCode)
			oldest := s.events(t, who(0))
			for i := range 100 {
				require.Equal(t, 200, s.events(t, who(i)).StatusCode)
			}
			text := must.Get(io.ReadAll(oldest.Body))(t)
			assert.Contains(t, string(text), "event: replaced\ndata: {}\n\n")
			require.Equal(t, 200, s.events(t, "bob").StatusCode, "others are not locked out")
			require.Equal(t, 200, s.events(t, "ann").StatusCode)
			for lines, states := bufio.NewReader(ann.Body), 0; states < 3; {
				line := must.Get(lines.ReadString('\n'))(t, "others keep their streams")
				if line == "event: state\n" {
					states++
				}
			}
		})
	}
}

// TestShutdown checks that open pages do not delay the end of a server, and that the
// timeouts of a server do not end them.
func TestShutdown(t *testing.T) {
	limiter := limit.New(nil, nil)
	page := livepage.Handler(limiter, &livepage.Options{Token: token})
	for name, h := range map[string]http.Handler{"http1": page, "http2": page, "gin": onGin(page), "echo": onEcho(page)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewUnstartedServer(h)
			server.EnableHTTP2 = name == "http2"
			server.Config.ReadTimeout, server.Config.WriteTimeout = 300*time.Millisecond, 300*time.Millisecond
			server.StartTLS()
			defer server.Close()
			r := must.Get(http.NewRequest("GET", server.URL+"/limits/events", nil))(t)
			r.AddCookie(signIn(t, page, "/limits/", token))
			w := must.Get(server.Client().Do(r))(t)
			defer w.Body.Close()
			require.Equal(t, name == "http2", w.ProtoMajor == 2)
			events := make(chan string, 10)
			go func() {
				defer close(events)
				var rest string
				for buffer := make([]byte, 64<<10); ; {
					n, err := w.Body.Read(buffer)
					rest += string(buffer[:n])
					for {
						event, after, ok := strings.Cut(rest, "\n\n")
						if !ok {
							break
						}
						events <- event
						rest = after
					}
					if err != nil {
						return
					}
				}
			}()
			for range 3 { // more than two seconds
				select {
				case event := <-events:
					require.Contains(t, event, "event: state\n")
				case <-time.After(5 * time.Second):
					t.Fatal("no state")
				}
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			begin := time.Now()
			require.NoError(t, server.Config.Shutdown(ctx))
			assert.Less(t, time.Since(begin), 4*time.Second)
			var last string
			for event := range events {
				last = event
			}
			assert.Contains(t, last, "event: error\ndata: {\"error\":\"the server is shutting down\"}")
		})
	}
}

// A pipes is a listener whose connections have no buffer, so that a write waits until
// the client reads.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// A localPipe has the address of this machine.
type localPipe struct{ net.Conn }

func (localPipe) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// TestSlowViewer checks that a viewer that does not read loses the connection and its
// place.
func TestSlowViewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := &pipes{make(chan net.Conn), make(chan struct{})}
		page := livepage.Handler(limit.New(nil, &limit.Options{Log: slog.New(slog.DiscardHandler)}), &livepage.Options{Token: token})
		cookie := signIn(t, page, "/", token)
		server := &http.Server{Handler: page}
		go func() { _ = server.Serve(listener) }()
		defer server.Close()
		dial := func() net.Conn {
			client, conn := net.Pipe()
			listener.conns <- localPipe{conn}
			must.Get(io.WriteString(client, "GET /events HTTP/1.1\r\nHost: localhost\r\nCookie: "+cookie.Name+"="+cookie.Value+"\r\n\r\n"))(t)
			return client
		}
		stuck := dial()
		defer stuck.Close()
		reader := dial()
		defer reader.Close()
		lines := bufio.NewScanner(reader)
		lines.Buffer(nil, 1<<20)
		viewers := func() (n float64) {
			for lines.Scan() {
				if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
					var state struct{ Viewers float64 }
					require.NoError(t, json.Unmarshal([]byte(data), &state))
					return state.Viewers
				}
			}
			t.Fatal("the stream of a reader ended")
			return 0
		}
		viewers() // made for the other one
		assert.Equal(t, 2.0, viewers())
		for range 10 {
			time.Sleep(time.Second)
			viewers()
		}
		assert.Equal(t, 1.0, viewers())
		_ = stuck.SetReadDeadline(time.Now().Add(time.Second))
		_, err := io.Copy(io.Discard, stuck)
		assert.NoError(t, err, "the server has closed the connection")
	})
}
