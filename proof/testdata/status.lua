-- For wrk: posts, and counts the answers by their status.
wrk.method = "POST"

local threads = {}
function setup(thread) table.insert(threads, thread) end

function init() admitted, refused, other = 0, 0, 0 end

function response(status)
  if status == 200 then admitted = admitted + 1
  elseif status == 429 then refused = refused + 1
  else other = other + 1 end
end

function done(summary)
  local a, r, o = 0, 0, 0
  for _, thread in ipairs(threads) do
    a, r, o = a + thread:get("admitted"), r + thread:get("refused"), o + thread:get("other")
  end
  local errors = summary.errors
  io.write(string.format("COUNTED %d %d %d %d\n", a, r, o, errors.connect + errors.read + errors.write + errors.timeout))
end
