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
	"github.com/routelimit/limit/internal/typedkey"
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
	ID      string `json:"id"`      // in the place of Key or Entry
	Pattern bool   `json:"pattern"` // whether the Key of an override is one
	Entry   string `json:"entry"`
	Limit   int64  `json:"limit"`
	Seconds int64  `json:"seconds"` // 0 means until removed
	Reason  string `json:"reason"`

	key   string        // that Key or ID names; "" of unban
	lasts time.Duration // Seconds
	rule  limit.Rule    // of Policy and Rule; the zero Rule if there is none
	of    [2]string     // the policy and the rule that have its limit: of another set, if the policy is With it
}

func (p *page) changes() map[string]func(context.Context, viewer, *action) (said string, err error) {
	return map[string]func(context.Context, viewer, *action) (string, error){
		"reset": p.reset, "ban": p.ban, "unban": p.unban, "override": p.override, "unoverride": p.unoverride,
	}
}

// change runs an action for an operator, and says what was done. A form of another site cannot
// send it: its body is JSON, and its origin is checked.
func (p *page) change(w http.ResponseWriter, r *http.Request, v viewer, name string) (said string, err error) {
	if err := sameOrigin(r); err != nil {
		return "", err
	}
	cannot := p.me(v).Cannot
	if v.role < Operator {
		return "", problemf(http.StatusForbidden, "%s", cannot["reset"])
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return "", problemf(http.StatusUnsupportedMediaType, "no JSON: send Content-Type: application/json")
	}
	var a action
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	body.DisallowUnknownFields()
	err = body.Decode(&a)
	if err == nil && body.More() {
		err = errors.New("more than one object")
	}
	if err != nil {
		return "", problemf(http.StatusBadRequest, "the body is not an object of the page: %s", excerpt(err.Error(), 200))
	}
	if why := cannot[strings.TrimPrefix(name, "un")]; why != "" {
		return "", problemf(http.StatusConflict, "%s", why)
	}
	// The change is not given up if the operator disconnects: half of it may be done.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), actionTimeout)
	defer cancel()
	if err = p.resolve(&a, name); err == nil {
		said, err = p.changes()[name](ctx, v, &a)
	}
	p.states.outdated()
	return said, p.shown(&a, err)
}

// resolve sets the key that an action is about, and how long it lasts.
func (p *page) resolve(a *action, name string) error {
	const most = 10 * 366 * 24 * 3600
	if a.Seconds < 0 || a.Seconds > most {
		return problemf(http.StatusBadRequest, "seconds %d: send 1 to %d, or 0 for a change that stays until it is removed", a.Seconds, most)
	}
	if a.lasts = time.Duration(a.Seconds) * time.Second; a.lasts == 0 {
		a.lasts = limit.Never
	}
	a.key = a.Key
	p.find(a)
	switch {
	case name == "ban" && a.ID == "", name == "unban": // whose keys and ids are those of entries
		return nil
	case a.ID == "":
		return p.typed(a, name)
	case a.Key != "":
		return problemf(http.StatusBadRequest, "both key and id: send one of them")
	}
	var ok bool
	if a.key, ok = p.keyIDs.find(a.ID); !ok {
		return problemf(http.StatusNotFound, "id %q is not tracked any more: choose a key of the list", excerpt(a.ID, 40))
	}
	return nil
}

// typed sets the key that requests have for a key that a person may have typed, such as a user or
// an address. One that has an override is meant as it is.
func (p *page) typed(a *action, name string) error {
	if a.rule.Name == "" {
		return nil // the action says which rules there are
	}
	if of := a.override(); strings.HasSuffix(name, "override") && slices.ContainsFunc(p.options.Overrides.List(), func(o overrides.Override) bool {
		return o.Policy == of.Policy && o.Rule == of.Rule && o.Key == of.Key && o.Pattern == of.Pattern
	}) {
		return nil
	}
	form, err := typedkey.Of(&a.rule, operate.Proxies(p.limiter).IPv6Prefix)
	switch kind := kindOf(a.rule); {
	case err != nil:
	case !a.Pattern:
		a.key, err = form.One(a.Key)
	case kind == "ip" || kind == "global":
		err = fmt.Errorf("patterns are for rules whose keys are text, such as users, and %s is by %s: choose a key; "+
			"for a network, ban 10.0.0.0/8, or write exempt ip 10.0.0.0/8 in the rule", a.Rule, kind)
	default:
		a.key, err = form.Pattern(a.Key)
	}
	if err != nil {
		return problemf(http.StatusBadRequest, "%s", excerpt(err.Error(), 500))
	}
	return nil
}

