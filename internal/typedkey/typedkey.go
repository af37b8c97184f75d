// Package typedkey finds the keys of a rule that an operator means by a text: an address, a user,
// or a key as tools list them.
package typedkey

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/routelimit/limit/internal/grammar"
	"github.com/routelimit/limit/rules"
)

// A Form is what the keys of a rule look like.
type Form struct {
	rule     string
	resolver rules.KeyResolver
	key      grammar.Key
	ipv6     int
}

// Of returns the form of the keys of a rule. ipv6Prefix is that of limit.Proxies.
func Of(r *rules.Rule, ipv6Prefix int) (Form, error) {
	key, err := grammar.ParseKey(r.Key.String())
	return Form{r.Name, r.Key, key, ipv6Prefix}, err
}

// Keys returns the keys that a text may stand for: the key that requests with this value have
// (for an IPv6 address, its prefix), or with these values, as in "203.0.113.9, alice", and the text
// itself, as in Redis. It returns none for
// a rule that all requests share, unless the text is empty.
func (f *Form) Keys(text string) (keys []string) {
	keys = f.resolved(text)
	if (!f.Shared() || text == "") && !slices.Contains(keys, text) {
		keys = append(keys, text)
	}
	return keys
}

// resolved returns the keys that requests with a value have.
func (f *Form) resolved(text string) (keys []string) {
	if text == "" {
		return nil
	}
	alternatives := []grammar.Key{f.key}
	if f.key.Kind == grammar.Or {
		alternatives = f.key.Parts
	}
	for _, of := range alternatives {
		joined, texts := []grammar.Key{of}, []string{text}
		if of.Kind == grammar.And {
			joined, texts = of.Parts, strings.Split(text, ",")
		}
		if of.Kind == grammar.Global || len(texts) != len(joined) {
			continue
		}
		values, valid := map[string]string{}, true
		for i, part := range joined {
			valid = valid && len(part.Parts) == 0
			values[part.String()] = strings.TrimSpace(texts[i])
		}
		key := f.resolver.Resolve(func(k *rules.KeyResolver) string {
			value, there := k.Given(values, f.ipv6)
			given, asked := k.Lookup(values)
			if !there && k.Kind() == grammar.IP && ofClient(given) {
				return given
			}
			valid = valid && (there || !asked)
			return value
		})
		if valid && key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// ofClient reports whether a text is as the keys of IPv6 clients are.
func ofClient(text string) bool {
	prefix, err := netip.ParsePrefix(text)
	return err == nil && prefix.Addr().Is6() && prefix.Masked() == prefix
}

// Shown returns a key as people read it: with commas between joined values, if [Form.One] finds the
// key by that. The lengths that a key itself has look like parts of its values.
func (f *Form) Shown(key string) string {
	if !f.Composite() {
		return key
	}
	var texts []string
	for _, value := range f.Parts(key) {
		texts = append(texts, value.Text)
	}
	text := strings.Join(texts, ", ")
	if one, err := f.One(text); err != nil || one != key {
		return key
	}
	return text
}

// Composite reports whether keys join several values, so that one value does not say which key
// it is.
func (f *Form) Composite() bool { return composite(f.key) }

func composite(key grammar.Key) bool {
	return key.Kind == grammar.And || slices.ContainsFunc(key.Parts, composite)
}

// Shared reports whether all requests share one key.
func (f *Form) Shared() bool { return f.key.Kind == grammar.Global }

// Whole reports whether a text is a key, and not a part of one.
func (f *Form) Whole(text string) bool {
	_, ok := parts(f.key, text)
	return ok
}

// One returns the one key that a text stands for. The error says what to write instead.
func (f *Form) One(text string) (string, error) {
	resolved := f.resolved(text)
	switch {
	case f.Shared() && text != "":
		return "", fmt.Errorf("rule %q is one quota of all requests: write \"\" as its key", f.rule)
	case text == "", stored.MatchString(text), len(f.key.Parts) > 0 && f.Whole(text), slices.Contains(resolved, text):
		return text, nil
	case f.Composite() && len(resolved) == 0:
		return "", fmt.Errorf("key %q of rule %q (per %s): no request has it, since keys of the rule join several values: "+
			"write all of them, with commas between them", text, f.rule, f.key)
	case len(resolved) == 1:
		return resolved[0], nil
	case len(resolved) > 1:
		return "", fmt.Errorf("key %q of rule %q (per %s) has several meanings: write one of %q", text, f.rule, f.key, resolved)
	}
	return "", fmt.Errorf("key %q of rule %q is not an address: write one such as 203.0.113.9", text, f.rule)
}

// Pattern is One for a text that ends in a star, for each key that begins so.
func (f *Form) Pattern(text string) (string, error) {
	pattern, err := f.One(text)
	switch {
	case f.Composite():
		return "", fmt.Errorf("keys of rule %q join several values: write a whole key in place of a pattern", f.rule)
	case err == nil && !strings.HasSuffix(pattern, "*"):
		return "", errors.New("keys of more than 128 bytes are hashes, which no pattern matches: write a shorter pattern, or a key")
	}
	return pattern, err
}

// A Value is one of those that a key is made of.
type Value struct {
	Kind grammar.Kind
	Text string
}

// Parts returns the values in a whole key: of an alternative the one that it has, and of joined
// values all of them. It returns none for a text that is not a whole key.
func (f *Form) Parts(key string) (values []Value) {
	values, _ = parts(f.key, key)
	return values
}

// parts takes a text apart that has the form of a key, as rules.KeyResolver makes them: an
// alternative begins with its number, and values that are joined begin with their lengths.
func parts(key grammar.Key, text string) (values []Value, ok bool) {
	switch {
	case text == "", stored.MatchString(text):
		return nil, true
	case key.Kind == grammar.Or:
		number, rest, _ := strings.Cut(text, "=")
		i, err := strconv.Atoi(number)
		if err != nil || i < 0 || i >= len(key.Parts) || rest == "" {
			return nil, false
		}
		return parts(key.Parts[i], rest)
	case key.Kind == grammar.And:
		for _, part := range key.Parts {
			length, rest, _ := strings.Cut(text, ":")
			n, err := strconv.Atoi(length)
			if err != nil || n < 0 || n > len(rest) {
				return nil, false
			}
			more, ok := parts(part, rest[:n])
			if !ok {
				return nil, false
			}
			values, text = append(values, more...), rest[n:]
		}
		return values, text == ""
	}
	return []Value{{key.Kind, text}}, true
}

var stored = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`) // the key of a long value
