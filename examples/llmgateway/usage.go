package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/routelimit/limit"
)

const (
	maxTokens = 100_000_000 // of one kind in a request
	overhead  = 1_000       // input tokens beside one for each byte, such as those of tool use
)

// A usage is the tokens of a request, by their kinds.
type usage [5]int64

const (
	input   = iota // that is new
	cached         // input that is read from a cache
	written        // input that is written to a cache for 5 minutes
	hour           // input that is written to a cache for an hour, at the highest price
	output
)

// prices are in micro-dollars for a million tokens, at most 10^9 each, so that costs cannot
// overflow. They are examples: write those that you pay. Other models are refused.
var prices = map[string]usage{
	"gpt-4.1-mini":     {400_000, 100_000, 400_000, 400_000, 1_600_000},
	"claude-haiku-4-5": {1_000_000, 100_000, 1_250_000, 2_000_000, 5_000_000},
}

// An api is what differs between the vendors.
type api struct {
	path        string
	style       limit.Headers
	keyField    string         // comes before Authorization
	most        string         // the field that bounds the output
	counts      [5]string      // the fields of a usage, by kind
	whole, part int            // the first of these kinds is counted with the other one
	types       map[int]string // of errors, by status
	failure     string         // the body of an error, with its type and message
}

var openAI = &api{
	path: "/v1/chat/completions", style: limit.OpenAI, keyField: "Authorization",
	most: "max_completion_tokens",
	counts: [5]string{input: "prompt_tokens", cached: "prompt_tokens_details.cached_tokens",
		output: "completion_tokens"},
	whole: input, part: cached,
	types:   map[int]string{429: "rate_limit_exceeded", 502: "server_error"},
	failure: `{"error":{"type":%[1]q,"code":%[1]q,"param":null,"message":%[2]s}}`,
}

var anthropic = &api{
	path: "/v1/messages", style: limit.Anthropic, keyField: "X-Api-Key", most: "max_tokens",
	counts: [5]string{input: "input_tokens", cached: "cache_read_input_tokens",
		written: "cache_creation_input_tokens", hour: "cache_creation.ephemeral_1h_input_tokens",
		output: "output_tokens"},
	whole: written, part: hour,
	types:   map[int]string{401: "authentication_error", 429: "rate_limit_error", 502: "api_error"},
	failure: `{"type":"error","error":{"type":%q,"message":%s}}`,
}

// fail answers a request in the form of the API.
func (a *api) fail(w http.ResponseWriter, status int, message string) {
	text, _ := json.Marshal(message)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, a.failure, cmp.Or(a.types[status], "invalid_request_error"), text)
}

// A query is a request for a model, and what its reply says so far.
type query struct {
	*api
	body        []byte // that is forwarded
	stream      bool
	price, most usage
	used        usage // as far as it is reported, and otherwise the most
	final       bool  // used is of the whole reply
	counts      usage // the fields of the usage
	deltas      int64 // bytes of text, with the JSON around it
}

// costs returns what a usage costs each rule, rounded up.
func (q *query) costs(u usage) map[string]int64 {
	var micros int64
	for kind, tokens := range u {
		micros += tokens * q.price[kind]
	}
	return map[string]int64{
		"input-tokens":  u[input] + u[written] + u[hour] + (u[cached]+9)/10,
		"output-tokens": u[output],
		"budget":        (micros + 999_999) / 1_000_000,
	}
}

// What can cost more tokens than it has bytes, or has other prices, is refused, and so are names
// such as Max_Tokens, which some parsers read as max_tokens.
var (
	keyForm     = regexp.MustCompile(`^(?:Authorization: Bearer|X-Api-Key:) ([!-~]+)$`)
	otherFields = regexp.MustCompile(`[^a-z0-9_]|^(audio|container|inference_geo|mcp_servers|` +
		`modalities|prediction|service_tier|speed|web_search_options)$`)
	otherTypes = regexp.MustCompile(`"type":"(image|input_|file|document|container_|computer_|bash_|` +
		`text_editor_|web_|code_execution|mcp_|memory_|tool_search)`)
)

