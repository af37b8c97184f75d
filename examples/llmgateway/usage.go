package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/routelimit/limit"
)

const (
	maxTokens     = 100_000_000 // of one kind in a request
	maxLine       = 4 << 20     // bytes that are kept of a line of a stream, or of a plain reply
	overhead      = 1_000       // input tokens without bytes in the body, such as those of tool use
	defaultOutput = 1_024       // tokens, where the request does not say
)

// A usage is the tokens of a request: of input that is new, read from a cache, and written to
// one for 5 minutes or an hour, and of output.
type usage struct{ input, cached, written, hour, output int64 }

func (u usage) valid() bool {
	all := []int64{u.input, u.cached, u.written, u.hour, u.output}
	return slices.Min(all) >= 0 && slices.Max(all) <= maxTokens && slices.Max(all[:4]) > 0 // no request is without input
}

// prices are in micro-dollars for a million tokens, at most 10^9 each, so that costs cannot
// overflow. They are examples: write those that you pay. Other models are refused.
var prices = map[string]usage{
	"gpt-4.1":           {2_000_000, 500_000, 2_000_000, 2_000_000, 8_000_000},
	"gpt-4.1-mini":      {400_000, 100_000, 400_000, 400_000, 1_600_000},
	"claude-sonnet-4-5": {3_000_000, 300_000, 3_750_000, 6_000_000, 15_000_000},
	"claude-haiku-4-5":  {1_000_000, 100_000, 1_250_000, 2_000_000, 5_000_000},
}

// A query is a request for a model.
type query struct {
	api         *api
	body        []byte // that is forwarded
	most, price usage
}

// costs returns what a usage costs each rule, rounded up.
func (q *query) costs(u usage) map[string]int64 {
	p := &q.price
	micros := u.input*p.input + u.cached*p.cached + u.written*p.written + u.hour*p.hour + u.output*p.output
	return map[string]int64{
		"input-tokens":  u.input + u.written + u.hour + (u.cached+9)/10,
		"output-tokens": u.output,
		"budget":        (micros + 999_999) / 1_000_000,
	}
}

// An api is what differs between the vendors.
type api struct {
	path   string
	style  limit.Headers
	most   string         // the field that bounds the output
	counts []string       // fields of a usage: input, output, and input read from a cache or written to one
	errors map[int]string // types of errors, by status
}

// The input of OpenAI includes what was read from a cache, and that of Anthropic does not.
var (
	openAI = &api{"/v1/chat/completions", limit.OpenAI, "max_completion_tokens",
		[]string{"prompt_tokens", "completion_tokens", "prompt_tokens_details.cached_tokens"},
		map[int]string{429: "rate_limit_exceeded", 502: "server_error", 503: "server_error"}}
	anthropic = &api{"/v1/messages", limit.Anthropic, "max_tokens",
		[]string{"input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens",
			"cache_creation.ephemeral_1h_input_tokens"},
		map[int]string{401: "authentication_error", 413: "request_too_large", 429: "rate_limit_error",
			502: "api_error", 503: "api_error"}}
)

// key returns the API key of a request, and leaves no other one in the header.
func (a *api) key(h http.Header) string {
	field, prefix := "Authorization", "Bearer "
	if a == anthropic && h.Get("X-Api-Key") != "" {
		field, prefix = "X-Api-Key", ""
	}
	key, ok := strings.CutPrefix(h.Get(field), prefix)
	h.Del("Authorization")
	h.Del("X-Api-Key")
	key = strings.TrimSpace(key) // or a client would have a quota for each number of spaces
	if !ok || strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return ""
	}
	h.Set(field, prefix+key)
	return key
}

