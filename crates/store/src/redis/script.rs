//! The Lua scripts that run on the server: everything that must be atomic.
//!
//! Every script can run again with the same arguments, or with newer values, even if it was applied
//! and its response was lost. All keys of a script share a hash tag, because they must be on one
//! node of a cluster.

use super::sha1::hexadecimal;

/// A script, and its hash. After a server received a script, it can find it by this hash. Both are
/// constants: a lazily initialized value could block a forked child forever, if another thread of
/// its parent was initializing it.
pub(super) struct Script {
    pub(super) text: &'static str,
    hash: [u8; 40],
}

impl Script {
    const fn new(text: &'static str) -> Self {
        Self { text, hash: hexadecimal(text.as_bytes()) }
    }

    pub(super) fn hash(&self) -> &str {
        std::str::from_utf8(&self.hash).unwrap_or_default()
    }
}

/// The common head of [`WRITE`], [`ADOPT`] and [`FOLD`].
///
/// The archive keeps the sum of a series in two fields. Integers are under the field's name, where
/// HINCRBY adds them up exactly to 2^63. Other numbers are under the name after a `~`, as a string
/// of up to 17 digits, which parses back to the same float.
///
/// A metric may have been written under a different description before: a value can follow a time,
/// or not be a number. The scripts must not fail on such values, because an error midway would
/// leave half of the work done.
macro_rules! common {
    () => {
        r"
local inst, ids, tomb, arch, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id = ARGV[1]
local function is_note(f) return f == '#' or f == '!' end
local function base(f) return string.match(f, '^(.*)@[0-9a-z]*$') or f end
local function add(f, v, sign)
  v = string.match(v, '[^:]*$')
  local x = tonumber(v)
  -- Infinity cannot be taken out again.
  if not x or x ~= x or x == math.huge or x == -math.huge then return end
  if string.match(v, '^%-?%d+$') then
    local n = v
    if sign < 0 then
      if string.sub(v, 1, 1) == '-' then n = string.sub(v, 2) else n = '-' .. v end
    end
    local r = redis.pcall('HINCRBY', arch, f, n)
    if type(r) ~= 'table' then return end
  end
  local k = '~' .. f
  local sum = tonumber(redis.call('HGET', arch, k) or '0') + sign * x
  redis.call('HSET', arch, k, string.format('%.17g', sum))
end
local function archive(how, f, v)
  f = base(f)
  if how == 'sum' then return add(f, v, 1) end
  if how == 'max' or how == 'min' or how == 'recent' then
    local old = redis.call('HGET', arch, f)
    local part = how == 'recent' and '^[^:]*' or '[^:]*$'
    local n = function(t) return tonumber(string.match(t, part)) or 0 end
    if not old or (how == 'min' and n(v) < n(old)) or (how ~= 'min' and n(v) > n(old)) then
      redis.call('HSET', arch, f, v)
    end
  end
end
local function come_back(how)
  if redis.call('EXISTS', tomb) == 0 then return end
  if how == 'sum' then
    local all = redis.call('HGETALL', tomb)
    for i = 1, #all, 2 do
      if not is_note(all[i]) then add(base(all[i]), all[i + 1], -1) end
    end
  end
  redis.call('RENAME', tomb, inst)
  redis.call('PERSIST', inst)
  redis.call('SADD', ids, id)
end
"
    };
}

