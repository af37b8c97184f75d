-- For scripts that decide on keys with several tallies, see tallies.lua: what the rest of
-- such a script reads and writes of a key is the tally of its own algorithm.

local server = redis
local tallied = {} -- by key, those that are not of the script's algorithm alone
-- functions and tables: with the locals of all files they would be too many for Lua
local tallies = {}

function tallies.on(t, command, a, b, c)
  local value = t.value or ''
  if command == 'GET' then return t.value end
  if command == 'GETRANGE' then return string.sub(value, a + 1, b + 1) end
  if command == 'PTTL' then return -2 end -- the key lives for as long as any of its tallies
  t.written = true
  if command == 'SET' then
    t.value, t.life = a, c + 0
  elseif command == 'PSETEX' then
    t.value, t.life = b, a + 0
  elseif command == 'PEXPIRE' then
    t.life = a + 0
  elseif command == 'DEL' then
    t.value, t.life = false, 0
  elseif command == 'SETRANGE' then
    a = a + 0 -- the Lua of miniredis takes no text for a number
    value = value .. string.rep('\0', a - #value)
    t.value = string.sub(value, 1, a) .. b .. string.sub(value, a + #b + 1)
    return #t.value
  end
end

-- @rare
-- MGET, or with count the number of keys that exist
local function read_each(list, count)
  local out, n = {}, 0
  for i = 1, #list do
    local t, value = tallied[list[i]], nil
    if t then value = t.value else value = server.pcall(count and 'EXISTS' or 'GET', list[i]) end
    out[i] = type(value) ~= 'table' and value -- or it is no string
    if value and value ~= 0 then n = n + 1 end
  end
  return count and n or out
end

function tallies.run(method, command, key, ...)
  if command == 'MGET' or command == 'EXISTS' then return read_each({key, ...}, command == 'EXISTS') end
  if key == nil then return method(command) end
  if tallied[key] then return tallies.on(tallied[key], command, ...) end
  return method(command, key, ...)
end

local redis = {
  call = function(command, ...) return tallies.run(server.call, command, ...) end,
  pcall = function(command, ...) return tallies.run(server.pcall, command, ...) end,
}
