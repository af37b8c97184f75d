-- Forgets a key of a rule.
--
-- KEYS      the keys of Redis that hold its state
-- reply     how many of them there were

return {call('DEL', unpack(keys))}
