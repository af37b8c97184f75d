package redisstore

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash"
	"slices"
	"sync"

	"github.com/routelimit/limit/core"
)

const (
	minSecret    = 16 // bytes
	identitySize = 16 // bytes of a hash that are kept
)

// identities replace the keys of charges before anything is made of them that
// leaves the process: names of Redis keys, and errors about them. All calls of
// the store go through one of its methods. A nil one leaves the keys as they are.
//
// What stands for a key is HMAC-SHA-256 (RFC 2104) of its policy, its rule and
// itself, each behind its length but the last, cut to 128 bits. The policy and
// the rule are in it so that nobody can tell by the names who of one rule is
// who of another. The empty key is nobody's: it stays empty.
type identities struct{ hashers sync.Pool }

// newIdentities returns nil for a nil secret. An empty one is most likely a
// variable that is not set, and must not mean that nothing is hidden.
func newIdentities(secret []byte) *identities {
	if secret == nil {
		return nil
	}
	if len(secret) < minSecret {
		panic(fmt.Sprintf("redisstore: a Secret of %d bytes: write at least %d random ones, such as those of `openssl rand -hex 32`",
			len(secret), minSecret))
	}
	secret = slices.Clone(secret)
	return &identities{sync.Pool{New: func() any { return &hasher{mac: hmac.New(sha256.New, secret)} }}}
}

type hasher struct {
	mac  hash.Hash
	text []byte
	sum  [sha256.Size]byte
	out  [22]byte // of base64: identitySize bytes
}

// of returns what stands for a key, in characters that stand for themselves in
// a key of Redis.
func (ids *identities) of(policy, rule, key string) string {
	if ids == nil || key == "" {
		return key
	}
	h := ids.hashers.Get().(*hasher)
	defer ids.hashers.Put(h)
	h.text = binary.AppendUvarint(h.text[:0], uint64(len(policy)))
	h.text = append(h.text, policy...)
	h.text = binary.AppendUvarint(h.text, uint64(len(rule)))
	h.text = append(h.text, rule...)
	h.text = append(h.text, key...)
	h.mac.Reset()
	h.mac.Write(h.text)
	clear(h.text) // it is kept, and need not be known
	sum := h.mac.Sum(h.sum[:0])
	base64.RawURLEncoding.Encode(h.out[:], sum[:identitySize])
	return string(h.out[:])
}

// hide replaces the keys of charges, which are the store's own.
func (ids *identities) hide(policy string, charges []core.Charge) {
	if ids == nil {
		return
	}
	for i := range charges {
		charges[i].Key = ids.of(policy, charges[i].Rule, charges[i].Key)
	}
}

// hidden returns charges with their keys replaced.
func (ids *identities) hidden(policy string, charges []core.Charge) []core.Charge {
	if ids == nil {
		return charges
	}
	charges = slices.Clone(charges)
	ids.hide(policy, charges)
	return charges
}

// hiddenReturns is hidden for returns.
func (ids *identities) hiddenReturns(policy string, returns []core.Return) []core.Return {
	if ids == nil {
		return returns
	}
	returns = slices.Clone(returns)
	for i := range returns {
		returns[i].Key = ids.of(policy, returns[i].Rule, returns[i].Key)
	}
	return returns
}
