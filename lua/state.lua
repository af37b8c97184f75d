-- What the script knows of each key, by its index in KEYS. These are columns,
-- because a table for each key would cost more than its decision. The nils reserve
-- space: an empty table is allocated again for its first, second, third and fifth
-- value.

local room = {nil, nil, nil, nil}  -- units that still fit, below zero after a lowered limit
local taken = {nil, nil, nil, nil} -- units taken by this call
local more = {nil, nil, nil, nil}  -- us until one unit more fits than now, or 0 if nothing is used
local reset = {nil, nil, nil, nil} -- us until nothing is used, or 0
local problem = {} -- why the key cannot be used, if so
local redated = {} -- whether it must be written although nothing was taken
local needs = {}   -- units that a charge needs room for, where that is not its cost -- @take
local delays = {}  -- us that the units taken last must wait, in a queue -- @take

local WRONG_TYPE, WRONG_VALUE, WRONG_CLOCK = 1, 2, 3 -- what may be wrong with a key

-- The algorithms that the script has, by their numbers in package core. Each is
-- a table of functions:
--
--   prepare(rule, params)    optional: reads what the algorithm needs beside limit
--                            and window, and may set rule.capacity and rule.as
--   load(rule, now)          reads the keys of a rule, rule.first to rule.last, and
--                            fills in their rows
--   take(rule, k, n, at)     takes n units that fit; at is where the blob goes on
--                            behind the ask, or behind the charge if there are several asks
--   after(rule, k, n, now)   in how many us n units more fit
--   need(rule, k, cost, at)  optional: fills in needs for a charge; at is where the
--                            blob goes on behind it
--   refuse(rule, k, barred)  optional: notes that a charge was refused, maybe because
--                            a ban bars a key of the decision
--   save(rule, now, stamp, grace)   writes the keys that have changed
--   give_back(value, rule, now, returned), look(rule, now, k, value), date(rule, k, now, grace)
--                            see return.lua; only in its script
--
-- flatten.go writes all but the last into the driver where it calls them, so they are
-- functions of these parameters, and no local has the name of one at the top level.
local algorithms = {}

-- @rare
-- reads the values of the keys of a rule: false if there is none. A key of another
-- type is noted in problem.
local function values_of(rule)
  local got, missing = call('MGET', unpack(keys, rule.first, rule.last)), nil
  for q = 1, rule.last - rule.first + 1 do
    if not got[q] then
      missing = missing or {}
      missing[#missing + 1] = keys[rule.first + q - 1]
    end
  end
  -- MGET reads a key of another type as one that is not there
  if missing and call('EXISTS', unpack(missing)) > 0 then
    for q = 1, rule.last - rule.first + 1 do
      local k = rule.first + q - 1
      if not got[q] and call('EXISTS', keys[k]) > 0 then problem[k] = WRONG_TYPE end
    end
  end
  return got
end
