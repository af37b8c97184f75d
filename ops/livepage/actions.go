package livepage

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/operate"
	"github.com/routelimit/limit/ops/overrides"
)

const (
	maxBody       = 16 << 10
	actionTimeout = 5 * time.Second
)

// An action is the body of a request that changes something.
type action struct {
	Policy  string `json:"policy"`
	Rule    string `json:"rule"`
	Key     string `json:"key"`
	ID      string `json:"id"` // in the place of Key or Entry
	Entry   string `json:"entry"`
	Limit   int64  `json:"limit"`
	Seconds int64  `json:"seconds"` // 0 means until removed
	Reason  string `json:"reason"`
}

// A problem is an error with a status of HTTP.
type problem struct {
	status int
	text   string
}

func (p *problem) Error() string { return p.text }

func problemf(status int, format string, args ...any) error {
	return &problem{status, fmt.Sprintf(format, args...)}
}

func (p *page) changes() map[string]func(context.Context, viewer, *action) (said string, err error) {
	return map[string]func(context.Context, viewer, *action) (string, error){
		"reset": p.reset, "ban": p.ban, "unban": p.unban, "override": p.override, "unoverride": p.unoverride,
	}
}

// change runs an action for an operator. A form of another site cannot send it: its body
// is JSON, and its origin is checked.
func (p *page) change(w http.ResponseWriter, r *http.Request, v viewer, name string) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		fail(w, http.StatusMethodNotAllowed, "method %s: use POST", r.Method)
		return
	}
	if !sameOrigin(w, r) {
		return
	}
	cannot := p.me(v).Cannot
	if v.role < Operator {
		fail(w, http.StatusForbidden, "%s", cannot["reset"])
		return
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		fail(w, http.StatusUnsupportedMediaType, "no JSON: send Content-Type: application/json")
		return
	}
	var a action
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	body.DisallowUnknownFields()
	err := body.Decode(&a)
	if err == nil && body.More() {
		err = errors.New("more than one object")
	}
	if err != nil {
		fail(w, http.StatusBadRequest, "the body is not an object of the page: %s", excerpt(err.Error(), 200))
		return
	}
	if why := cannot[strings.TrimPrefix(name, "un")]; why != "" {
		fail(w, http.StatusConflict, "%s", why)
		return
	}
	// The change is not given up if the operator disconnects: half of it may be done.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), actionTimeout)
	defer cancel()
	said, err := p.changes()[name](ctx, v, &a)
	p.states.outdated()
	if err != nil {
		p.failed(w, &a, err)
		return
	}
	answer(w, http.StatusOK, map[string]string{"done": said})
}

// key returns the key that an action is about.
func (p *page) key(a *action) (string, error) {
	if a.ID == "" {
		return a.Key, nil
	}
	if a.Key != "" {
		return "", problemf(http.StatusBadRequest, "both key and id: send one of them")
	}
	key, ok := p.keyIDs.find(a.ID)
	if !ok {
		return "", problemf(http.StatusNotFound, "id %q is not tracked any more: choose a key of the list", excerpt(a.ID, 40))
	}
	return key, nil
}

func (p *page) reset(ctx context.Context, _ viewer, a *action) (string, error) {
	key, err := p.key(a)
	if err != nil {
		return "", err
	}
	if err := operate.Reset(ctx, p.limiter, a.Policy, a.Rule, key); err != nil {
		return "", err
	}
	p.lift(bannedKey{a.Policy, a.Rule, key})
	return fmt.Sprintf("Reset %s of %s. Its quota is full.", p.name(a, key), a.Rule), nil
}

func (p *page) ban(ctx context.Context, v viewer, a *action) (string, error) {
	entry, shown, err := p.entry(a)
	if err != nil {
		return "", err
	}
	d, err := duration(a.Seconds)
	if err != nil {
		return "", err
	}
	if err := p.options.Bans.Ban(ctx, entry, d, by(v), a.Reason); err != nil {
		return "", err
	}
	return fmt.Sprintf("Banned %s%s.", shown, forTime(d)), nil
}

// entry returns the entry to ban: that of the action, or the one that matches its key.
func (p *page) entry(a *action) (entry, shown string, err error) {
	if a.Entry != "" {
		return a.Entry, a.Entry, nil
	}
	key, err := p.key(a)
	if err != nil {
		return "", "", err
	}
	switch kind := p.kind(a.Policy, a.Rule); {
	case key == "":
		return "", "", problemf(http.StatusBadRequest, "no entry: send an address, a prefix, user NAME or agent TEXT")
	case kind == "ip":
		return key, p.name(a, key), nil
	case kind == "user":
		return "user " + strconv.Quote(key), "user " + p.name(a, key), nil
	}
	return "", "", problemf(http.StatusBadRequest, "rule %q of policy %q is neither by ip nor by user: send an entry, such as an address",
		excerpt(a.Rule, 64), excerpt(a.Policy, 100))
}

