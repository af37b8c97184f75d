module github.com/routelimit/limit/access

go 1.25.0

require (
	github.com/gaissmai/bart v0.30.0
	github.com/routelimit/limit v0.1.0
	github.com/stretchr/testify v1.12.1
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
