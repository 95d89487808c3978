-- Leases for hpctwin: while the twin lives, a job that is submitted may not start for a few seconds, in
-- which the twin sees it and says whether it may go first. Nothing is held, nothing is refused, and
-- without the twin nothing is changed but the mark in the admin comment, which users cannot write.
local PARTITIONS = {}                             -- none named: all
local TRUSTED = {[0] = true}                      -- user ids that may end leases of their own jobs
local HEARTBEAT = "/run/hpctwin/alive"            -- fresh while the twin is in control
local NEWS = "/var/spool/hpctwin/slurm-events.jsonl"
local FRESH_S = 15
local LEASE_S = 20                                -- manager.first_lease of the twin's settings
local MOST_BYTES = 268435456
local MARK = "hpctwin"

local function is_set(seconds)
  return seconds ~= nil and seconds > 0 and seconds < 4294967294
end

-- The partitions that a job names; the default one if it names none.
local function named(job, parts)
  local names = job.partition
  if names == nil or names == "" then
    for name, part in pairs(parts) do
      if part.flag_default == 1 then
        names = name
      end
    end
  end
  return names or "?"
end

-- Jobs that may run in a partition that is not the twin's are left to Slurm.
local function mine(names)
  for name in string.gmatch(names, "[^,]+") do
    if next(PARTITIONS) ~= nil and not PARTITIONS[name] then
      return false
    end
  end
  return true
end

-- The heartbeat as text while the twin is in control; otherwise nil.
local function beat(now)
  local file = io.open(HEARTBEAT, "r")
  if file == nil then
    return nil
  end
  local text = file:read(MOST_BYTES) or ""
  file:close()
  local written = tonumber(string.match(text, '"time_s": *(%d+)'))
  return written ~= nil and math.abs(now - written) <= FRESH_S and text or nil
end

-- An amount in a job's description; 0 where it is not set (NO_VAL16, NO_VAL, NO_VAL64 and INFINITE).
local function amount(value)
  if value == nil or value <= 0 or value == 65534 or value == 65535 or value >= 4294967293 then
    return 0
  end
  return value
end

-- Whether jobs of a QOS may preempt others: the twin leaves them to Slurm.
local function preempts(qos, text)
  local names = string.match(text, '"preempting_qos": *(%b{})') or ""
  return string.find(names, '"' .. qos .. '"', 1, true) ~= nil
end

-- Whether the twin acts in all partitions that a job names.
local function acted_on(names, text)
  for name in string.gmatch(names, "[^,]+") do
    local key = string.gsub(name, "%W", "%%%0")
    if not string.match(text, '"' .. key .. '": *%[') then
      return false
    end
  end
  return true
end

-- The number of jobs of an array, such as 0-9:3,12; 1 for a single job. It is nil if the array limits how
-- many of its jobs run at once (%2), or is written otherwise.
local function count_of(array)
  local count = 0
  for part in string.gmatch(array .. ",", "([^,]*),") do
    local first, last, step = string.match(part, "^(%d+)%-(%d+):?(%d*)$")
    first = first or string.match(part, "^%d+$")
    if first == nil then
      return array == "" and 1 or nil
    end
    local width = tonumber(last or first) - tonumber(first)
    count = count + math.floor(width / math.max(1, tonumber(step) or 1)) + 1
  end
  return count
end

-- What jobs that got no lease took, of any partition: {time, nodes, cores}. It counts until a snapshot of
-- the twin that is later than the submission shows it.
local taken = {}
-- When a job of a partition last got a lease: until a later snapshot shows it, it counts as pending.
local leased = {}

