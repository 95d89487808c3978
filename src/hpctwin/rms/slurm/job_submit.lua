-- Holds jobs for hpctwin: the twin releases each when it is to start.
-- PARTITIONS empty: all jobs. Otherwise only those of the partitions named.
local PARTITIONS = {}
local OWNED, BY_USER = "hpctwin", "hpctwin held-by-user"

local function owned(partition)
  if next(PARTITIONS) == nil then
    return true
  end
  for _, name in ipairs(PARTITIONS) do
    if partition == name then
      return true
    end
  end
  return false
end

-- Arrays and heterogeneous jobs are left to Slurm.
local function simple(job_desc)
  local part = job_desc.het_job_offset
  return job_desc.array_inx == nil and (part == nil or part == slurm.NO_VAL)
end

function slurm_job_submit(job_desc, part_list, submit_uid)
  if simple(job_desc) and owned(job_desc.partition) then
    -- A job that its user submitted on hold stays the user's to release.
    job_desc.admin_comment = job_desc.priority == 0 and BY_USER or OWNED
    job_desc.priority = 0
  end
  return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return slurm.SUCCESS
end

return slurm.SUCCESS
