package redisurl

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	o, err := Parse("rediss://app:secret@db:6380/2")
	require.NoError(t, err)
	assert.Equal(t, []any{"db:6380", "app", "secret", 2, true}, []any{o.Addr, o.Username, o.Password, o.DB, o.TLSConfig != nil})
	c, err := ParseCluster("redis://db:7000?addr=db:7001")
	require.NoError(t, err)
	assert.Equal(t, []string{"db:7000", "db:7001"}, c.Addrs)

	// An error does not show the password.
	for _, text := range []string{"", "redis://app:secret@:port", "app:secret@db", "http://app:secret@db", "redis://app:secret@db/x"} {
		_, err := Parse(text)
		require.Error(t, err, text)
		assert.Contains(t, err.Error(), "--redis")
		assert.Contains(t, err.Error(), "write --redis as redis://user:password@host:6379/0")
		assert.NotContains(t, err.Error(), "secret")
		if _, err := ParseCluster(text); err != nil { // a Cluster has no databases
			assert.NotContains(t, err.Error(), "secret")
		}
	}
}