// parse reads the body of a request, and writes what it reserves into what is forwarded.
func (a *api) parse(body []byte) (*query, error) {
	var fields map[string]any // what is forwarded, so that no two parsers read one body
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if decoder.Decode(&fields) != nil || fields == nil || !gjson.ValidBytes(body) || !utf8.Valid(body) {
		return nil, fmt.Errorf("the body must be an object, in UTF-8")
	}
	for name, value := range fields {
		if otherFields.MatchString(name) {
			return nil, fmt.Errorf("the gateway does not serve the field %.40q", name)
		}
		if value == nil {
			delete(fields, name) // an upstream could take null for no bound
		}
	}
	plain, _ := json.Marshal(fields) // without escapes of letters, and each name once
	asked := struct {
		Model     string
		Stream    bool
		N         uint8                      // choices
		Max       uint32                     `json:"max_tokens"`
		MaxOutput uint32                     `json:"max_completion_tokens"`
		Options   map[string]json.RawMessage `json:"stream_options"`
	}{N: 1, Options: map[string]json.RawMessage{}}
	if err := json.Unmarshal(plain, &asked); err != nil {
		return nil, fmt.Errorf("a field is not that of the API: %.200w", err)
	}
	tokens := cmp.Or(max(asked.Max, asked.MaxOutput), 1_024) // of output, in each choice
	most := usage{hour: int64(len(body)) + overhead, output: int64(tokens) * int64(max(1, asked.N))}
	price, ok := prices[asked.Model]
	if !ok || otherTypes.Match(plain) || most[output] > maxTokens {
		return nil, fmt.Errorf("write text, at most %d tokens, and a model with a price in usage.go, not %.100q", maxTokens, asked.Model)
	}
	delete(fields, "max_tokens") // the older name of OpenAI
	fields[a.most] = tokens
	if a == openAI && asked.Stream {
		asked.Options["include_usage"] = json.RawMessage("true")
		fields["stream_options"] = asked.Options
	}
	body, err := json.Marshal(fields)
	return &query{api: a, body: body, stream: asked.Stream, price: price, most: most, used: most}, err
}

// pass passes a reply to its end, even if the client has left. If the upstream does not send all
// of it, pass returns an error, and the output of a stream is estimated: a token for every four
// bytes of its deltas.
func (q *query) pass(w http.ResponseWriter, body io.ReadCloser) (err error) {
	lines, end := bufio.NewReader(http.MaxBytesReader(w, body, 64<<20)), byte('\n')
	if !q.stream {
		end = 0 // a plain reply is one line
	}
	failed := false
	for err == nil {
		var line []byte
		line, err = lines.ReadBytes(end)
		failed = q.read(line) || failed
		_, _ = w.Write(line)
		if len(line) <= len("\r\n") { // the end of an event
			_ = http.NewResponseController(w).Flush()
		}
	}
	if q.stream && !q.final && (failed || err != io.EOF) {
		q.used[output] = min(q.most[output], max(q.counts[output], (q.deltas+3)/4))
	}
	return err
}

// read reads a line of a stream, or a plain reply, and reports whether it is an error.
func (q *query) read(line []byte) bool {
	data, ok := bytes.CutPrefix(line, []byte("data:"))
	if ok != q.stream || !gjson.ValidBytes(data) {
		return false
	}
	event := gjson.ParseBytes(data)
	q.report(event.Get("message.usage"), false) // of message_start
	q.report(event.Get("usage"), true)
	for _, delta := range append(event.Get("choices.#.delta").Array(), event.Get("delta")) {
		q.deltas += int64(len(delta.Raw))
	}
	return event.Get("error").Type != gjson.Null
}

// report reads a usage, which is for all that has passed, and may leave out what has not changed.
func (q *query) report(data gjson.Result, final bool) {
	counts := q.counts
	for kind, field := range q.api.counts {
		n := data.Get(field)
		if n.Exists() && json.Unmarshal([]byte(n.Raw), &counts[kind]) != nil {
			return
		}
	}
	u := counts
	u[q.whole] -= u[q.part]
	if !data.IsObject() || slices.Min(u[:]) < 0 || slices.Max(u[:]) > maxTokens ||
		slices.Max(u[:output]) == 0 { // no request is without input
		return
	}
	q.counts, q.used, q.final = counts, u, q.final || final
	if !q.final {
		q.used[output] = q.most[output]
	}
}
