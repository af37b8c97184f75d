package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/core"
	"github.com/routelimit/limit/internal/redistest"
	"github.com/routelimit/limit/stores/memstore"
	"github.com/routelimit/limit/stores/redisstore"
)

// A network has the connections of one listener. Time stands still while bytes are on it.
type network struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newNetwork() *network {
	return &network{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

func (n *network) Addr() net.Addr { return &net.TCPAddr{} }

func (n *network) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case n.conns <- server:
		return client, nil
	case <-n.closed:
		return nil, fmt.Errorf("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A world is a gateway between a client and an upstream.
type world struct {
	t        *testing.T
	store    core.Store
	rules    limit.RuleSet
	gateway  *gateway
	client   *http.Client
	shutdown context.CancelFunc
	stopped  chan error

	upstream *network
	answer   http.HandlerFunc // of the upstream
	header   http.Header      // that it has received last
	body     []byte
}

// A quota is what the key k may be charged, or has been charged.
type quota struct{ requests, input, output, streams, budget int64 }

var usual = quota{requests: 10, input: 100_000, output: 5_000, streams: 3, budget: 1_000_000}

// rules returns the rules of the gateway with other limits.
func (q quota) rules() limit.RuleSet {
	list := limits.Rules()
	for i, n := range []int64{q.requests, q.input, q.output, q.streams, q.budget} {
		list[i].Limit = n
	}
	return limit.Named("model", list...)
}

func newWorld(t *testing.T, store core.Store, l quota, drain time.Duration) *world {
	w := &world{t: t, store: store, rules: l.rules(), upstream: newNetwork(), stopped: make(chan error, 1)}
	upstream := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.header = r.Header
		w.body, _ = io.ReadAll(r.Body)
		w.answer(rw, r)
	})}
	go upstream.Serve(w.upstream)
	g := newGateway(&url.URL{Scheme: "http", Host: "upstream"}, store, w.rules, drain)
	transport := &http.Transport{DialContext: w.upstream.dial, DisableCompression: true, DisableKeepAlives: true}
	g.transport, w.gateway = transport, g
	front := newNetwork()
	ctx, shutdown := context.WithCancel(context.Background())
	w.shutdown = shutdown
	go func() {
		w.stopped <- g.run(ctx, front)
		close(w.stopped)
	}()
	w.client = &http.Client{Transport: &http.Transport{DialContext: front.dial, DisableKeepAlives: true}}
	t.Cleanup(func() {
		shutdown()
		upstream.Close()
		<-w.stopped
	})
	return w
}

// try runs a test whose clock moves only when everything waits.
func try(t *testing.T, drain time.Duration, test func(*world)) {
	synctest.Test(t, func(t *testing.T) { test(newWorld(t, memstore.New(nil), usual, drain)) })
}

func (w *world) request(ctx context.Context, path, body string) *http.Request {
	r, err := http.NewRequestWithContext(ctx, "POST", "http://gateway"+path, struct{ io.Reader }{strings.NewReader(body)})
	require.NoError(w.t, err)
	r.Header.Set("Authorization", "Bearer k")
	r.Header.Set("X-Api-Key", "k")
	return r
}

// A reply is what a client has read of one.
type reply struct {
	status int
	header http.Header
	body   string
	err    error // the reply ended early
}

