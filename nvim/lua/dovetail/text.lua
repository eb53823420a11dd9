-- Positions and ranges: Neovim counts bytes from 1, clients UTF-16 units from 0.
local M = {}

local modern = vim.fn.has("nvim-0.11") == 1

-- Longest selection whose whole text is sent; of a longer one the beginning.
M.MAX_TEXT = 1024 * 1024

-- The offset of byte `col` (0-based) of a line in `encoding` units.
function M.units(line, col, encoding)
  col = math.max(0, math.min(col, #line))
  if encoding == "utf-8" or not line:find("[\128-\255]") then
    return col
  end
  local ok, utf32, utf16
  if modern then
    ok, utf16 = pcall(vim.str_utfindex, line, encoding or "utf-16", col, false)
    return ok and utf16 or col
  end
  ok, utf32, utf16 = pcall(vim.str_utfindex, line, col)
  return ok and (encoding == "utf-32" and utf32 or utf16) or col
end

-- The byte offset (0-based) of a column that counts UTF-16 units from 1.
function M.byte_of(line, column)
  local ok, byte
  if modern then
    ok, byte = pcall(vim.str_byteindex, line, "utf-16", column - 1, false)
  else
    ok, byte = pcall(vim.str_byteindex, line, column - 1, true)
  end
  return ok and byte or #line
end

function M.line(buf, number)
  return vim.api.nvim_buf_get_lines(buf, number - 1, number, false)[1] or ""
end

-- The byte after the character at byte `col` (1-based), composing characters included.
local function after(line, col)
  if col > #line then
    return #line
  end
  return col - 1 + #vim.fn.matchstr(line:sub(col), ".")
end

local function region_text(buf, first, last, kind)
  local bytes = vim.api.nvim_buf_get_offset(buf, last[2])
    - vim.api.nvim_buf_get_offset(buf, first[2] - 1)
  if bytes <= M.MAX_TEXT then
    return table.concat(vim.fn.getregion(first, last, { type = kind }), "\n")
  end
  local parts, size = {}, 0
  for number = first[2], last[2] do
    parts[#parts + 1] = M.line(buf, number)
    size = size + #parts[#parts] + 1
    if size > M.MAX_TEXT then
      break
    end
  end
  return table.concat(parts, "\n"):sub(1, M.MAX_TEXT)
end

-- What lies between two getpos() positions, as clients want it.
function M.region(buf, anchor, cursor, kind)
  local first, last, reversed = anchor, cursor, false
  if cursor[2] < anchor[2] or (cursor[2] == anchor[2] and cursor[3] < anchor[3]) then
    first, last, reversed = cursor, anchor, true
  end
  local head, tail = M.line(buf, first[2]), M.line(buf, last[2])
  local from, to
  if kind == "V" then
    from, to = 0, #tail
  elseif kind == "v" then
    from = first[3] - 1
    to = vim.o.selection == "exclusive" and last[3] - 1 or after(tail, last[3])
  else
    local left, right = math.min(first[3], last[3]), math.max(first[3], last[3])
    from = left - 1
    to = vim.fn.winsaveview().curswant == vim.v.maxcol and #tail or after(tail, right)
  end
  local from_unit, end_line, to_unit = M.units(head, from), last[2] - 1, M.units(tail, to)
  if to_unit == 0 and (kind == "V" or last[2] > first[2] or #tail == 0) then
    end_line, to_unit = end_line + 1, 0 -- the line counts although nothing on it is selected
  end
  return {
    text = region_text(buf, first, last, kind),
    start = { first[2] - 1, from_unit },
    finish = { end_line, to_unit },
    reversed = reversed,
  }
end

return M