// fail answers a request in the form of the API.
func (a *api) fail(w http.ResponseWriter, status int, message string) {
	kind := cmp.Or(a.errors[status], "invalid_request_error")
	body := map[string]any{"error": map[string]any{"type": kind, "code": kind, "param": nil, "message": message}}
	if a == anthropic {
		body = map[string]any{"type": "error", "error": map[string]string{"type": kind, "message": message}}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// What can cost more tokens than it has bytes, or has other prices, is refused, and so are names
// such as Max_Tokens, which some parsers read as max_tokens.
var (
	otherFields = regexp.MustCompile(`^(audio|container|inference_geo|mcp_servers|modalities|prediction|service_tier|speed|web_search_options)$|[^a-z0-9_]`)
	otherTypes  = regexp.MustCompile(`"type":"(image|input_|file|document|container_|computer_|bash_|text_editor_|web_|code_execution|mcp_|memory_|tool_search)`)
)

// parse reads the body of a request, and writes what it reserves into what is forwarded. A reply
// has at most so many tokens.
func (a *api) parse(body []byte, most int64) (*query, error) {
	var fields map[string]any // what is forwarded, so that no two parsers read one body
	var asked struct {
		Model     string
		Stream    bool
		N         int64                      // choices
		Max       int64                      `json:"max_tokens"`
		MaxOutput int64                      `json:"max_completion_tokens"`
		Options   map[string]json.RawMessage `json:"stream_options"`
	}
	asked.Options = map[string]json.RawMessage{}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	err := decoder.Decode(&fields)
	if err == nil && !gjson.ValidBytes(body) {
		err = errors.New("something follows it")
	}
	for name := range fields {
		if otherFields.MatchString(name) {
			return nil, fmt.Errorf("the gateway does not serve the field %.40q", name)
		}
	}
	// An upstream could take null for no bound.
	maps.DeleteFunc(fields, func(_ string, value any) bool { return value == nil })
	plain, _ := json.Marshal(fields) // without escapes of letters, and each name once
	if err = errors.Join(err, json.Unmarshal(plain, &asked)); err != nil || fields == nil {
		return nil, fmt.Errorf("the body must be an object with the fields of the API: %.200v", err)
	}
	price, ok := prices[asked.Model]
	if !ok || otherTypes.Match(plain) {
		return nil, errors.New("the gateway serves models that have a price there, with text and tools of the client")
	}
	choices, output := max(1, asked.N), asked.Max
	if a == openAI {
		output = max(output, asked.MaxOutput) // the newer name
	}
	if output == 0 {
		output = min(defaultOutput, most)
		fields[a.most] = output
	}
	if min(asked.N, asked.Max, asked.MaxOutput) < 0 || choices > min(most, maxTokens)/output {
		return nil, fmt.Errorf("%s, times n, must be from 1 to %d", a.most, most)
	}
	if a == openAI && asked.Stream {
		fields["stream_options"] = asked.Options
		asked.Options["include_usage"] = json.RawMessage("true")
	}
	forwarded, err := json.Marshal(fields)
	// The input costs at most a token for each byte, at the highest price.
	return &query{a, forwarded, usage{hour: int64(len(body)) + overhead, output: output * choices}, price}, err
}

// A meter reads the usage from a reply that passes.
type meter struct {
	*query
	io.ReadCloser
	stream bool

	line     []byte   // that has begun; a plain reply is one line
	counts   [5]int64 // that the reply has reported last, by api.counts
	reported usage    // the same; zero without input before the first report
	final    bool     // reported is of the whole reply
	failed   bool     // the upstream has ended the stream with an error
	deltas   int64    // bytes of text, with the JSON around it
	err      error    // io.EOF if the reply has passed to its end
}

// Read reads the next bytes, which may begin and end anywhere.
func (m *meter) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	for part := range bytes.SplitAfterSeq(p[:n], []byte("\n")) {
		fits := min(len(part), maxLine-len(m.line))
		m.line = append(m.line, part[:fits]...)
		m.deltas += int64(len(part) - fits)
		if m.stream && bytes.HasSuffix(part, []byte("\n")) {
			m.end()
		}
	}
	m.err = err
	return n, err
}

// Close reads a reply that the client no longer reads to its end.
func (m *meter) Close() error {
	_, _ = io.Copy(io.Discard, m)
	return m.ReadCloser.Close()
}

// end reads the line, which has ended.
func (m *meter) end() {
	data, ok := bytes.CutPrefix(m.line, []byte("data:"))
	m.line = m.line[:0]
	switch {
	case len(data) >= maxLine-len("data:"): // the rest may be missing
		m.deltas += int64(len(data))
	case (ok || !m.stream) && gjson.ValidBytes(data):
		event := gjson.ParseBytes(data)
		m.report(event.Get("message.usage")) // of message_start
		m.final = m.report(event.Get("usage")) || m.final
		m.failed = m.failed || event.Get("error").Type != gjson.Null
		for _, delta := range append(event.Get("choices.#.delta").Array(), event.Get("delta")) {
			m.deltas += int64(len(delta.Raw))
		}
	}
}

// report reads a usage, and reports whether it is one. Each is for all that has passed, and may
// leave out what has not changed.
func (m *meter) report(data gjson.Result) bool {
	counts := m.counts
	for i, name := range m.api.counts {
		if n := data.Get(name); n.Type != gjson.Null {
			var err error
			if counts[i], err = strconv.ParseInt(n.Raw, 10, 64); err != nil {
				return false
			}
		}
	}
	u := usage{input: counts[0], output: counts[1], cached: counts[2], written: counts[3], hour: counts[4]}
	if m.api == openAI {
		u.input -= u.cached
	} else {
		u.written -= u.hour
	}
	ok := data.IsObject() && u.valid()
	if ok {
		m.counts, m.reported = counts, u
	}
	return ok
}

// used returns the usage that the reply is charged. What was not reported stays reserved, but the
// output of a stream that was cut is estimated: a token for every four bytes of its deltas.
func (m *meter) used() usage {
	m.end()
	u := m.reported
	if m.final {
		return u
	}
	estimate := m.most.output
	if m.stream && (m.failed || m.err != io.EOF) {
		estimate = min(estimate, max(u.output, (m.deltas+3)/4))
	}
	if !u.valid() {
		u = m.most
	}
	u.output = estimate
	return u
}
