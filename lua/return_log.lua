-- Gives back to the sliding log, whole or in a ring: see slidinglog.lua and
-- ring.lua for the values. The twin of Log.Return in core/return.go.
--
-- Units ahead of now stay as they are: the next decision dates them now.

local function return_log(value, r, now)
  local times = times_of(value, 18014398509481984, 9007199254740992) -- all, whatever their window
  if not times then return nil, WRONG_VALUE end
  if r.at > now or now - r.at >= r.window then return 0 end
  local kept, given = {}, 0
  for j = 1, #times do
    if times[j] == r.at and given < r.cost then given = given + 1 else kept[#kept + 1] = times[j] end
  end
  if given == 0 or #kept == 0 then return given, '' end
  local form, newest = byte(value, 1), be56(kept[#kept])
  if form == SHORT or form == LONG then
    return given, char(form) .. newest .. ticks_in(kept, form == SHORT and 4 or 6), r.window
  end
  return given, sub(value, 1, 10) .. be24(#kept % u24(value, 2)) .. be24(#kept) .. be56(kept[1]) .. newest ..
    ticks_in(kept, form == RING_SHORT and 4 or 6), 2*r.window
end
