-- The leaky bucket as a meter (GCRA). The twin of core/leakybucket.go.
--
-- @needs bucket.lua

algorithms[5] = bucket
