-- Leases for hpctwin: while the twin lives, a job that is submitted may not start for a few seconds, in
-- which the twin sees it and says whether it may go first. Nothing is held, nothing is refused, and
-- without the twin nothing is changed but the mark in the admin comment, which users cannot write.
local PARTITIONS = {}                             -- none named: all
local TRUSTED = {[0] = true}                      -- user ids that may end leases of their own jobs
local FREE_QOS = {}                               -- that preempt: no first lease
local HEARTBEAT = "/run/hpctwin/alive"            -- fresh while the twin is in charge
local NEWS = "/var/spool/hpctwin/slurm-events.jsonl"
local FRESH_S = 15
local LEASE_S = 20                                -- manager.first_lease of the twin's settings
local MOST_BYTES = 268435456
local MARK = "hpctwin"

local function is_set(seconds)
  return seconds ~= nil and seconds > 0 and seconds < 4294967294
end

-- Jobs that may run in a partition that is not the twin's are left to Slurm.
local function mine(names, parts)
  if next(PARTITIONS) == nil then
    return true
  end
  if names == nil or names == "" then
    for name, part in pairs(parts) do
      if part.flag_default == 1 then
        names = name
      end
    end
  end
  for name in string.gmatch(names or "?", "[^,]+") do
    if not PARTITIONS[name] then
      return false
    end
  end
  return true
end

-- Slurm puts the jobs of a higher tier first, and may preempt for them.
local function first_anyway(names, parts)
  local lowest = math.huge
  for _, part in pairs(parts) do
    lowest = math.min(lowest, part.priority_tier or lowest)
  end
  for name in string.gmatch(names or "", "[^,]+") do
    if parts[name] ~= nil and (parts[name].priority_tier or lowest) > lowest then
      return true
    end
  end
  return false
end

local function twin_lives(now)
  local file = io.open(HEARTBEAT, "r")
  if file == nil then
    return false
  end
  local beat = tonumber(string.match(file:read(4096) or "", '"time_s": *(%d+)'))
  file:close()
  return beat ~= nil and math.abs(now - beat) <= FRESH_S
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
  if not mine(job.partition, parts) or job.immediate == 1 then
    return
  end
  local now = os.time()
  local asked = is_set(job.begin_time) and job.begin_time > now and job.begin_time or nil
  job.admin_comment = asked and string.format("%s:%d", MARK, asked) or MARK
  -- Who asks for a reservation has nodes of their own.
  local reserved = job.reservation ~= nil and job.reservation ~= ""
  local first = first_anyway(job.partition, parts) or FREE_QOS[job.qos or ""]
  if twin_lives(now) and not reserved and not first then
    job.begin_time = math.max(asked or 0, now + LEASE_S)
    tell(string.format('{"v":1,"t":%d,"kind":"submit"}', now))
  end
end

-- A user may put off their own job, but not end its lease.
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
  if twin_lives(now) then
    job.begin_time = math.max(job.begin_time, now + LEASE_S)
  end
end

-- A fault in here must not keep anybody from submitting.
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
