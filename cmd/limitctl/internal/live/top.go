package live

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit/cmd/limitctl/internal/keyscan"
	"github.com/routelimit/limit/lua"
)

// A Question is what Top looks for.
type Question struct {
	At   float64 // percent of the quota that a key has used at least
	N    int     // how many keys to list
	Scan int     // how many keys to look at, at most
	Pace int     // how many keys to look at in a second, at most

	Matches func(policy, rule, key string) bool // whether a key is asked for; nil means each
}

// An Answer is the keys that are at or near a limit.
type Answer struct {
	At      time.Time `json:"at"`
	Took    float64   `json:"seconds"`
	Looked  int       `json:"looked_at"`          // keys with the prefix, without documents of package control
	Partial bool      `json:"partial"`            // whether there are more than were looked at
	Known   int       `json:"known"`              // of them, the states of known rules
	Near    int       `json:"near"`               // keys that have used At percent or are refused
	Unknown []Count   `json:"unknown,omitempty"`  // states of other rules, the most first
	Omitted int       `json:"omitted,omitempty"`  // states of further rules
	InParts int       `json:"in_parts,omitempty"` // states that need another --spread
	Invalid int       `json:"invalid,omitempty"`  // states of known rules whose value is none
	Other   int       `json:"other"`              // returned units, and keys that are no states
	Keys    []State   `json:"keys"`               // the fullest of Near
}

// A Count is how many states a rule has.
type Count struct {
	Policy string `json:"policy"` // as in Redis
	Rule   string `json:"rule"`
	Keys   int    `json:"keys"`
}

const (
	maxUnknown = 1000 // rules that are counted
	concurrent = 256  // keys that are looked at together, so that the store batches them
)

// Top looks at the keys in Redis, and returns those at or near a limit. The limits have no
// Secret: the names in Redis are hashes already.
func (l *Limits) Top(ctx context.Context, client redis.UniversalClient, q Question) (*Answer, error) {
	t := &top{Limits: l, question: q, answer: &Answer{At: time.Now(), Keys: []State{}}, unknown: make(map[Count]int)}
	a := t.answer
	s := &keyscan.Scan{Prefix: l.options.Prefix, Most: q.Scan, Pace: q.Pace, Page: t.page}
	var err error
	if a.Partial, err = s.Run(ctx, client); err != nil {
		return nil, err
	}
	t.trim()
	a.Took = time.Since(a.At).Seconds()
	for rule, n := range t.unknown {
		rule.Keys = n
		a.Unknown = append(a.Unknown, rule)
	}
	slices.SortFunc(a.Unknown, func(x, y Count) int {
		return cmp.Or(cmp.Compare(y.Keys, x.Keys), strings.Compare(x.Policy, y.Policy), strings.Compare(x.Rule, y.Rule))
	})
	return a, nil
}

type top struct {
	*Limits
	question Question
	answer   *Answer
	unknown  map[Count]int
	mu       sync.Mutex // of what add changes
}

func (t *top) page(ctx context.Context, _ redis.Cmdable, names []string) (failure error) {
	var peeks sync.WaitGroup
	slots := make(chan struct{}, concurrent)
	for _, name := range names {
		n, ok := lua.ParseKey(t.options.Prefix, name)
		if n.Beside && n.Rule == "" {
			continue // a token
		}
		t.answer.Looked++
		switch {
		case ok && !n.Beside && (n.Part > 0) == (t.options.Spread > 0):
		case n.Policy != "" && !n.Beside:
			t.answer.InParts++
			continue
		default:
			t.answer.Other++
			continue
		}
		r, plan := t.stateOf(n.Policy, n.Rule, n.Variant)
		if r == nil {
			t.uncounted(Count{Policy: n.Policy, Rule: n.Rule})
			continue
		}
		if matches := t.question.Matches; matches != nil && !matches(r.Policy, r.Name, n.Key) {
			continue
		}
		slots <- struct{}{}
		peeks.Go(func() {
			s, err := t.state(ctx, r, n.Key, plan)
			<-slots
			t.mu.Lock()
			defer t.mu.Unlock()
			switch {
			case errors.Is(err, lua.ErrValue): // of this key alone
				t.answer.Invalid++
			case err != nil:
				failure = err
			default:
				t.add(&s)
			}
		})
	}
	peeks.Wait()
	return failure
}

func (t *top) uncounted(rule Count) {
	if _, met := t.unknown[rule]; !met && len(t.unknown) >= maxUnknown {
		t.answer.Omitted++
		return
	}
	t.unknown[rule]++
}

// add counts a state, and keeps it if it is near its limit. It keeps few more than are listed.
func (t *top) add(s *State) {
	t.answer.Known++
	if !s.Refused && (s.Percent < t.question.At || s.Used == 0) {
		return
	}
	t.answer.Near++
	t.answer.Keys = append(t.answer.Keys, *s)
	if len(t.answer.Keys) >= 2*t.question.N+1000 {
		t.trim()
	}
}

func (t *top) trim() {
	slices.SortFunc(t.answer.Keys, fuller)
	t.answer.Keys = slices.Clip(t.answer.Keys[:min(t.question.N, len(t.answer.Keys))])
}

// fuller orders states: those refused for longest first, then the fullest.
func fuller(a, b State) int {
	until := func(s *State) int64 {
		switch {
		case !s.Refused:
			return 0
		case s.Until.IsZero(): // for good
			return 1<<63 - 1
		}
		return s.Until.UnixMilli()
	}
	return cmp.Or(cmp.Compare(until(&b), until(&a)), cmp.Compare(b.Percent, a.Percent), cmp.Compare(b.Used, a.Used),
		strings.Compare(a.Policy, b.Policy), strings.Compare(a.Rule, b.Rule), strings.Compare(a.Key, b.Key))
}
