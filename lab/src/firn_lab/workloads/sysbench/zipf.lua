-- Runs a stock script (FIRN_LAB_SCRIPT) with rows drawn from a Zipf distribution with an exponent
-- (FIRN_LAB_ZIPF): the row of rank r has a probability proportional to 1 / r^exponent. Sysbench 1.0
-- has no such distribution.
--
-- The method is rejection-inversion (Hörmann and Derflinger, 1996): exact, without tables, for any
-- exponent above 0, including 1. Ranks are scattered over the keys, as popular rows usually are.

local exponent = assert(tonumber(os.getenv("FIRN_LAB_ZIPF")))
local log, exp, floor = math.log, math.exp, math.floor

-- (exp(x) - 1) / x and log(1 + x) / x, accurate for x near 0.
local function expm1_by(x)
   if math.abs(x) > 1e-8 then return (exp(x) - 1) / x end
   return 1 + x / 2 * (1 + x / 3)
end

local function log1p_by(x)
   if math.abs(x) > 1e-8 then return log(1 + x) / x end
   return 1 - x * (1 / 2 - x / 3)
end

-- The integral of x^-exponent, and its inverse.
local function integral(x)
   local l = log(x)
   return expm1_by((1 - exponent) * l) * l
end

local function inverse(x)
   local t = math.max(-1, x * (1 - exponent))
   return exp(log1p_by(t) * x)
end

local function weight(x) return exp(-exponent * log(x)) end

local from = integral(1.5) - 1
local shortcut = 2 - inverse(integral(2.5) - weight(2))
local ends = {}

local function rank(n)
   local last = ends[n]
   if not last then
      last = integral(n + 0.5)
      ends[n] = last
   end
   while true do
      local u = last + sysbench.rand.uniform_double() * (from - last)
      local x = inverse(u)
      local k = floor(x + 0.5)
      if k < 1 then k = 1 elseif k > n then k = n end
      if k - x <= shortcut or u >= integral(k + 0.5) - weight(k) then return k end
   end
end

-- Multiplication by a prime modulo n permutes the ranks; the products are exact in a double.
local PRIME = 15485863

local function zipf(low, high)
   low, high = floor(low), floor(high)
   local n = high - low + 1
   if n <= 1 then return low end
   return low + (rank(n) * PRIME) % n
end

dofile(assert(os.getenv("FIRN_LAB_SCRIPT")))
sysbench.rand.default = zipf
sb_rand = zipf
