-- What the heads of tallies say, see tallies.lua.

local IDLE_TALLY = 3600000000
algorithms[4] = algorithms[4] or algorithms[5]
local heads = {known = {}} -- functions; known: by heads, their quotas; keys that are alike share one

-- What a head says, or nil if no script wrote it: text, the head; algorithm; units, whether it
-- counts units, as others do; stays, the us for which its tally stays after its version has taken
-- nothing; and of units what a rule has, once it is needed.
function heads.quota_of(head)
  local quota = heads.known[head]
  if quota then return quota end
  local a, stays = byte(head, 1), IDLE_TALLY
  local algorithm, limit, window = a == 5 and 4 or a, nil, nil
  if #head == 1 then
    if a < 7 or a > 9 then return nil end
  else
    local params = sub(head, 21)
    if #head < 20 or a > 9 or #params > 40 then return nil end
    limit, window, stays = u48(head, 9), u48(head, 15), stays + 2*u56(head, 2)
    if limit < 1 or window < 1 or window > 31622400000000 or a == 0 and limit > 100000 or
      a == 1 and (#params ~= 7 or byte(params, 1) ~= 117) or algorithm == 4 and not string.match(params, '^%d+,?%d*$') or
      a == 2 and not (string.match(params, '^%d%d?$') and params + 0 > 1 and params + 0 < 61) or
      a == 6 and not string.match(params, '^%d+,%d+$') then return nil end
  end
  quota = {text = head, algorithm = algorithm, units = a < 7, stays = stays, limit = limit, window = window,
    as = nil, short = nil, capacity = nil, head = nil} -- and room for six more
  heads.known[head] = quota
  return quota
end

-- the rule of a quota
function heads.rule_of(quota)
  local as = algorithms[quota.algorithm]
  if quota.as then return quota end
  quota.as, quota.short, quota.capacity = as, quota.window < 4294967296, quota.limit
  local prepare = as['prepare']
  if prepare then prepare(quota, sub(quota.text, 21)) end
  quota.as, quota.upto = as, nil -- and not those of large logs
  if quota.periods then quota.periods, quota.ends = nil, 0 end -- a calendar is not known here
  return quota
end
