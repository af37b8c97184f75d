module github.com/routelimit/limit/policyfile

go 1.25.0

require (
	github.com/pelletier/go-toml/v2 v2.4.3
	github.com/redis/go-redis/v9 v9.22.0
	github.com/routelimit/limit v0.1.0
	github.com/routelimit/limit/access v0.1.0
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
	github.com/stretchr/testify v1.12.1
	go.yaml.in/yaml/v4 v4.0.0
)