func (p *page) reset(ctx context.Context, _ viewer, a *action) (string, error) {
	if err := operate.Reset(ctx, p.limiter, a.Policy, a.Rule, a.key); err != nil {
		return "", err
	}
	p.lift(bannedKey{a.Policy, a.Rule, a.key})
	return fmt.Sprintf("Reset %s of %s. Its quota is full.", p.name(a), a.Rule), nil
}

func (p *page) ban(ctx context.Context, v viewer, a *action) (string, error) {
	entry, shown, err := p.entry(a)
	if err != nil {
		return "", err
	}
	if err := p.options.Bans.Ban(ctx, entry, a.lasts, by(v), a.Reason); err != nil {
		return "", err
	}
	return fmt.Sprintf("Banned %s%s.", shown, a.forTime()), nil
}

// entry returns the entry to ban: that of the action, or the one that matches its key.
func (p *page) entry(a *action) (entry, shown string, err error) {
	if a.Entry != "" {
		return a.Entry, a.Entry, nil
	}
	switch kind := kindOf(a.rule); {
	case a.key == "":
		return "", "", problemf(http.StatusBadRequest, "no entry: send an address, a prefix, user NAME or agent TEXT")
	case kind == "ip":
		return a.key, p.name(a), nil
	case kind == "user":
		return "user " + strconv.Quote(a.key), "user " + p.name(a), nil
	}
	return "", "", problemf(http.StatusBadRequest, "rule %q of policy %q is neither by ip nor by user: send an entry, such as an address",
		excerpt(a.Rule, 64), excerpt(a.Policy, 100))
}

// find sets the rule of an action.
func (p *page) find(a *action) {
	a.of = [2]string{a.Policy, a.Rule}
	for name, set := range operate.Policies(p.limiter) {
		if i := slices.IndexFunc(set.Rules(), func(r limit.Rule) bool { return r.Name == a.Rule }); name == a.Policy && i >= 0 {
			a.rule = set.Rules()[i]
			if policy, rule := set.Origin(i); policy != "" {
				a.of = [2]string{policy, rule}
			}
			return
		}
	}
}

// override returns the override that an action is about.
func (a *action) override() overrides.Override {
	o := overrides.Override{Policy: a.of[0], Rule: a.of[1], Key: a.key, Limit: a.Limit, Reason: a.Reason}
	if a.Pattern {
		o.Key, o.Pattern = "", a.key
	}
	return o
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
	if a.rule.Name == "" {
		return "", problemf(http.StatusNotFound, "policy %q has no rule %q: send names of the list of policies", excerpt(a.Policy, 100), excerpt(a.Rule, 64))
	}
	given := a.rule.WithLimit(max(1, a.Limit))       // Set rejects others
	if err := given.Quota().Validate(); err != nil { // programs would use another limit
		return "", problemf(http.StatusBadRequest, "%s: %v", a.Rule, err)
	}
	if err := p.options.Overrides.Set(ctx, a.override(), a.lasts, by(v)); err != nil {
		return "", err
	}
	return fmt.Sprintf("The limit of %s in %s is %d%s.", p.name(a), a.Rule, a.Limit, a.forTime()), nil
}

func (p *page) unoverride(ctx context.Context, v viewer, a *action) (string, error) {
	if err := p.options.Overrides.Remove(ctx, a.override(), by(v)); err != nil {
		if errors.Is(err, overrides.ErrNone) {
			return "", problemf(http.StatusNotFound, "%s has no override in %s: send one of the list of overrides", p.name(a), excerpt(a.Rule, 64))
		}
		return "", err
	}
	return fmt.Sprintf("Removed the override of %s in %s.", p.name(a), a.Rule), nil
}

// name returns the key of an action for a sentence. A key that a person typed is shown even if
// keys are hidden: showing its id would tell that person which client the id stands for.
func (p *page) name(a *action) string {
	shown, id := p.text(a.rule, a.key), ""
	if a.ID != "" {
		shown, id = p.show(a.rule, a.key)
	}
	switch {
	case shown != "":
		return excerpt(shown, 100)
	case id != "":
		return id
	case kindOf(a.rule) != "global":
		return "requests without a key"
	}
	return "all requests"
}

func by(v viewer) string { return cmp.Or(excerpt(strings.TrimSpace(v.who), 200), "unknown") }

func (a *action) forTime() string {
	if a.lasts == limit.Never {
		return " until removed"
	}
	return " for " + inWords(a.lasts)
}

func unixMilli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
