-- Runs a script (FIRN_LAB_GATED) whose transactions begin only while a gate is open: between rounds
-- the threads stay connected and wait. Gate and counters are words in a file (FIRN_LAB_GATE) that
-- the lab and all threads map; see gate.py for the layout. The loop is that of sysbench 1.0, plus
-- the gate, the counters and a histogram.
dofile(assert(os.getenv("FIRN_LAB_GATED")))

local ffi = require("ffi")
ffi.cdef [[
void *mmap(void *address, size_t length, int protection, int flags, int fd, long offset);
int open(const char *path, int flags, ...);
int usleep(unsigned microseconds);
typedef struct { long s; long ns; } firn_lab_time;
int clock_gettime(int clock, void *time);
bool sb_more_events(int);
void sb_event_start(int);
void sb_event_stop(int);
]]
local C, log, ceil = ffi.C, math.log, math.ceil
local CLOSED, OPEN, END = 0, 1, 2
local HEAD, SLOT, BUCKETS = 8, 1088, 1080 -- in words of 8 bytes
local GROWTH = log(1.02)

local size = assert(tonumber(os.getenv("FIRN_LAB_GATE_BYTES")))
local fd = C.open(assert(os.getenv("FIRN_LAB_GATE")), 2)
local words = ffi.cast("volatile double *", C.mmap(nil, size, 3, 1, fd, 0))
assert(fd >= 0 and ffi.cast("intptr_t", words) ~= -1, "the gate cannot be mapped")

local time = ffi.new("firn_lab_time")
local function now_us()
   C.clock_gettime(1, time)
   return tonumber(time.s) * 1e6 + tonumber(time.ns) / 1e3
end

function thread_run(id)
   -- All threads together look at the gate 20,000 times a second at most. If each of 2,000 threads
   -- looked every 500 us, that would keep the processors busy for as long as they wait.
   local poll_us = math.max(500, 50 * sysbench.opt.threads)
   local slot = words + HEAD + SLOT * id
   local waits, done, retries, total_us, buckets = slot, slot + 1, slot + 2, slot + 3, slot + 8
   while C.sb_more_events(id) do
      while words[0] ~= OPEN do
         if words[0] == END then return end
         waits[0] = 1
         C.usleep(poll_us)
      end
      waits[0] = 0
      local began = now_us()
      C.sb_event_start(id)
      local success, result
      repeat
         success, result = pcall(event, id)
         if not success then
            if type(result) ~= "table" or result.errcode ~= sysbench.error.RESTART_EVENT then
               error(result, 2)
            end
            retries[0] = retries[0] + 1
            if sysbench.hooks.before_restart_event then
               sysbench.hooks.before_restart_event(result)
            end
         end
      until success
      C.sb_event_stop(id)
      local us = math.max(now_us() - began, 1)
      local bucket = math.min(ceil(log(us) / GROWTH), BUCKETS - 1)
      buckets[bucket] = buckets[bucket] + 1
      total_us[0] = total_us[0] + us
      done[0] = done[0] + 1
   end
end