// kind says what the keys of a rule are: "" if there is no such rule.
func (p *page) kind(policy, rule string) string {
	if r := p.rule(policy, rule); r.Name != "" {
		return kindOf(r)
	}
	return ""
}

// rule returns the rule of a name, or the zero Rule.
func (p *page) rule(policy, rule string) limit.Rule {
	for name, set := range operate.Policies(p.limiter) {
		if name != policy {
			continue
		}
		for _, r := range set.Rules() {
			if r.Name == rule {
				return r
			}
		}
	}
	return limit.Rule{}
}

// origin returns the policy and the rule whose limits those of an action are: of another set,
// if the policy is With it.
func (p *page) origin(a *action) (policy, rule string) {
	for name, set := range operate.Policies(p.limiter) {
		i := slices.IndexFunc(set.Rules(), func(r limit.Rule) bool { return r.Name == a.Rule })
		if name != a.Policy || i < 0 {
			continue
		}
		if policy, rule = set.Origin(i); policy != "" {
			return policy, rule
		}
	}
	return a.Policy, a.Rule
}

func (p *page) unban(ctx context.Context, v viewer, a *action) (string, error) {
	entry, shown := a.Entry, a.Entry
	if a.ID != "" {
		entry, _ = p.banIDs.find(a.ID)
		shown = a.ID
	}
	if entry == "" {
		return "", problemf(http.StatusBadRequest, "no such entry: send one of the list of bans")
	}
	found, err := p.options.Bans.Unban(ctx, entry, by(v))
	if err != nil {
		return "", err
	}
	if !found {
		return "", problemf(http.StatusNotFound, "%q is not banned: send one of the list of bans", excerpt(shown, 100))
	}
	return fmt.Sprintf("Lifted the ban of %s.", shown), nil
}

func (p *page) override(ctx context.Context, v viewer, a *action) (string, error) {
	key, err := p.key(a)
	if err != nil {
		return "", err
	}
	d, err := duration(a.Seconds)
	if err != nil {
		return "", err
	}
	if p.kind(a.Policy, a.Rule) == "" {
		return "", problemf(http.StatusNotFound, "policy %q has no rule %q: send names of the list of policies", excerpt(a.Policy, 100), excerpt(a.Rule, 64))
	}
	o := overrides.Override{Key: key, Limit: a.Limit, Reason: a.Reason}
	o.Policy, o.Rule = p.origin(a)
	if err := p.options.Overrides.Set(ctx, o, d, by(v)); err != nil {
		return "", err
	}
	return fmt.Sprintf("The limit of %s in %s is %d%s.", p.name(a, key), a.Rule, a.Limit, forTime(d)), nil
}

func (p *page) unoverride(ctx context.Context, v viewer, a *action) (string, error) {
	key, err := p.key(a)
	if err != nil {
		return "", err
	}
	policy, rule := p.origin(a)
	if err := p.options.Overrides.Remove(ctx, policy, rule, key, by(v)); err != nil {
		if errors.Is(err, overrides.ErrNone) {
			return "", problemf(http.StatusNotFound, "%s has no override in %s: send one of the list of overrides", p.name(a, key), excerpt(a.Rule, 64))
		}
		return "", err
	}
	return fmt.Sprintf("Removed the override of %s in %s.", p.name(a, key), a.Rule), nil
}

// name returns the key of an action for a sentence. One that a person typed is shown as it
// was typed: its id would tell whose the ids of the page are.
func (p *page) name(a *action, key string) string {
	shown, id := strings.ToValidUTF8(key, "\uFFFD"), ""
	if !p.options.HideKeys || a.ID != "" {
		shown, id = p.show(key)
	}
	switch {
	case shown != "":
		return excerpt(shown, 100)
	case id != "":
		return id
	case p.kind(a.Policy, a.Rule) != "global":
		return "requests without a key"
	}
	return "all requests"
}

// by returns the name that bans and overrides are kept with.
func by(v viewer) string { return cmp.Or(excerpt(strings.TrimSpace(v.who), 200), "unknown") }

func duration(seconds int64) (time.Duration, error) {
	const most = 10 * 366 * 24 * 3600
	switch {
	case seconds == 0:
		return limit.Never, nil
	case seconds < 0 || seconds > most:
		return 0, problemf(http.StatusBadRequest, "seconds %d: send 1 to %d, or 0 for a change that stays until it is removed", seconds, most)
	}
	return time.Duration(seconds) * time.Second, nil
}

func forTime(d time.Duration) string {
	if d == limit.Never {
		return " until removed"
	}
	return " for " + inWords(d)
}

func unixMilli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
