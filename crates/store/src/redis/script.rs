//! What runs inside of the server: all that must happen at once or not at all.
//!
//! Every script may be run again with the same arguments, also when it was applied and its answer
//! was lost. All keys of a script share a hash tag, so that they lie on one node of a cluster.

use std::sync::LazyLock;

use ::redis::Script;

/// A script, and the hash by which a server knows it once it was sent.
pub(super) struct Source {
    pub(super) text: String,
    pub(super) hash: String,
}

impl Source {
    fn new(text: &str) -> Self {
        Self { text: text.into(), hash: Script::new(text).get_hash().into() }
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
const COMMON: &str = r"
local inst, ids, tomb, arch, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id = ARGV[1]
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
      if all[i] ~= '#' then add(base(all[i]), all[i + 1], -1) end
    end
  end
  redis.call('RENAME', tomb, inst)
  redis.call('PERSIST', inst)
  redis.call('SADD', ids, id)
end
";

/// Writes values of an instance's series, absolute ones, and moves fields of series that are gone
/// into the archive. An instance that was folded comes back first: what it had is taken out of the
/// archive again.
///
/// `ARGV`: id, how, sequence number, how many fields are gone, these, then fields and values in
/// turn. Answers the number of fields that the instance has now, or -1 and the number that was
/// newer: an older write that was held up on its way is not applied.
pub(super) static WRITE: LazyLock<Source> = LazyLock::new(|| {
    Source::new(
        &[
            COMMON,
            r"
local how, seq, gone = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
come_back(how)
local last = tonumber(redis.call('HGET', inst, '#') or '0')
if seq < last then return {-1, last} end
redis.call('HSET', inst, '#', ARGV[3], unpack(ARGV, 5 + gone))
redis.call('SADD', ids, id)
for i = 5, 4 + gone do
  local v = redis.call('HGET', inst, ARGV[i])
  if v then
    archive(how, ARGV[i], v)
    redis.call('HDEL', inst, ARGV[i])
  end
end
return {redis.call('HLEN', inst), 0}
",
        ]
        .concat(),
    )
});

/// Moves a field into the archive whose series was removed and made anew within the time by which
/// series are told apart. `ARGV`: id, how, sequence number, the field, and the values that it may
/// have had before: with any other, it is moved already.
pub(super) static RESET: LazyLock<Source> = LazyLock::new(|| {
    Source::new(
        &[
            COMMON,
            r"
local how, seq = ARGV[2], tonumber(ARGV[3])
come_back(how)
if seq < tonumber(redis.call('HGET', inst, '#') or '0') then return 0 end
local v = redis.call('HGET', inst, ARGV[4])
for i = 5, #ARGV do
  if v == ARGV[i] then
    archive(how, ARGV[4], v)
    redis.call('HDEL', inst, ARGV[4])
    return 1
  end
end
return 0
",
        ]
        .concat(),
    )
});

/// For an instance that was away for longer than what was folded is remembered: what it had counted
/// then is in the archive, and is taken out again, as far as it is there.
///
/// `ARGV`: id, then fields and the values that they had, in turn.
pub(super) static ADOPT: LazyLock<Source> = LazyLock::new(|| {
    Source::new(
        &[
            COMMON,
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
",
        ]
        .concat(),
    )
});

/// Adds what a dead instance counted to the archive, and keeps it aside for as long as the instance
/// may come back. `ARGV`: id, for how many milliseconds.
pub(super) static FOLD: LazyLock<Source> = LazyLock::new(|| {
    Source::new(
        &[
            COMMON,
            r"
redis.call('SREM', ids, id)
if redis.call('EXISTS', inst) == 0 then return 0 end
local how = redis.call('HGET', meta, 'how') or 'sum'
local all = redis.call('HGETALL', inst)
for i = 1, #all, 2 do
  if all[i] ~= '#' then archive(how, all[i], all[i + 1]) end
end
redis.call('RENAME', inst, tomb)
redis.call('PEXPIRE', tomb, ARGV[2])
return 1
",
        ]
        .concat(),
    )
});

/// Notes that an instance lives. `KEYS`: the instances with the times at which they were heard of,
/// the claims of those who fold. `ARGV`: id, after how many milliseconds one is dead, how many to
/// fold at most.
///
/// Answers the time at which it was heard of before, empty for never, the time, and the ids of
/// dead instances for the caller to fold: nobody else is given them for a while.
pub(super) static BEAT: LazyLock<Source> = LazyLock::new(|| {
    Source::new(
        r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local text = string.format('%.0f', now)
local answer = {redis.call('ZSCORE', KEYS[1], ARGV[1]) or '', text}
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
    )
});

/// Forgets an instance that was folded, unless it was heard of since, or there was something to fold:
/// then it is looked at once more, as if it had been heard of now. It may have been held up between
/// its beat and a write, and die after that. `KEYS` as for [`BEAT`]. `ARGV`: id, after how many
/// milliseconds one is dead, and 1 where there was something to fold.
pub(super) static FORGET: LazyLock<Source> = LazyLock::new(|| {
    Source::new(
        r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local heard = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or '0')
if heard <= now - tonumber(ARGV[2]) then
  if ARGV[3] == '1' then
    redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
  else
    redis.call('ZREM', KEYS[1], ARGV[1])
  end
end
redis.call('HDEL', KEYS[2], ARGV[1])
return 0
",
    )
});

/// Reads who lives, and which metrics there are. `KEYS`: the instances, the metrics. `ARGV`: after
/// how many milliseconds an instance is dead.
pub(super) static HEAD: LazyLock<Source> = LazyLock::new(|| {
    Source::new(
        r"
local t = redis.call('TIME')
local cut = t[1] * 1000 + math.floor(t[2] / 1000) - tonumber(ARGV[1])
local live = redis.call('ZRANGEBYSCORE', KEYS[1], string.format('(%.0f', cut), '+inf')
return {live, redis.call('SMEMBERS', KEYS[2])}
",
    )
});

/// Reads a metric: at once, so that no instance is missed, or seen twice, while it is folded.
/// `KEYS`: its description, its archive, its instances. `ARGV`: what an instance's key begins with.
pub(super) static READ: LazyLock<Source> = LazyLock::new(|| {
    Source::new(
        r"
local answer = {redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2])}
for _, id in ipairs(redis.call('SMEMBERS', KEYS[3])) do
  answer[#answer + 1] = id
  answer[#answer + 1] = redis.call('HGETALL', ARGV[1] .. id)
end
return answer
",
    )
});