func (w *world) send(r *http.Request) (got reply) {
	response, err := w.client.Do(r)
	if err != nil {
		synctest.Wait()
		return reply{err: err}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	synctest.Wait()
	return reply{response.StatusCode, response.Header, string(body), err}
}

func (w *world) post(path, body string) reply { return w.send(w.request(w.t.Context(), path, body)) }

func (w *world) charged() quota {
	policy, err := limit.New(w.store, nil).Policy(w.rules)
	require.NoError(w.t, err)
	d, err := policy.Peek(context.Background(), limit.Request{Keys: map[string]string{"user": fmt.Sprintf("%x", sha256.Sum256([]byte("k")))}})
	require.NoError(w.t, err)
	var n []int64
	for rule := range d.Rules() {
		n = append(n, rule.Capacity-rule.Remaining)
	}
	return quota{n[0], n[1], n[2], n[3], n[4]}
}

// Requests of both APIs, and the most that they can use.
const (
	chat       = `{"model":"gpt-4.1-mini","max_tokens":500,"messages":[{"role":"user","content":"Hi"}]}`
	chatStream = `{"model":"gpt-4.1-mini","max_tokens":500,"stream":true,"messages":[{"role":"user","content":"Hi"}]}`
	mess       = `{"model":"claude-haiku-4-5","max_tokens":500,"messages":[{"role":"user","content":"Hi"}]}`
	messStream = `{"model":"claude-haiku-4-5","max_tokens":500,"stream":true,"messages":[{"role":"user","content":"Hi"}]}`
)

// most returns the charge of a request in flight that has settled nothing.
func most(body string) quota {
	input := int64(len(body)) + 1_000
	if strings.Contains(body, "gpt") {
		return quota{1, input, 500, 0, (input*400_000 + 500*1_600_000 + 999_999) / 1_000_000}
	}
	return quota{1, input, 500, 0, (input*2_000_000 + 500*5_000_000 + 999_999) / 1_000_000}
}

// Events of both APIs.
const (
	chunk       = `data: {"choices":[{"index":0,"delta":{"content":"Hello"}}],"usage":null}` + "\n\n"
	chunkUsage  = `data: {"choices":[],"usage":{"prompt_tokens":90,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":41}}}` + "\n\n"
	chunkDone   = "data: [DONE]\n\n"
	start       = `event: message_start` + "\n" + `data: {"type":"message_start","message":{"content":[],"usage":{"input_tokens":30,"cache_read_input_tokens":41,"cache_creation_input_tokens":12,"cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":2},"output_tokens":1}}}` + "\n\n"
	block       = `event: content_block_delta` + "\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}` + "\n\n"
	blockUsage  = `event: message_delta` + "\n" + `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}` + "\n\n"
	messageStop = `event: message_stop` + "\n" + `data: {"type":"message_stop"}` + "\n\n"
)

var (
	chatUsed  = quota{1, 49 + 5, 7, 0, (49*400_000 + 41*100_000 + 7*1_600_000 + 999_999) / 1_000_000}
	messUsed  = quota{1, 42 + 5, 9, 0, (30*1_000_000 + 41*100_000 + 10*1_250_000 + 2*2_000_000 + 9*5_000_000 + 999_999) / 1_000_000}
	cutOpenAI = len(`{"content":"Hello"}`)
	cutBlock  = len(`{"type":"text_delta","text":"Hello"}`)
)

// streams answers with the parts of a stream, flushed apart.
func streams(parts ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for _, part := range parts {
			io.WriteString(w, part)
			http.NewResponseController(w).Flush()
		}
	}
}