/// Writes absolute values of an instance's series. Also moves into the archive the fields of series
/// that no longer exist, and the last values of resets: series that were removed and created again,
/// or set back, under the same field. If the instance was folded, the fold is undone first: its
/// values are subtracted from the archive.
///
/// `ARGV`: the id, how to fold, and the sequence number; the number of this list of resets, and the
/// number of the oldest list that can be repeated (0 for none); the number of resets, and the
/// number of gone fields; for each reset its field and last value; the gone fields; and pairs of
/// field and value. Returns the number of fields of the instance's series after the call, and 0. If
/// the server already knows a write with a greater sequence number, this one was delayed: returns
/// -1 and the greater number, and does not apply it.
///
/// A list of resets can be repeated if its response was lost. The values can change in between, so
/// they cannot show whether the list was applied. Instead, the call that applies a list notes its
/// number under `!`, and a list whose number is noted there is skipped. A reset whose field does
/// not exist was already moved, because its series was gone.
pub(super) static WRITE: Script = Script::new(concat!(
    common!(),
    r"
local how, seq = ARGV[2], tonumber(ARGV[3])
local list, oldest = ARGV[4], tonumber(ARGV[5])
local resets, gone = tonumber(ARGV[6]), tonumber(ARGV[7])
local first_gone = 8 + 2 * resets
come_back(how)
local last = tonumber(redis.call('HGET', inst, '#') or '0')
if seq < last then return {-1, last} end
local function is_new()
  local done = {}
  for n in string.gmatch(redis.call('HGET', inst, '!') or '', '%d+') do
    if n == list then return false end
    if tonumber(n) >= oldest then done[#done + 1] = n end
  end
  done[#done + 1] = list
  redis.call('HSET', inst, '!', table.concat(done, ' '))
  return true
end
if resets > 0 and is_new() then
  for i = 8, first_gone - 1, 2 do
    if redis.call('HDEL', inst, ARGV[i]) == 1 then archive(how, ARGV[i], ARGV[i + 1]) end
  end
end
if oldest == 0 then redis.call('HDEL', inst, '!') end
redis.call('HSET', inst, '#', ARGV[3], unpack(ARGV, first_gone + gone))
redis.call('SADD', ids, id)
for i = first_gone, first_gone + gone - 1 do
  local v = redis.call('HGET', inst, ARGV[i])
  if v then
    archive(how, ARGV[i], v)
    redis.call('HDEL', inst, ARGV[i])
  end
end
return {redis.call('HLEN', inst) - 1 - redis.call('HEXISTS', inst, '!'), 0}
"
));

/// For an instance that returns after the copy of its folded values expired: subtracts its values
/// at that time from the archive, as far as the archive contains them.
///
/// `ARGV`: the id, then pairs of a field and its value.
pub(super) static ADOPT: Script = Script::new(concat!(
    common!(),
    r"
come_back('sum')
for i = 2, #ARGV, 2 do
  local f, v = ARGV[i], ARGV[i + 1]
  if redis.call('HEXISTS', inst, f) == 0 then
    local whole = string.match(v, '^%-?%d+$')
    local old = redis.call('HGET', arch, whole and base(f) or '~' .. base(f))
    if old and tonumber(old) >= tonumber(v) then
      add(base(f), v, -1)
      redis.call('HSET', inst, f, v)
    end
  end
end
redis.call('SADD', ids, id)
return 0
"
));

/// Adds the values of a dead instance to the archive, and keeps a copy for as long as the instance
/// can return. `ARGV`: the id, and the time to keep the copy in milliseconds.
pub(super) static FOLD: Script = Script::new(concat!(
    common!(),
    r"
redis.call('SREM', ids, id)
if redis.call('EXISTS', inst) == 0 then return 0 end
local how = redis.call('HGET', meta, 'how') or 'sum'
local all = redis.call('HGETALL', inst)
for i = 1, #all, 2 do
  if not is_note(all[i]) then archive(how, all[i], all[i + 1]) end
end
redis.call('RENAME', inst, tomb)
redis.call('PEXPIRE', tomb, ARGV[2])
return 1
"
));

/// Records a heartbeat of an instance. `KEYS`: the instances by the time of their last heartbeat,
/// the claims on dead instances, and the IDs of their last heartbeats. `ARGV`: the id, the silence
/// in milliseconds after which an instance is dead, the most instances to fold, the last
/// acknowledged heartbeat ID, and the next one.
///
/// Returns -1 and records no heartbeat if another segment writes as this instance and is alive.
/// This shows in an ID that the caller does not know, and that is not older than the last
/// acknowledged one. (A server that returned to an older state holds an older ID.)
///
/// Otherwise returns the time of the previous heartbeat (empty for none), the current time, and the
/// ids of dead instances for the caller to fold. For 10 seconds, no other caller gets these ids.
pub(super) static HEARTBEAT: Script = Script::new(
    r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local text = string.format('%.0f', now)
local heard = redis.call('ZSCORE', KEYS[1], ARGV[1])
local last = redis.call('HGET', KEYS[3], ARGV[1])
if last and heard and last ~= ARGV[4] and last ~= ARGV[5] then
  local number = function(t) return tonumber(string.match(t, '^%d+')) or 0 end
  if number(last) >= number(ARGV[4]) and now - tonumber(heard) < tonumber(ARGV[2]) then
    return -1
  end
end
redis.call('HSET', KEYS[3], ARGV[1], ARGV[5])
local answer = {heard or '', text}
redis.call('ZADD', KEYS[1], text, ARGV[1])
local cut = string.format('%.0f', now - tonumber(ARGV[2]))
local dead = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', cut, 'LIMIT', 0, 1000)
for i = 1, #dead do
  if #answer >= 2 + ARGV[3] then break end
  local claimed = tonumber(redis.call('HGET', KEYS[2], dead[i]) or '0')
  if now - claimed > 10000 or now < claimed then
    redis.call('HSET', KEYS[2], dead[i], text)
    answer[#answer + 1] = dead[i]
  end
end
return answer
",
);

/// Forgets a folded instance, unless it sent a heartbeat since. If there were values to fold, keeps
/// it like an instance whose heartbeat is now, because it must be checked once more: it may have
/// been delayed between a heartbeat and a write, and have died after that write. `KEYS` as for
/// [`HEARTBEAT`]. `ARGV`: the id, the silence in milliseconds after which an instance is dead, and
/// 1 if there were values to fold.
pub(super) static FORGET: Script = Script::new(
    r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local heard = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or '0')
if heard <= now - tonumber(ARGV[2]) then
  if ARGV[3] == '1' then
    redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
  else
    redis.call('ZREM', KEYS[1], ARGV[1])
    redis.call('HDEL', KEYS[3], ARGV[1])
  end
end
redis.call('HDEL', KEYS[2], ARGV[1])
return 0
",
);

/// Lists the live instances, and the metrics. `KEYS`: the instances, and the metrics. `ARGV`: the
/// silence in milliseconds after which an instance is dead.
pub(super) static LIST: Script = Script::new(
    r"
local t = redis.call('TIME')
local cut = t[1] * 1000 + math.floor(t[2] / 1000) - tonumber(ARGV[1])
local live = redis.call('ZRANGEBYSCORE', KEYS[1], string.format('(%.0f', cut), '+inf')
return {live, redis.call('SMEMBERS', KEYS[2])}
",
);

/// Reads a metric atomically, because an instance that is being folded must be neither missed nor
/// seen twice. `KEYS`: its description, its archive, and its instances. `ARGV`: the prefix of
/// instances' keys.
pub(super) static READ: Script = Script::new(
    r"
local answer = {redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2])}
for _, id in ipairs(redis.call('SMEMBERS', KEYS[3])) do
  answer[#answer + 1] = id
  answer[#answer + 1] = redis.call('HGETALL', ARGV[1] .. id)
end
return answer
",
);

#[cfg(test)]
mod tests {
    use ::redis::Script;

    use super::*;

    #[test]
    fn servers_know_the_scripts_by_their_hashes() {
        for script in [&WRITE, &ADOPT, &FOLD, &HEARTBEAT, &FORGET, &LIST, &READ] {
            assert_eq!(script.hash(), Script::new(script.text).get_hash());
        }
    }
}
