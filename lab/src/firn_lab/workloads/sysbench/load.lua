-- The stock `prepare`, with the table options that FIRN_LAB_TABLE_SUFFIX holds (ENGINE=…, WITH (…)).
require("oltp_common")

function event() end

local suffix = os.getenv("FIRN_LAB_TABLE_SUFFIX") or ""

-- Stands for the connection and adds the suffix to CREATE TABLE.
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
      local con = drv:connect()
      for i = sysbench.tid % sysbench.opt.threads + 1, sysbench.opt.tables, sysbench.opt.threads do
         create_table(drv, with_suffix(con), i)
      end
   end,
   sysbench.cmdline.PARALLEL_COMMAND
}