func answers(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// cut answers, and then breaks the connection.
func cut(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer(w, r)
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// split returns the parts of a stream of so many bytes each.
func split(stream string, n int) (parts []string) {
	for len(stream) > n {
		parts, stream = append(parts, stream[:n]), stream[n:]
	}
	return append(parts, stream)
}

// TestUsage checks that the store is charged what a reply reports, or what the documentation
// says where it reports nothing.
func TestUsage(t *testing.T) {
	of := func(body string, output int64, estimated quota) quota { // a usage with another output
		price := map[bool]int64{true: 1_600_000, false: 5_000_000}[strings.Contains(body, "gpt")]
		estimated.budget += ((output - estimated.output) * price) / 1_000_000
		estimated.output = output
		return estimated
	}
	free := quota{requests: 1}
	const plainChat = `{"choices":[{"message":{"content":"\"usage\":{\"prompt_tokens\":1}"}}],
		"usage":{"prompt_tokens":90,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":41}}}`
	const plainMess = `{"type":"message","content":[{"type":"tool_use","input":{"usage":{"input_tokens":1}}}],"usage":{"input_tokens":30,
		"cache_read_input_tokens":41,"cache_creation_input_tokens":12,"cache_creation":{"ephemeral_1h_input_tokens":2},"output_tokens":9}}`
	long := `data: {"choices":[{"delta":{"content":"` + strings.Repeat("x", 4<<20) + `"}}]}` + "\n\n"
	for name, c := range map[string]struct {
		body   string
		answer http.HandlerFunc
		want   quota
	}{
		"plain":                       {chat, answers(200, plainChat), chatUsed},
		"stream":                      {chatStream, streams(chunk, chunk, chunkUsage, chunkDone), chatUsed},
		"stream of bytes":             {chatStream, streams(split(chunk+chunkUsage+chunkDone, 1)...), chatUsed},
		"stream with CRLF":            {chatStream, streams(strings.ReplaceAll(chunk+chunkUsage+chunkDone, "\n", "\r\n")), chatUsed},
		"stream without a last line":  {chatStream, streams(chunk, strings.TrimSpace(chunkUsage)), chatUsed},
		"usage twice":                 {chatStream, streams(chunkUsage, chunk, chunkUsage, chunkDone), chatUsed},
		"usage that grows":            {chatStream, streams(strings.ReplaceAll(chunkUsage, `:7`, `:3`), chunkUsage, chunkDone), chatUsed},
		"usage and then a cut":        {chatStream, cut(streams(chunk, chunkUsage, `data: {"cho`)), chatUsed},
		"a line without an end":       {chatStream, streams(long[:len(long)/2], long[len(long)/2:], chunkUsage), chatUsed},
		"no usage":                    {chatStream, streams(chunk, chunkDone), most(chatStream)},
		"no usage, plain":             {chat, answers(200, `{"choices":[]}`), most(chat)},
		"no JSON":                     {chat, answers(200, `usage`), most(chat)},
		"nothing":                     {chat, answers(200, ``), most(chat)},
		"an empty usage":              {chat, answers(200, `{"usage":{}}`), most(chat)},
		"a negative usage":            {chat, answers(200, `{"usage":{"prompt_tokens":90,"completion_tokens":-7}}`), most(chat)},
		"more cached than read":       {chat, answers(200, `{"usage":{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":2}}}`), most(chat)},
		"a huge usage":                {chat, answers(200, `{"usage":{"prompt_tokens":9000000000000000000}}`), most(chat)},
		"a usage with fractions":      {chat, answers(200, `{"usage":{"prompt_tokens":1.5}}`), most(chat)},
		"more than was reserved":      {chat, answers(200, `{"usage":{"prompt_tokens":30,"completion_tokens":600}}`), quota{1, 30, 600, 0, 30*2/5 + 600*8/5}},
		"more than there is":          {chat, answers(200, `{"usage":{"prompt_tokens":30,"completion_tokens":6000}}`), quota{1, 30, 5_000, 0, 30*2/5 + 6000*8/5}},
		"cut within a chunk":          {chatStream, cut(streams(chunk, chunk, chunk[:20])), of(chatStream, int64(2*cutOpenAI+3)/4, most(chatStream))},
		"cut before a chunk":          {chatStream, cut(streams("")), of(chatStream, 0, most(chatStream))},
		"cut, plain":                  {chat, cut(answers(200, plainChat[:40])), most(chat)},
		"a long line and a cut":       {chatStream, cut(streams(long)), most(chatStream)},
		"500":                         {chat, answers(500, plainChat), free},
		"429":                         {chatStream, answers(429, `{}`), free},
		"a refused connection":        {chat, nil, free},
		"a connection that is cut":    {chat, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, free},
		"message":                     {mess, answers(200, plainMess), messUsed},
		"message, stream":             {messStream, streams(start, block, block, blockUsage, messageStop), messUsed},
		"message, stream of bytes":    {messStream, streams(split(start+block+blockUsage+messageStop, 1)...), messUsed},
		"message, usage twice":        {messStream, streams(start, block, start, blockUsage, blockUsage, messageStop), messUsed},
		"message, usage in the end":   {messStream, streams(strings.ReplaceAll(strings.ReplaceAll(start+blockUsage, `,"output_tokens":1`, ``), `"message":`, `"m":`), start, blockUsage), messUsed},
		"message, no usage":           {messStream, streams(block, messageStop), most(messStream)},
		"message, cut in a chunk":     {messStream, cut(streams(start, block, block[:60])), of(messStream, int64(cutBlock+3)/4, messUsed)},
		"message, cut before a block": {messStream, cut(streams(strings.Replace(start, `"output_tokens":1`, `"output_tokens":3`, 1))), of(messStream, 3, messUsed)},
		"message, an error at its end": {messStream, streams(start, block, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n"),
			of(messStream, int64(cutBlock+3)/4, messUsed)},
		"message, 529": {messStream, answers(529, `{}`), free},
	} {
		t.Run(name, func(t *testing.T) {
			try(t, 0, func(w *world) {
				path := openAI.path
				if strings.Contains(c.body, "claude") {
					path = anthropic.path
				}
				if w.answer = c.answer; c.answer == nil {
					w.upstream.Close()
					synctest.Wait()
				}
				got := w.post(path, c.body)
				assert.Equal(t, c.want, w.charged())
				if strings.Contains(name, "cut") && got.status != 502 {
					assert.Error(t, got.err, "the client sees that the reply is cut")
				} else {
					assert.NoError(t, got.err)
				}
				if strings.Contains(name, "connection") {
					assert.Equal(t, 502, got.status)
					assert.Contains(t, got.body, `"server_error"`)
				}
			})
		})
	}
}

// TestPassedOn checks what the upstream and the client receive.
func TestPassedOn(t *testing.T) {
	try(t, 0, func(w *world) {
		w.answer = func(rw http.ResponseWriter, _ *http.Request) {
			for _, name := range []string{"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Tokens", "Anthropic-Ratelimit-Tokens-Limit", "Ratelimit"} {
				rw.Header().Set(name, "upstream")
			}
			rw.Header().Set("Retry-After", "7")
			rw.Header().Set("X-Request-Id", "r1")
			answers(503, `{"error":{"message":"busy"}}`)(rw, nil)
		}
		r := w.request(w.t.Context(), openAI.path+"?beta=true", `{"model":"gpt-4.1-mini","seed":12345678901234567890,"top_p":0.10,"stream":true,`+
			`"stream_options":{"include_usage":false,"x":1e2},"messages":[{"content":"<&>"}],"model":"gpt-4.1-mini"}`)
		r.Header.Set("X-Api-Key", "other")
		r.Header.Set("Accept-Encoding", "gzip")
		got := w.send(r)
		assert.JSONEq(t, `{"model":"gpt-4.1-mini","seed":12345678901234567890,"top_p":0.10,"stream":true,"stream_options":{"include_usage":true,"x":1e2},
			"messages":[{"content":"<&>"}],"max_completion_tokens":1024}`, string(w.body))
		for _, exact := range []string{"12345678901234567890", "0.10", "1e2"} {
			assert.Contains(t, string(w.body), exact)
		}
		assert.Equal(t, []string{"Bearer k", "", ""}, []string{w.header.Get("Authorization"), w.header.Get("X-Api-Key"), w.header.Get("Accept-Encoding")})
		assert.Equal(t, []any{503, `{"error":{"message":"busy"}}`, "7", "r1"},
			[]any{got.status, got.body, got.header.Get("Retry-After"), got.header.Get("X-Request-Id")})
		for name, values := range got.header {
			assert.NotContains(t, values, "upstream", name)
		}
		assert.Equal(t, []string{"10", "9", "3976"}, []string{got.header.Get("X-Ratelimit-Limit-Requests"),
			got.header.Get("X-Ratelimit-Remaining-Requests"), got.header.Get("X-Ratelimit-Remaining-Output-Tokens")})
		assert.Empty(t, got.header.Get("Anthropic-Ratelimit-Requests-Limit"))

		w.answer = answers(200, `{}`)
		r = w.request(w.t.Context(), anthropic.path, strings.ReplaceAll(mess, `"max_tokens":500,`, ``))
		r.Header.Set("X-Api-Key", "k")
		got = w.send(r)
		assert.Equal(t, []string{"", "k"}, []string{w.header.Get("Authorization"), w.header.Get("X-Api-Key")})
		assert.Contains(t, string(w.body), `"max_tokens":1024`)
		assert.NotContains(t, string(w.body), "stream_options")
		r = w.request(w.t.Context(), anthropic.path, mess)
		r.Header.Del("X-Api-Key") // as @anthropic-ai/sdk sends its key
		assert.Equal(t, 200, w.send(r).status)
		assert.Equal(t, []string{"Bearer k", ""}, []string{w.header.Get("Authorization"), w.header.Get("X-Api-Key")})
		assert.Equal(t, []string{"8", ""}, []string{got.header.Get("Anthropic-Ratelimit-Requests-Remaining"), got.header.Get("X-Ratelimit-Limit-Requests")})
	})
}

// TestClientLeaves has clients that leave in mid-stream, with both modes.
func TestClientLeaves(t *testing.T) {
	for name, c := range map[string]struct {
		drain time.Duration
		ends  bool // the upstream goes on to the end
		want  quota
	}{
		"read to the end":         {time.Minute, true, chatUsed},
		"read for a bounded time": {time.Minute, false, quota{1, most(chatStream).input, 10, 0, most(chatStream).budget - 490*8/5}},
		"cancelled":               {0, false, quota{1, most(chatStream).input, 10, 0, most(chatStream).budget - 490*8/5}},
	} {
		t.Run(name, func(t *testing.T) {
			try(t, c.drain, func(w *world) {
				left := make(chan struct{})
				var cancelled atomic.Bool
				w.answer = func(rw http.ResponseWriter, r *http.Request) {
					streams(chunk)(rw, r)
					<-left
					streams(chunk)(rw, r)
					if !c.ends {
						<-r.Context().Done()
						cancelled.Store(true)
						return
					}
					streams(chunk, chunkUsage, chunkDone)(rw, r)
				}
				if c.drain == 0 {
					close(left) // both chunks come before the client leaves
				}
				ctx, leave := context.WithCancel(w.t.Context())
				response, err := w.client.Do(w.request(ctx, openAI.path, chatStream))
				require.NoError(t, err)
				first := make([]byte, len(chunk))
				_, err = io.ReadFull(response.Body, first)
				require.NoError(t, err)
				assert.Equal(t, chunk, string(first), "a chunk comes before the next one")
				if c.drain == 0 {
					_, err = io.ReadFull(response.Body, first)
					require.NoError(t, err)
				}
				assert.EqualValues(t, 1, w.charged().streams)
				leave()
				response.Body.Close()
				synctest.Wait()
				if c.drain > 0 {
					inFlight := most(chatStream)
					inFlight.streams = 1
					assert.Equal(t, inFlight, w.charged(), "it goes on")
					close(left)
					synctest.Wait()
				}
				if c.drain > 0 && !c.ends {
					assert.False(t, cancelled.Load())
					time.Sleep(c.drain)
					synctest.Wait()
				}
				got := w.charged()
				if c.drain > 0 && !c.ends { // the buckets have refilled meanwhile
					c.want.requests, c.want.input, c.want.output = got.requests, got.input, got.output
				}
				assert.Equal(t, c.want, got)
				assert.Equal(t, !c.ends, cancelled.Load())
			})
		})
	}
}

// TestLeavesBeforeReply has clients that leave before the reply begins. It is unknown what the
// upstream does with a plain request then.
func TestLeavesBeforeReply(t *testing.T) {
	try(t, 0, func(w *world) {
		w.answer = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		ctx, leave := context.WithCancel(w.t.Context())
		go func() {
			synctest.Wait()
			leave()
		}()
		_, err := w.client.Do(w.request(ctx, openAI.path, chat))
		assert.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		assert.Equal(t, most(chat), w.charged())
	})
}

// TestLastTokens sends two requests at once where there are tokens for one. The other is charged
// nothing, and is admitted once the first has settled.
func TestLastTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := usual
		l.output = 900
		w := newWorld(t, memstore.New(nil), l, 0)
		end := make(chan struct{})
		w.answer = func(rw http.ResponseWriter, r *http.Request) {
			<-end
			streams(chunk, chunkUsage, chunkDone)(rw, r)
		}
		replies := make(chan int, 2)
		for range 2 {
			go func() {
				response, err := w.client.Do(w.request(w.t.Context(), openAI.path, chatStream))
				if assert.NoError(t, err) {
					replies <- response.StatusCode
					io.Copy(io.Discard, response.Body)
					response.Body.Close()
				}
			}()
		}
		assert.Equal(t, 429, <-replies)
		inFlight := most(chatStream)
		inFlight.streams = 1
		assert.Equal(t, inFlight, w.charged())
		close(end)
		assert.Equal(t, 200, <-replies)
		synctest.Wait()
		assert.Equal(t, chatUsed, w.charged())
		assert.Equal(t, 200, w.post(openAI.path, chatStream).status)
	})
}

