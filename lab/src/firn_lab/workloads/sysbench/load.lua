-- Runs the stock `prepare` for the one table with the number FIRN_LAB_TABLE, with the table options
-- in FIRN_LAB_TABLE_SUFFIX (ENGINE=…, WITH (…)). The rows have the stock form, but come from the
-- seed FIRN_LAB_SEED: sysbench 1.0 ignores --rand-seed in `prepare`, so targets would get different
-- rows.
require("oltp_common")

function event() end

local suffix = os.getenv("FIRN_LAB_TABLE_SUFFIX") or ""
local number = assert(tonumber(os.getenv("FIRN_LAB_TABLE")))
math.randomseed(assert(tonumber(os.getenv("FIRN_LAB_SEED"))))
sb_rand = math.random

-- Groups of eleven digits, separated by dashes.
local function groups(count)
   local text = {}
   for i = 1, count do text[i] = string.format("%011.0f", math.random(0, 99999999999)) end
   return table.concat(text, "-")
end

function get_c_value() return groups(10) end

function get_pad_value() return groups(5) end

-- Wraps the connection and appends the suffix to CREATE TABLE.
local function with_suffix(con)
   return {
      query = function(_, text)
         if text:match("^%s*CREATE TABLE") then
            text = text:gsub("/%*!.-%*/", "") .. suffix
         end
         return con:query(text)
      end,
      bulk_insert_init = function(_, text) return con:bulk_insert_init(text) end,
      bulk_insert_next = function(_, text) return con:bulk_insert_next(text) end,
      bulk_insert_done = function(_) return con:bulk_insert_done() end,
   }
end

sysbench.cmdline.commands.prepare = {
   function()
      local drv = sysbench.sql.driver()
      create_table(drv, with_suffix(drv:connect()), number)
   end,
   sysbench.cmdline.PARALLEL_COMMAND
}
