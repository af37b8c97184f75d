package limit

import (
	"errors"
	"fmt"
	"strings"

	"github.com/routelimit/limit/internal/clientip"
)

// Keys holds the values of keys outside HTTP, by their names in the text
// grammar:
//
//	limit.Keys{"ip": "203.0.113.9", "user": "alice", "header X-API-Key": "k1"}
//
// An address may have a port, and the name of a header any case. "" means that
// there is no such key, and shares one quota with all others that have none.
type Keys map[string]string

// lookup returns the value of a key. Headers are found by names that differ in
// case, but not if two do.
func (k Keys) lookup(key *KeyResolver) (value string, ok bool) {
	if value, ok = k[key.label]; ok || key.kind != byHeader {
		return value, ok
	}
	found := 0
	for label, v := range k {
		if strings.EqualFold(label, key.label) {
			value = v
			found++
		}
	}
	return value, found == 1
}

// keysSource takes keys from Keys, addresses with as many bits as requests do.
type keysSource struct {
	keys       Keys
	ipv6Prefix int
	n          int64 // what the request costs of each rule
}

func (s keysSource) value(key *KeyResolver) string {
	v, _ := s.keys.lookup(key)
	if key.kind == byIP {
		return clientip.Key(v, s.ipv6Prefix)
	}
	return strings.TrimSpace(v)
}

// missing returns an error that joins one for each key of the policy that keys
// has no value for, or not an address where one is needed.
func (p *Policy) missing(keys Keys) error {
	var errs []error
	for i := range p.keys {
		errs = append(errs, p.keys[i].missing(keys)...)
	}
	return errors.Join(errs...)
}

func (k *KeyResolver) missing(keys Keys) (errs []error) {
	for i := range k.parts {
		errs = append(errs, k.parts[i].missing(keys)...)
	}
	if k.kind == everyone || len(k.parts) > 0 {
		return errs
	}
	v, ok := keys.lookup(k)
	switch {
	case !ok:
		return []error{fmt.Errorf("limit: no key %q: write limit.Keys{%[1]q: …}, with \"\" if there is none", k.label)}
	case k.kind == byIP && v != "" && clientip.Key(v, 0) == "":
		return []error{fmt.Errorf("limit: key \"ip\": %q is not an address: write one such as 203.0.113.9", v)}
	}
	return nil
}
