package policyfile

import (
	_ "embed"
	"slices"
)

//go:embed schema.json
var schema []byte

// Schema returns the JSON Schema of policy files, for editors and other programs. It
// admits all valid files, and some invalid ones: see [Parse].
func Schema() []byte { return slices.Clone(schema) }