// TestRefusals checks the headers and the bodies of refusals, of both styles.
func TestRefusals(t *testing.T) {
	try(t, 0, func(w *world) {
		w.answer = answers(200, `{}`) // nothing is known of the usage
		big := strings.ReplaceAll(chat, "500", "4000")
		require.Equal(t, 200, w.post(openAI.path, big).status)
		before := w.charged()
		got := w.post(openAI.path, big)
		assert.Equal(t, 429, got.status)
		assert.JSONEq(t, `{"error":{"type":"rate_limit_exceeded","code":"rate_limit_exceeded","param":null,"message":"limit: refused by output-tokens, retry after 36s"}}`, got.body)
		assert.Equal(t, []string{"application/json", "36", "36000", "1000", ""}, []string{got.header.Get("Content-Type"), got.header.Get("Retry-After"),
			got.header.Get("Retry-After-Ms"), got.header.Get("X-Ratelimit-Remaining-Output-Tokens"), got.header.Get("X-Should-Retry")})

		got = w.post(anthropic.path, strings.ReplaceAll(mess, "500", "4000"))
		assert.Equal(t, 429, got.status)
		assert.JSONEq(t, `{"type":"error","error":{"type":"rate_limit_error","message":"limit: refused by output-tokens, retry after 36s"}}`, got.body)
		assert.Equal(t, []string{"36000", "1000", "2000-01-01T00:00:48Z"}, []string{got.header.Get("Retry-After-Ms"),
			got.header.Get("Anthropic-Ratelimit-Output-Tokens-Remaining"), got.header.Get("Anthropic-Ratelimit-Output-Tokens-Reset")})
		assert.Equal(t, before, w.charged(), "a refusal is charged nothing")
		time.Sleep(36 * time.Second)
		assert.Equal(t, 200, w.post(openAI.path, big).status)
	})
	synctest.Test(t, func(t *testing.T) {
		l := usual
		l.budget = 1_500
		w := newWorld(t, memstore.New(nil), l, 0)
		w.answer = answers(200, `{}`)
		require.Equal(t, 200, w.post(openAI.path, chat).status)
		got := w.post(openAI.path, chat)
		assert.Equal(t, []any{429, "false"}, []any{got.status, got.header.Get("X-Should-Retry")}, "the month is long")
		got = w.post(openAI.path, strings.ReplaceAll(chat, "Hi", strings.Repeat("x", 100_000)))
		assert.Equal(t, []any{429, "false", ""}, []any{got.status, got.header.Get("X-Should-Retry"), got.header.Get("Retry-After")}, "never")
	})
}

