-- The token bucket. The twin of core/tokenbucket.go.
--
-- @needs bucket.lua

algorithms[4] = bucket
