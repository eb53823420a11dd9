-- Buffers, quickfix list and commands for agents that are not Claude Code's IDE client.
-- Lines count from 1, as people and models count them.
local config = require("dovetail.config")
local editor = require("dovetail.editor")
local text = require("dovetail.text")

local api, fn = vim.api, vim.fn
local M = {}

local SEARCH_MS = 150 -- longest time the editor is kept for one search

-- The loaded buffer of a path or number, or nil and why not.
local function wanted(place)
  local buf = editor.find(place)
  if not buf or not api.nvim_buf_is_loaded(buf) then
    return nil, ("%s is not open in the editor"):format(place)
  end
  return buf
end
M.wanted = wanted

function M.read(place, first, last)
  local buf, problem = wanted(place)
  if not buf then
    return nil, problem
  end
  local count = api.nvim_buf_line_count(buf)
  first = math.max(1, first)
  last = last > 0 and math.min(last, count) or count
  local lines = first <= last and api.nvim_buf_get_lines(buf, first - 1, last, false) or {}
  return {
    buffer = buf,
    path = api.nvim_buf_get_name(buf),
    first_line = first,
    last_line = math.max(last, first - 1),
    lines = count,
    modified = vim.bo[buf].modified,
    text = table.concat(lines, "\n"),
  }
end

local function matcher(pattern, is_regex)
  if not is_regex then
    return function(line)
      return line:find(pattern, 1, true)
    end
  end
  local ok, regex = pcall(vim.regex, "\\v" .. pattern)
  if not ok then
    return nil, "the pattern is not a Vim regular expression (very magic): " .. tostring(regex)
  end
  return function(line)
    local first = regex:match_str(line)
    return first and first + 1
  end
end

-- In the text of the buffers, saved or not. Stops at `limit` hits, or when it takes too long.
function M.search(pattern, is_regex, limit)
  local match, problem = matcher(pattern, is_regex)
  if not match then
    return nil, problem
  end
  local hits, complete = {}, true
  local deadline = vim.uv.hrtime() + SEARCH_MS * 1e6
  for _, buf in ipairs(api.nvim_list_bufs()) do
    if complete and api.nvim_buf_is_loaded(buf) and editor.is_file(buf) then
      for number, line in ipairs(api.nvim_buf_get_lines(buf, 0, -1, false)) do
        local column = match(line)
        if column then
          hits[#hits + 1] = {
            path = api.nvim_buf_get_name(buf),
            line = number,
            column = text.units(line, column - 1) + 1,
            text = line,
          }
        end
        if #hits >= limit or (number % 1000 == 0 and vim.uv.hrtime() > deadline) then
          complete = false
          break
        end
      end
    end
  end
  return { hits = hits, complete = complete }
end

-- Replace lines; last < first inserts before `first`.
function M.edit(place, first, last, lines)
  local buf, problem = wanted(place)
  if not buf then
    return nil, problem
  end
  local count = api.nvim_buf_line_count(buf)
  if first < 1 or first > count + 1 or last > count then
    return nil, ("lines %d to %d are not in the buffer, which has %d"):format(first, last, count)
  end
  if not vim.bo[buf].modifiable then
    return nil, "the buffer cannot be changed"
  end
  api.nvim_buf_set_lines(buf, first - 1, math.max(last, first - 1), false, lines)
  return { lines = api.nvim_buf_line_count(buf) }
end

-- -- quickfix and messages ---------------------------------------------------------------------

local KINDS = { E = "error", W = "warning", I = "info", N = "note", H = "hint" }

function M.quickfix()
  local list = fn.getqflist({ items = 0, title = 0 })
  local items = {}
  for _, item in ipairs(list.items) do
    local known = item.bufnr > 0 and api.nvim_buf_is_valid(item.bufnr)
    if not known or not editor.is_private(item.bufnr) then
      items[#items + 1] = {
        path = known and api.nvim_buf_get_name(item.bufnr) or "",
        line = item.lnum,
        column = item.col,
        kind = KINDS[item.type:upper()] or "",
        text = item.text,
      }
    end
  end
  return { title = list.title, items = items }
end

function M.set_quickfix(title, items)
  local entries = {}
  for _, item in ipairs(items) do
    entries[#entries + 1] = {
      filename = item.path,
      lnum = item.line,
      col = item.column,
      text = item.text,
      type = item.kind:sub(1, 1):upper(),
    }
  end
  fn.setqflist({}, " ", { title = title, items = entries })
  return { count = #entries }
end

function M.messages()
  return api.nvim_exec2("messages", { output = true }).output
end

-- What a poll compares: the list's own counter, and the last of the messages.
function M.marks()
  local messages = M.messages()
  return { fn.getqflist({ changedtick = 0 }).changedtick, #messages, messages:sub(-200) }
end

-- -- commands -----------------------------------------------------------------------------------

function M.run(command)
  local ok, result = pcall(api.nvim_exec2, command, { output = true })
  if not ok then
    return nil, (tostring(result):gsub("^.-(E%d+:)", "%1"))
  end
  return { output = result.output or "" }
end

-- -- tools of the user's own ----------------------------------------------------------------------

-- setup{ tools = { name = { description = "…", schema = {…}, run = function(arguments) … end } } }
function M.own_tools()
  local list = {}
  for name, tool in pairs(config.options.tools) do
    local schema = tool.schema or { type = "object", properties = vim.empty_dict() }
    list[#list + 1] = { name = name, description = tool.description or name, schema = schema }
  end
  table.sort(list, function(a, b)
    return a.name < b.name
  end)
  return list
end

function M.run_own(name, arguments)
  local tool = config.options.tools[name]
  if not tool then
    return nil, "there is no such tool any more: " .. name
  end
  local ok, result = pcall(tool.run, arguments)
  if not ok then
    return nil, tostring(result)
  end
  return { result = result }
end

return M
