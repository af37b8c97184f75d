//go:build unix

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../../.."

// TestSuites holds that every folder of the product has packages that test it.
func TestSuites(t *testing.T) {
	suites, err := suitesOf(root, "")
	require.NoError(t, err)
	found := make(map[string]bool)
	for _, s := range suites {
		found[s.folder] = true
		tested := false
		for _, folder := range s.tests {
			tests, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
			require.NoError(t, err)
			tested = tested || len(tests) > 0
		}
		assert.True(t, tested, "%s has no tests: name the packages that test it in judges", s.folder)
	}
	for _, folder := range []string{".", "cmd/limitctl", "cmd/limitctl/internal/live", "core", "lua", "ops/access", "ops/overrides", "ops/policyfile", "throttle"} {
		assert.Contains(t, found, folder)
	}
	for folder := range judges {
		assert.Contains(t, found, folder)
	}
	for _, folder := range noProduct {
		assert.NotContains(t, found, folder)
		_, err := os.Stat(filepath.Join(root, folder))
		assert.NoError(t, err)
	}
}

func TestSuitesInFolders(t *testing.T) {
	suites, err := suitesOf(root, "core,stores/guard")
	require.NoError(t, err)
	require.Len(t, suites, 2)
	assert.Contains(t, suites[0].tests, "./stores/guard")
	for _, in := range []string{"cor", "core,", "proof", "core,nowhere", "./core"} {
		_, err := suitesOf(root, in)
		assert.ErrorContains(t, err, "nothing to mutate", in)
	}
}
