module github.com/routelimit/limit/replay

go 1.25.0

require (
	github.com/klauspost/compress v1.20.3
	github.com/routelimit/limit v0.1.0
	github.com/stretchr/testify v1.12.1
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
