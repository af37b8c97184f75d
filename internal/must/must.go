// Package must spares tests a line for each call that has to succeed.
package must

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Get returns a function that ends the test if a call has failed, and returns its value:
//
//	d := must.Get(policy.Take(ctx, request))(t)
func Get[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		require.NoError(t, err)
		return value
	}
}
