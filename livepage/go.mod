module github.com/routelimit/limit/livepage

go 1.25.0

require (
	github.com/redis/go-redis/v9 v9.22.0
	github.com/routelimit/limit v0.1.0
	github.com/routelimit/limit/access v0.1.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/gaissmai/bart v0.30.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.46.0 // indirect
)
