//! What runs inside of the server: all that must happen at once or not at all.
//!
//! Every script may be run again with the same arguments, or with newer values, also when it was
//! applied and its answer was lost. All keys of a script share a hash tag, so that they lie on one node of a cluster.

use super::sha1::hexadecimal;

/// A script, and the hash by which a server knows it once it was sent. All of it is a part of the
/// program: a child of a fork would wait for ever for what another thread of its parent was making.
pub(super) struct Source {
    pub(super) text: &'static str,
    hash: [u8; 40],
}

impl Source {
    const fn new(text: &'static str) -> Self {
        Self { text, hash: hexadecimal(text.as_bytes()) }
    }

    pub(super) fn hash(&self) -> &str {
        std::str::from_utf8(&self.hash).unwrap_or_default()
    }
}

/// What [`WRITE`], [`ADOPT`] and [`FOLD`] begin with.
///
/// Numbers in the archive lie in two fields: whole ones under the field's own name, where HINCRBY
/// adds them up exactly to 2^63, and others behind a `~`, as the shortest text that 17 digits allow
/// to read back.
///
/// Who writes a metric may describe it in another way than who wrote it before: a value may stand
/// behind a time, or be no number. A script that ended there would leave half of what it does.
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

/// Writes values of an instance's series, absolute ones; moves fields of series that are gone into
/// the archive; and moves there what series had counted that were removed and made again, or set
/// back, under the same field. An instance that was folded comes back first: what it had is taken
/// out of the archive again.
///
/// `ARGV`: id, how, sequence number, the number of the list of resets and that of the oldest list
/// that may come again (0 for none), how many resets and how many gone fields there are, for each reset the field
/// and its last value, the gone fields, then fields and values in turn. Returns the number of fields
/// that the instance's series have now, or -1 and the number that was newer: an older write that was
/// held up on its way is not applied.
///
/// The same list of resets may come again, when the answer was lost: the values may have changed
/// since, and may be any. So the numbers of the lists that were applied are noted under `!`, and a
/// list that is there is passed over. The note is written by the call that applies the list. A field
/// that is not there was moved already, as that of a series that is gone.
pub(super) static WRITE: Source = Source::new(concat!(
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

/// For an instance that was away for longer than what was folded is remembered: what it had counted
/// then is in the archive, and is taken out again, as far as it is there.
///
/// `ARGV`: id, then fields and the values that they had, in turn.
pub(super) static ADOPT: Source = Source::new(concat!(
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

/// Adds what a dead instance counted to the archive, and keeps it aside for as long as the instance
/// may come back. `ARGV`: id, for how many milliseconds.
pub(super) static FOLD: Source = Source::new(concat!(
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

/// Notes that an instance lives. `KEYS`: the instances with the times at which they were heard of,
/// the claims of those who fold, the turns that instances told last. `ARGV`: id, after how many
/// milliseconds one is dead, how many to fold at most, the turn that was acknowledged last, and the
/// next one.
///
/// Returns -1, and notes nothing, where the turn is one that the caller does not know, and that is
/// none of before the server lost some: another segment writes as this instance, and lives.
/// Otherwise it returns what the next paragraph says.
///
/// Answers the time at which it was heard of before, empty for never, the time, and the ids of
/// dead instances for the caller to fold: nobody else is given them for a while.
pub(super) static BEAT: Source = Source::new(
    r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local text = string.format('%.0f', now)
local heard = redis.call('ZSCORE', KEYS[1], ARGV[1])
local turn = redis.call('HGET', KEYS[3], ARGV[1])
if turn and heard and turn ~= ARGV[4] and turn ~= ARGV[5] then
  local number = function(t) return tonumber(string.match(t, '^%d+')) or 0 end
  if number(turn) >= number(ARGV[4]) and now - tonumber(heard) < tonumber(ARGV[2]) then
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

/// Forgets an instance that was folded, unless it was heard of since, or there was something to fold:
/// then it is looked at once more, as if it had been heard of now. It may have been held up between
/// its beat and a write, and die after that. `KEYS` as for [`BEAT`]. `ARGV`: id, after how many
/// milliseconds one is dead, and 1 where there was something to fold.
pub(super) static FORGET: Source = Source::new(
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

/// Reads who lives, and which metrics there are. `KEYS`: the instances, the metrics. `ARGV`: after
/// how many milliseconds an instance is dead.
pub(super) static HEAD: Source = Source::new(
    r"
local t = redis.call('TIME')
local cut = t[1] * 1000 + math.floor(t[2] / 1000) - tonumber(ARGV[1])
local live = redis.call('ZRANGEBYSCORE', KEYS[1], string.format('(%.0f', cut), '+inf')
return {live, redis.call('SMEMBERS', KEYS[2])}
",
);

/// Reads a metric: at once, so that no instance is missed, or seen twice, while it is folded.
/// `KEYS`: its description, its archive, its instances. `ARGV`: what an instance's key begins with.
pub(super) static READ: Source = Source::new(
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
        for script in [&WRITE, &ADOPT, &FOLD, &BEAT, &FORGET, &HEAD, &READ] {
            assert_eq!(script.hash(), Script::new(script.text).get_hash());
        }
    }
}
