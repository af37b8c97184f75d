package live

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/operate"
)

// Keys returns the keys of a rule that a text may stand for: the key that requests with
// this value have (for an IPv6 address, its prefix), and the text itself, as Top shows
// keys. It returns none for a rule that all requests share, unless the text is empty.
func (l *Limits) Keys(r *Rule, text string) (keys []string) {
	keys = l.resolved(r, text)
	if (!r.Shared() || text == "") && !slices.Contains(keys, text) {
		keys = append(keys, text)
	}
	return keys
}

// resolved returns the keys that requests with a value have.
func (l *Limits) resolved(r *Rule, text string) (keys []string) {
	if text == "" {
		return nil
	}
	parts := []grammar.Key{r.key}
	if r.key.Kind == grammar.Or {
		parts = r.key.Parts
	}
	for _, part := range parts {
		if part.Kind == grammar.Global || len(part.Parts) > 0 {
			continue
		}
		values := make(map[string]string)
		blank(r.key, values)
		values[part.String()] = text
		if key, err := operate.Key(r.policy.bound, r.Name, values); err == nil && key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// blank gives each resolver in a key the value of a request that has none.
func blank(key grammar.Key, values map[string]string) {
	if len(key.Parts) == 0 {
		values[key.String()] = ""
	}
	for _, part := range key.Parts {
		blank(part, values)
	}
}

// Composite reports whether keys of the rule join several values, so that one value
// does not say which key it is.
func (r *Rule) Composite() bool { return composite(r.key) }

func composite(key grammar.Key) bool {
	return key.Kind == grammar.And || slices.ContainsFunc(key.Parts, composite)
}

// Shared reports whether all requests of the rule share one key.
func (r *Rule) Shared() bool { return r.key.Kind == grammar.Global }

// Key returns the one key of a rule that a text stands for. The error says what to write
// instead.
func (l *Limits) Key(r *Rule, text string) (string, error) {
	resolved := l.resolved(r, text)
	switch {
	case r.Shared() && text != "":
		return "", fmt.Errorf("rule %q is one quota of all requests: write \"\" as its key", r.Name)
	case text == "", stored.MatchString(text), len(r.key.Parts) > 0 && fits(r.key, text), slices.Contains(resolved, text):
		return text, nil
	case r.Composite() && len(resolved) == 0:
		return "", fmt.Errorf("key %q of rule %q (per %s): no request has it, since keys of the rule join several values: "+
			"write the whole key, as limitctl top shows it", text, r.Name, r.key)
	case len(resolved) == 1:
		return resolved[0], nil
	case len(resolved) > 1:
		return "", fmt.Errorf("key %q of rule %q (per %s) has several meanings: write one of %q", text, r.Name, r.key, resolved)
	}
	if prefix, err := netip.ParsePrefix(text); err == nil && prefix.Addr().Is6() && prefix.Masked() == prefix {
		return text, nil // as keys of IPv6 clients are
	}
	return "", fmt.Errorf("key %q of rule %q is not an address: write one such as 203.0.113.9", text, r.Name)
}

// fits reports whether a text has the form of a key, as rules.KeyResolver makes them: an
// alternative begins with its number, and values that are joined begin with their lengths.
func fits(key grammar.Key, text string) bool {
	switch {
	case text == "", stored.MatchString(text):
		return true
	case key.Kind == grammar.Or:
		number, rest, _ := strings.Cut(text, "=")
		i, err := strconv.Atoi(number)
		return err == nil && i >= 0 && i < len(key.Parts) && rest != "" && fits(key.Parts[i], rest)
	case key.Kind == grammar.And:
		for _, part := range key.Parts {
			length, rest, _ := strings.Cut(text, ":")
			n, err := strconv.Atoi(length)
			if err != nil || n < 0 || n > len(rest) || !fits(part, rest[:n]) {
				return false
			}
			text = rest[n:]
		}
		return text == ""
	}
	return true
}

var stored = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`) // the key of a long value