// TestInvalid sends what the gateway does not forward.
func TestInvalid(t *testing.T) {
	with := func(fields string) string { return strings.Replace(chat, `"max_tokens":500`, fields, 1) }
	try(t, 0, func(w *world) {
		for name, c := range map[string]struct {
			body   string
			status int
		}{
			"nothing":            {``, 400},
			"no JSON":            {`{"model":`, 400},
			"two values":         {chat + chat, 400},
			"no UTF-8":           {strings.Replace(chat, "Hi", strings.Repeat("\xff", 5_000), 1), 400}, // U+FFFD has three bytes
			"null":               {`null`, 400},
			"a list":             {`[]`, 400},
			"no model":           {`{}`, 400},
			"another model":      {strings.Replace(chat, "gpt", "g", 1), 400},
			"a long model":       {`{"model":"` + strings.Repeat("x", 1<<19) + `"}`, 400},
			"a longer model":     {`{"model":"` + strings.Repeat("x", 1<<20) + `"}`, 413},
			"model of a number":  {`{"model":` + strings.Repeat("1", 1<<19) + `}`, 400},
			"a long field":       {with(`"` + strings.Repeat("X", 1<<19) + `":1`), 400},
			"negative":           {with(`"max_tokens":-1`), 400},
			"negative, too":      {with(`"max_tokens":5,"max_completion_tokens":-1`), 400},
			"above the limit":    {with(`"max_tokens":5001`), 429},
			"huge":               {with(`"max_tokens":100000001`), 400},
			"larger than int64":  {with(`"max_tokens":9223372036854775808`), 400},
			"the most of int64":  {with(`"max_completion_tokens":9223372036854775807,"n":9223372036854775807`), 400},
			"a fraction":         {with(`"max_tokens":1.5`), 400},
			"a string":           {with(`"max_tokens":"5"`), 400},
			"many choices":       {with(`"max_tokens":500,"n":11`), 429},
			"too many choices":   {with(`"max_tokens":500,"n":256`), 400},
			"huge choices":       {with(`"max_tokens":1000000,"n":101`), 400},
			"negative choices":   {with(`"max_tokens":500,"n":-11`), 400},
			"stream of a string": {with(`"stream":"true"`), 400},
			"options of a list":  {with(`"stream":true,"stream_options":[]`), 400},
			"another case":       {with(`"max_tokens":5,"Max_Tokens":50000`), 400},
			"folded":             {with(`"max_tokens":5,"\u017ftream":true`), 400},
			"another price":      {with(`"service_tier":"priority"`), 400},
			"an image":           {with(`"x":[{"type":"image_url","image_url":{"url":"https://example.com"}}]`), 400},
			"an escaped image":   {with(`"x":{"\u0074ype" : "\u0069mage_url"}`), 400},
			"a tool of a server": {with(`"tools":[{"type":"web_search_20250305"}]`), 400},
		} {
			got := w.post(openAI.path, c.body)
			assert.Equal(t, c.status, got.status, name)
			assert.Less(t, len(got.body), 500, name)
			var parsed struct {
				Error struct{ Type, Message string }
			}
			assert.NoError(t, json.Unmarshal([]byte(got.body), &parsed), name)
			if c.status == 429 {
				assert.Equal(t, "rate_limit_exceeded", parsed.Error.Type, name)
				assert.Equal(t, "false", got.header.Get("X-Should-Retry"), "%s: no wait helps", name)
			} else {
				assert.Equal(t, "invalid_request_error", parsed.Error.Type, name)
			}
			got = w.post(anthropic.path, c.body)
			if !strings.Contains(c.body, "max_completion_tokens") && !strings.Contains(c.body, "stream_options") {
				assert.Equal(t, c.status, got.status, name)
			}
		}
		for _, header := range []http.Header{{}, {"X-Api-Key": {""}}, {"X-Api-Key": {"k k"}}, {"X-Api-Key": {"ké"}}, {"X-Api-Key": {"k", "j"}},
			{"Authorization": {"Bearer k k"}}, {"Authorization": {"k"}}} {
			r := w.request(w.t.Context(), anthropic.path, mess)
			r.Header = header
			got := w.send(r)
			assert.Equal(t, 401, got.status)
			assert.JSONEq(t, `{"type":"error","error":{"type":"authentication_error","message":"send an API key"}}`, got.body)
		}
		for _, values := range [][]string{{}, {""}, {"Bearer "}, {"Basic k"}, {"Bearer k k"}, {"Bearer  k"}, {"Bearer ké"}, {"Bearer k", "Bearer j"}} {
			r := w.request(w.t.Context(), openAI.path, chat)
			r.Header["Authorization"] = values
			assert.Equal(t, 401, w.send(r).status, values)
		}
		assert.Equal(t, quota{}, w.charged())
	})
}

