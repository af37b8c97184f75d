package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"

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

// A query is a request for a model, with the body that is forwarded.
type query struct {
	body        []byte
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
	errors map[int]string // types of errors, by status
}

var (
	openAI = &api{"/v1/chat/completions", limit.OpenAI, "max_completion_tokens", map[int]string{
		429: "rate_limit_exceeded", 502: "server_error", 503: "server_error"}}
	anthropic = &api{"/v1/messages", limit.Anthropic, "max_tokens", map[int]string{
		401: "authentication_error", 413: "request_too_large", 429: "rate_limit_error", 502: "api_error", 503: "api_error"}}
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

func (a *api) refuse(w http.ResponseWriter, _ *http.Request, d limit.Decision) {
	refused := limit.RefusedError{Decision: d}
	a.fail(w, http.StatusTooManyRequests, refused.Error())
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
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	err := decoder.Decode(&fields)
	if _, end := decoder.Token(); err == nil && end != io.EOF {
		err = errors.New("something follows it")
	}
	for name, value := range fields {
		if otherFields.MatchString(name) {
			return nil, fmt.Errorf("the gateway does not serve the field %.40q", name)
		}
		if value == nil {
			delete(fields, name) // which an upstream could take for no bound
		}
	}
	plain, _ := json.Marshal(fields) // which was JSON; without escapes of letters, and each name once
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
		options, _ := fields["stream_options"].(map[string]any)
		if options == nil {
			options = map[string]any{}
		}
		options["include_usage"] = true
		fields["stream_options"] = options
	}
	forwarded, err := json.Marshal(fields)
	// The input costs at most a token for each byte, at the highest price.
	return &query{forwarded, usage{hour: int64(len(body)) + overhead, output: output * choices}, price}, err
}

// A meter reads the usage from a reply that passes.
type meter struct {
	io.ReadCloser
	most              usage // that was reserved
	anthropic, stream bool

	line     []byte // that has begun; a plain reply is one line
	tooLong  bool   // the rest of the line is left out
	reported report
	final    bool  // reported is of the whole reply
	failed   bool  // the upstream has ended the stream with an error
	deltas   int64 // bytes of text, with the JSON around it
	err      error // io.EOF if the reply has passed to its end
}

// A report is the usage in a reply, of either API. The prompt of OpenAI includes what was read
// from the cache, and the input of Anthropic does not.
type report struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Details    struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`

	Input   int64 `json:"input_tokens"`
	Output  int64 `json:"output_tokens"`
	Read    int64 `json:"cache_read_input_tokens"`
	Written int64 `json:"cache_creation_input_tokens"`
	Writes  struct {
		Hour int64 `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"`
}

func (m *meter) usage() usage {
	r := &m.reported
	if m.anthropic {
		return usage{r.Input, r.Read, r.Written - r.Writes.Hour, r.Writes.Hour, r.Output}
	}
	return usage{r.Prompt - r.Details.Cached, r.Details.Cached, 0, 0, r.Completion}
}

// Read reads the next bytes, which may begin and end anywhere.
func (m *meter) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		part, after, ended := rest, []byte(nil), false
		if m.stream {
			part, after, ended = bytes.Cut(rest, []byte("\n"))
		}
		if m.tooLong = m.tooLong || len(m.line)+len(part) > maxLine; m.tooLong {
			m.deltas += int64(len(m.line) + len(part))
			m.line = nil
		} else {
			m.line = append(m.line, part...)
		}
		if rest = after; ended {
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
	var e struct {
		Usage, Error *json.RawMessage
		Message      struct{ Usage *json.RawMessage } // of message_start
		Delta        json.RawMessage
		Choices      []struct{ Delta json.RawMessage }
	}
	data, ok := bytes.CutPrefix(m.line, []byte("data:"))
	if m.line, m.tooLong = m.line[:0], false; !ok && m.stream || json.Unmarshal(data, &e) != nil {
		return
	}
	m.report(e.Message.Usage)
	m.final = m.report(e.Usage) || m.final
	m.failed = m.failed || e.Error != nil
	m.deltas += int64(len(e.Delta))
	for _, choice := range e.Choices {
		m.deltas += int64(len(choice.Delta))
	}
}

// report reads a usage, and reports whether it is one. Each is for all that has passed, and may
// leave out what has not changed.
func (m *meter) report(data *json.RawMessage) bool {
	before := m.reported
	ok := data != nil && json.Unmarshal(*data, &m.reported) == nil && m.usage().valid()
	if !ok {
		m.reported = before
	}
	return ok
}

// used returns the usage that the reply is charged. What was not reported stays reserved, but the
// output of a stream that was cut is estimated: a token for every four bytes of its deltas.
func (m *meter) used() usage {
	m.end()
	u := m.usage()
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