-- Whether no job is pending in a job's partition and the job fits on what is idle there, an array with all
-- its jobs. Such a job needs no lease: it starts as if there were no twin.
local function fits_idle(job, names, text, now)
  local count = count_of(job.array_inx or "")
  if string.find(names, ",", 1, true) or count == nil then
    return false
  end
  local key = string.gsub(names, "%W", "%%%0")
  local nodes, cores, each, whole =
    string.match(text, '"' .. key .. '": *%[ *(%d+), *(%d+), *(%d+), *(%d+) *%]')
  local looked = tonumber(string.match(text, '"looked_s": *(%d+)'))
  if nodes == nil or looked == nil or (leased[names] or 0) >= looked - 1 then
    return false
  end
  nodes, cores, each = tonumber(nodes), tonumber(cores), math.max(1, tonumber(each))
  local kept = {}
  for _, one in ipairs(taken) do
    if one.time >= looked - 1 then
      table.insert(kept, one)
      nodes, cores = nodes - one.nodes, cores - one.cores
    end
  end
  taken = kept
  local tasks = math.max(1, amount(job.num_tasks)) * math.max(1, amount(job.cpus_per_task))
  local needs = math.max(amount(job.min_cpus), tasks, amount(job.min_nodes))
  local alone = whole == "1" or job.shared == 0 or job.shared == 2 or job.shared == 3
  local needs_nodes = math.max(amount(job.min_nodes), math.ceil(needs / each))
  if alone then
    needs = needs_nodes * each
  end
  needs, needs_nodes = needs * count, needs_nodes * count
  if needs > cores or (alone and needs_nodes > nodes) then
    return false
  end
  table.insert(taken, {time = now, nodes = needs_nodes, cores = needs})
  return true
end

-- Lua cannot refuse symbolic links: the folder must be writable by Slurm's user alone.
local function tell(line)
  local file = io.open(NEWS, "a")
  if file ~= nil then
    if file:seek("end") < MOST_BYTES then
      file:write(line, "\n")
    end
    file:close()
  end
end

local function submitted(job, parts)
  if job.admin_comment ~= nil and string.sub(job.admin_comment, 1, #MARK) == MARK then
    job.admin_comment = ""
  end
  local names = named(job, parts)
  if not mine(names) or job.immediate == 1 then
    return
  end
  local now = os.time()
  local asked = is_set(job.begin_time) and job.begin_time > now and job.begin_time or nil
  job.admin_comment = asked and string.format("%s:%d", MARK, asked) or MARK
  -- A job in a reservation has nodes of its own.
  local reserved = job.reservation ~= nil and job.reservation ~= ""
  local text = beat(now)
  if text == nil or reserved or not acted_on(names, text) then
    return
  end
  if preempts(job.qos or job.default_qos or "", text) then
    return
  end
  if not fits_idle(job, names, text, now) then
    job.begin_time = math.max(asked or 0, now + LEASE_S)
    for name in string.gmatch(names, "[^,]+") do
      leased[name] = now
    end
  end
  tell(string.format('{"v":1,"t":%d,"kind":"submit"}', now))
end

-- A user may delay their own job, but not end its lease.
local function modified(job, record, by)
  if not is_set(job.begin_time) or by ~= record.user_id or TRUSTED[by] then
    return
  end
  if string.sub(record.admin_comment or "", 1, #MARK) ~= MARK then
    return
  end
  local now = os.time()
  tell(string.format('{"v":1,"t":%d,"kind":"begin_time","job":"%d","at":%d}',
    now, record.job_id, job.begin_time))
  local text = beat(now)
  if text ~= nil and acted_on(record.partition or "?", text) then
    job.begin_time = math.max(job.begin_time, now + LEASE_S)
  end
end

-- An error in here must not keep a user from submitting.
local function safely(what, ...)
  local fine, fault = pcall(what, ...)
  if not fine then
    slurm.log_error("hpctwin: %s", tostring(fault))
  end
  return slurm.SUCCESS
end

function slurm_job_submit(job_desc, part_list, submit_uid)
  return safely(submitted, job_desc, part_list)
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return safely(modified, job_desc, job_rec, modify_uid)
end

return slurm.SUCCESS