// TestServed sends what looks like something that the gateway does not forward.
func TestServed(t *testing.T) {
	try(t, 0, func(w *world) {
		w.answer = answers(500, "")
		for _, fields := range []string{
			`"max_tokens":5000`, `"max_tokens":null,"max_completion_tokens":5000`, `"max_tokens":500,"n":10`, `"n":null`,
			`"stream":null`, `"stream":true,"stream_options":null`, `"x":"\"type\":\"image\""`, `"x":{"a":"type","b":"image"}`,
			`"tools":[{"type":"function","function":{"parameters":{"properties":{"type":{"type":"string","enum":["image"]}}}}}]`,
		} {
			w.post(openAI.path, strings.Replace(chat, `"max_tokens":500`, fields, 1))
			assert.NotEmpty(t, w.body, fields)
			w.body = nil
		}
	})
}

// TestOneReading has what is reserved and what is forwarded be one reading of the body, whatever
// a client writes twice.
func TestOneReading(t *testing.T) {
	try(t, 0, func(w *world) {
		w.answer = answers(200, `{}`) // which reports no usage
		for fields, output := range map[string]int64{
			`"max_tokens":1,"max_tokens":null`:                       1024,
			`"max_tokens":1,"max_tokens":300`:                        300,
			`"max_tokens":2,"max_completion_tokens":null`:            2,
			`"max_completion_tokens":1,"max_completion_tokens":null`: 1024,
			`"max_tokens":7,"n":2,"n":null`:                          7,
		} {
			before := w.charged().output
			got := w.post(openAI.path, strings.Replace(chat, `"max_tokens":500`, fields, 1))
			require.Equal(w.t, 200, got.status, fields)
			assert.Equal(w.t, output, w.charged().output-before, fields)
			assert.NotContains(w.t, string(w.body), "null", fields)
			assert.Contains(w.t, string(w.body), fmt.Sprintf(`tokens":%d`, output), fields)
			time.Sleep(time.Hour)
		}
		got := w.post(openAI.path, strings.Replace(chat, `"user","content":"Hi"`, `"user","content":[{"type":"image_url","type":"text","text":"Hi"}]`, 1))
		require.Equal(w.t, 200, got.status)
		assert.NotContains(w.t, string(w.body), "image_url")
		for _, spaces := range []string{"Bearer k", "Bearer k "} {
			r := w.request(w.t.Context(), openAI.path, chat)
			r.Header.Set("Authorization", spaces)
			w.send(r)
			assert.Equal(w.t, "Bearer k", w.header.Get("Authorization"))
		}
	})
}

