package policyfile

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/routelimit/limit/internal/must"
)

// TestSchemaFields checks that the schema and the decoder know the same fields.
func TestSchemaFields(t *testing.T) {
	var s struct {
		Properties map[string]any
		Defs       map[string]struct{ Properties map[string]any } `json:"$defs"`
	}
	require.NoError(t, json.Unmarshal(Schema(), &s))
	assert.ElementsMatch(t, fileFields, slices.Collect(maps.Keys(s.Properties)))
	assert.ElementsMatch(t, policyFields, slices.Collect(maps.Keys(s.Defs["policy"].Properties)))
}

// value returns a file as a JSON Schema sees it. ok is false if it is not even in its
// format.
func value(t *testing.T, file string) (v any, ok bool) {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	switch filepath.Ext(file) {
	case ".yaml":
		err = yaml.Unmarshal(data, &v)
	default:
		err = json.Unmarshal(data, &v)
	}
	if err != nil {
		return nil, false
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, false
	}
	v, err = jsonschema.UnmarshalJSON(bytes.NewReader(text))
	return v, err == nil
}

// TestSchema checks that the schema admits all valid files, and none that it could
// find wrong: those whose mistake is not one of form are named here.
func TestSchema(t *testing.T) {
	compiler := jsonschema.NewCompiler()
	document := must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(Schema())))(t)
	require.NoError(t, compiler.AddResource("schema.json", document))
	s := must.Get(compiler.Compile("schema.json"))(t)

	valid := must.Get(filepath.Glob("testdata/valid/*"))(t)
	assert.GreaterOrEqual(t, len(valid), 5)
	for _, file := range valid {
		must.Get(Read(file))(t)
		v, ok := value(t, file)
		require.True(t, ok, file)
		assert.NoError(t, s.Validate(v), file)
	}

	broken := must.Get(filepath.Glob("testdata/broken/*.????"))(t)
	found, beyond := 0, 0
	for _, file := range broken {
		v, ok := value(t, file)
		if !ok {
			continue
		}
		if s.Validate(v) != nil {
			found++
			continue
		}
		beyond++
		assert.Contains(t, beyondSchema, filepath.Base(file), "the schema should find what is wrong with it")
	}
	assert.Equal(t, len(beyondSchema), beyond)
	t.Logf("of %d files in their format, the schema finds %d wrong", found+beyond, found)
}

// beyondSchema are broken files that a schema cannot see to be so.
var beyondSchema = []string{
	"anchor.yaml",
	"bad-prefix.yaml",
	"default-route-in-list.json",
	"default-route.yaml",
	"duplicate-policy.json",
	"endless-wait.yaml",
	"half-written.yaml",
	"list-unknown.yaml",
	"merge.yaml",
	"refuse-host.yaml",
	"refuse-more.yaml",
	"refuse-two.yaml",
	"route-conflict.yaml",
	"route-no-value.yaml",
	"route-of-two.yaml",
	"route-same-wildcard.yaml",
	"route-wildcard.yaml",
	"rule-alone.yaml",
	"rule-escapes.json",
	"rule-folded.yaml",
	"rule-in-block.yaml",
	"rule-in-single-quotes.yaml",
	"rule-limit.yaml",
	"rule-multi-line.yaml",
	"rule-names.yaml",
	"rule-replaces.yaml",
	"rule-unit.yaml",
	"rule-with-escapes.yaml",
	"surrogates.json", // YAML has no pairs
	"tag.yaml",
	"too-many-rules.yaml",
	"two-documents.yaml",
	"unicode.yaml",
}