// TestShutdown stops the gateway while a reply is in flight.
func TestShutdown(t *testing.T) {
	for name, ends := range map[string]bool{"ends": true, "is cut": false} {
		t.Run(name, func(t *testing.T) {
			try(t, time.Hour, func(w *world) {
				end := make(chan struct{})
				w.answer = func(rw http.ResponseWriter, r *http.Request) {
					streams(chunk)(rw, r)
					select {
					case <-end:
						streams(chunkUsage, chunkDone)(rw, r)
					case <-r.Context().Done():
					}
				}
				response, err := w.client.Do(w.request(w.t.Context(), openAI.path, chatStream))
				require.NoError(t, err)
				body := bufio.NewReader(response.Body)
				_, err = body.ReadString('\n')
				require.NoError(t, err)
				w.shutdown()
				synctest.Wait()
				_, err = w.client.Do(w.request(w.t.Context(), openAI.path, chatStream))
				assert.Error(t, err, "no more requests")
				assert.EqualValues(t, 500, w.charged().output)
				began := time.Now()
				if ends {
					close(end)
				}
				_, err = io.Copy(io.Discard, body)
				assert.Equal(t, ends, err == nil)
				require.NoError(t, <-w.stopped)
				if got := w.charged(); ends {
					assert.Less(t, time.Since(began), time.Second)
					assert.Equal(t, chatUsed.budget, got.budget)
				} else {
					assert.InDelta(t, grace, time.Since(began), float64(time.Second))
					assert.Equal(t, most(chatStream).budget-495*8/5, got.budget)
				}
			})
		})
	}
}

// TestLongStream checks that a stream may take longer than the timeouts of its request.
func TestLongStream(t *testing.T) {
	try(t, 0, func(w *world) {
		w.answer = func(rw http.ResponseWriter, r *http.Request) {
			for range 14 {
				streams(chunk)(rw, r)
				time.Sleep(time.Minute)
			}
			streams(chunkUsage)(rw, r)
		}
		got := w.post(openAI.path, chatStream)
		assert.NoError(t, got.err)
		assert.Equal(t, chatUsed.budget, w.charged().budget)
	})
}

// TestCutAnywhere reads streams that come in two parts, and streams that are cut, at each byte.
func TestCutAnywhere(t *testing.T) {
	for _, c := range []struct {
		api    *api
		stream string
	}{{openAI, chunk + chunkUsage + chunkDone}, {anthropic, start + block + blockUsage + messageStop}} {
		most := usage{hour: 1_000, output: 500}
		read := func(parts ...io.Reader) (usage, error) {
			q := &query{api: c.api, stream: true, most: most, used: most}
			err := q.pass(httptest.NewRecorder(), io.NopCloser(io.MultiReader(parts...)))
			return q.used, err
		}
		all, err := read(strings.NewReader(c.stream))
		require.Equal(t, io.EOF, err)
		require.NotEqual(t, most, all)
		for i := range len(c.stream) + 1 {
			got, err := read(strings.NewReader(c.stream[:i]), strings.NewReader(c.stream[i:]))
			require.Equal(t, io.EOF, err)
			require.Equal(t, all, got, i)
			got, err = read(strings.NewReader(c.stream[:i]), iotest.ErrReader(io.ErrUnexpectedEOF))
			require.Equal(t, io.ErrUnexpectedEOF, err)
			require.True(t, slices.Min(got[:]) >= 0 && slices.Max(got[:output]) > 0 && got[output] <= 500, "%d: %v", i, got)
		}
	}
}

// An endless reply has one line.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte("x"), len(p))), nil }

// TestEndless reads replies that do not end, which the gateway cuts.
func TestEndless(t *testing.T) {
	most := usage{hour: 1_000, output: 500}
	for _, stream := range []bool{false, true} {
		q := &query{api: openAI, stream: stream, most: most, used: most}
		err := q.pass(httptest.NewRecorder(), io.NopCloser(endless{}))
		assert.ErrorAs(t, err, new(*http.MaxBytesError))
		want := most
		if stream {
			want[output] = 0 // no delta has passed
		}
		assert.Equal(t, want, q.used)
	}
}

// TestPrices checks that no cost overflows.
func TestPrices(t *testing.T) {
	for model, p := range prices {
		for _, n := range p {
			assert.True(t, n > 0 && n <= 1_000_000_000, model)
		}
		assert.True(t, slices.IsSorted([]int64{p[cached], p[input], p[written], p[hour]}), "%s: what is reserved is the most", model)
	}
	dear := query{price: usage{1e9, 1e9, 1e9, 1e9, 1e9}}
	costs := dear.costs(usage{maxTokens, maxTokens, maxTokens, maxTokens, maxTokens})
	assert.Equal(t, int64(5*maxTokens*1_000), costs["budget"])
	assert.EqualValues(t, maxTokens*3+maxTokens/10, costs["input-tokens"])
}

// TestRedis checks that two gateways share the quotas, and that a stream costs two calls.
func TestRedis(t *testing.T) {
	client := redistest.Client(t)
	l := usual
	var worlds []*world
	for range 2 {
		w := newWorld(t, redisstore.New(client, &redisstore.Options{Prefix: "llmgateway", Timeout: time.Minute}), l, 0)
		w.answer = streams(chunk, chunkUsage, chunkDone)
		worlds = append(worlds, w)
	}
	for round := range 2 {
		if round == 1 { // the scripts are loaded
			client.ConfigResetStat(t.Context())
		}
		for _, w := range worlds {
			response, err := w.client.Do(w.request(w.t.Context(), openAI.path, chatStream))
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, response.Body) // to its end, when it is settled
			require.NoError(t, err)
			response.Body.Close()
		}
	}
	if stats, err := client.InfoMap(t.Context(), "commandstats").Result(); err == nil { // miniredis has none
		line := stats["Commandstats"]["cmdstat_evalsha"]
		var calls, failed int // before a script was loaded
		_, _ = fmt.Sscanf(line, "calls=%d", &calls)
		_, _ = fmt.Sscanf(line[strings.LastIndex(line, "=")+1:], "%d", &failed)
		assert.Equal(t, 4, calls-failed, line)
	}
	got := worlds[0].charged()
	assert.Equal(t, 4*chatUsed.budget, got.budget)
	assert.EqualValues(t, 4, got.requests)
	assert.LessOrEqual(t, got.output, 4*chatUsed.output)
}
