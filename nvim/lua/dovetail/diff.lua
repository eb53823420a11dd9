-- Shows what an agent proposes, in a tab page of its own, and tells the server how it ended.
--
-- A diff has two texts: `base`, what the file holds, and `proposed`, which may be edited. Accepting
-- a hunk copies it into the base, rejecting it copies the base into the proposal, so what differs
-- is what is still to be decided. Every diff is settled once.
local config = require("dovetail.config")
local editor = require("dovetail.editor")

local api = vim.api
local M = {}

local diffs = {} -- id -> diff
local space = api.nvim_create_namespace("dovetail_diff")
local compare = vim.text and vim.text.diff or vim.diff

-- Highlights of each shown line cost; of a longer diff only the text is shown inline.
local MAX_MARKS = 20000

-- -- text and lines --------------------------------------------------------------------------

local function split(content, format)
  if format.bom then
    content = content:gsub("^\239\187\191", "")
  end
  if format.dos then
    content = content:gsub("\r\n", "\n")
  end
  local lines, from, at = {}, 1, content:find("\n", 1, true)
  while at do -- three times as fast as vim.split, and files are large
    lines[#lines + 1] = content:sub(from, at - 1)
    from = at + 1
    at = content:find("\n", from, true)
  end
  if from <= #content then
    lines[#lines + 1] = content:sub(from)
  end
  return lines
end

local function is_dos(content)
  if not content:find("\r\n", 1, true) then
    return false
  end
  local _, all = content:gsub("\n", "")
  local _, crlf = content:gsub("\r\n", "")
  return all > 0 and all == crlf
end

-- How the proposal is written down. Carriage returns are hidden only if both texts have them.
local function format_of(old, new)
  return {
    bom = new:sub(1, 3) == "\239\187\191",
    dos = is_dos(new) and (is_dos(old) or not old:find("\n")),
    eol = new:sub(-1) == "\n" or new == "",
  }
end

local function lines_of(buf)
  local lines = api.nvim_buf_get_lines(buf, 0, -1, false)
  if #lines == 1 and lines[1] == "" then
    return {}
  end
  return lines
end

local function join(lines, format)
  if #lines == 0 then
    return ""
  end
  local newline = format.dos and "\r\n" or "\n"
  local content = table.concat(lines, newline) .. (format.eol and newline or "")
  return (format.bom and "\239\187\191" or "") .. content
end

local function as_text(lines)
  return #lines == 0 and "" or table.concat(lines, "\n") .. "\n"
end

-- -- settling --------------------------------------------------------------------------------

local function fire(name, diff)
  pcall(api.nvim_exec_autocmds, "User", {
    pattern = name,
    modeline = false,
    data = { path = diff.path, tab_name = diff.tab_name, reason = diff.reason },
  })
end

-- After a diff: to the next one that waits, else back to where the user was.
local function go_on(back)
  local _, waiting = next(diffs)
  if waiting and api.nvim_win_is_valid(waiting.win) then
    waiting.came_from = back
    api.nvim_set_current_win(waiting.win)
  elseif back and api.nvim_win_is_valid(back) then
    api.nvim_set_current_win(back)
  end
end

local function close_view(diff)
  pcall(api.nvim_del_augroup_by_id, diff.group)
  local back = diff.came_from
  if diff.tab and api.nvim_tabpage_is_valid(diff.tab) then
    local was_here = api.nvim_get_current_tabpage() == diff.tab
    if #api.nvim_list_tabpages() == 1 then
      vim.cmd.tabnew()
    end
    local number = api.nvim_tabpage_get_number(diff.tab)
    pcall(vim.cmd.tabclose, { args = { tostring(number) }, bang = true, mods = { silent = true } })
    if was_here then
      go_on(back)
    end
  end
  for _, buf in ipairs({ diff.base_buf, diff.buf }) do
    if api.nvim_buf_is_valid(buf) then
      pcall(api.nvim_buf_delete, buf, { force = true })
    end
  end
end

-- The one end of a diff. Only the first caller settles it.
local function settle(diff, outcome, reason)
  if diff.settled then
    return
  end
  diff.settled, diff.reason = true, reason
  diffs[diff.id] = nil
  local content
  if outcome == "accepted" and api.nvim_buf_is_valid(diff.buf) then
    if api.nvim_buf_get_changedtick(diff.buf) ~= diff.tick then
      content = join(lines_of(diff.buf), diff.format)
    end
  end
  pcall(vim.rpcnotify, diff.channel, "diff", diff.id, outcome, content or vim.NIL, reason or vim.NIL)
  close_view(diff)
  fire(outcome == "accepted" and "ClaudeCodeDiffAccepted" or "ClaudeCodeDiffRejected", diff)
end

-- -- hunks -----------------------------------------------------------------------------------

-- {base line, base count, line, count}: as vim.diff has them, lines from 1.
local function hunks(diff)
  local base, proposed = as_text(lines_of(diff.base_buf)), as_text(lines_of(diff.buf))
  return compare(base, proposed, { result_type = "indices", algorithm = "histogram" })
end

local function covers(hunk, line)
  local first, count = hunk[3], hunk[4]
  if count == 0 then -- lines were removed below `first`
    return line == first or line == first + 1
  end
  return line >= first and line < first + count
end

-- The hunk at the cursor, or the only one there is.
local function hunk_here(diff)
  local all = hunks(diff)
  local line = api.nvim_win_get_cursor(diff.win)[1]
  for _, hunk in ipairs(all) do
    if covers(hunk, line) then
      return hunk
    end
  end
  return #all == 1 and all[1] or nil
end

local function slice(buf, first, count)
  return api.nvim_buf_get_lines(buf, first - 1, first - 1 + count, false)
end

local function replace(buf, first, count, lines)
  local at = count == 0 and first or first - 1 -- an empty range lies below its line
  local empty = #lines_of(buf) == 0
  vim.bo[buf].modifiable = true
  api.nvim_buf_set_lines(buf, empty and 0 or at, empty and -1 or at + count, false, lines)
end

local refresh

-- Decide one hunk. When none is left, the whole is decided.
local function decide(diff, accepted)
  local hunk = hunk_here(diff)
  if not hunk then
    return
  end
  local base, base_count, line, count = unpack(hunk)
  if accepted then
    replace(diff.base_buf, base, base_count, slice(diff.buf, line, count))
    vim.bo[diff.base_buf].modifiable = false
    diff.accepted_any = true
  else
    replace(diff.buf, line, count, slice(diff.base_buf, base, base_count))
  end
  refresh(diff)
  if #hunks(diff) == 0 then
    settle(diff, diff.accepted_any and "accepted" or "rejected")
  end
end

-- -- views -----------------------------------------------------------------------------------

local function scratch(name, lines, language)
  local buf = api.nvim_create_buf(false, true)
  local undo = vim.bo[buf].undolevels
  vim.bo[buf].undolevels = -1 -- the text itself is nothing to undo
  api.nvim_buf_set_lines(buf, 0, -1, false, lines)
  vim.bo[buf].undolevels = undo
  vim.bo[buf].bufhidden = "hide"
  vim.bo[buf].swapfile = false
  vim.bo[buf].modeline = false
  pcall(api.nvim_buf_set_name, buf, name)
  if language ~= "" and #lines < MAX_MARKS then
    -- Colours only: a filetype would start language servers and plugins on a text of ours.
    local parser = vim.treesitter.language.get_lang(language) or language
    if not pcall(vim.treesitter.start, buf, parser) then
      vim.bo[buf].syntax = language
    end
  end
  return buf
end

local function show_side(diff)
  api.nvim_win_set_buf(diff.win, diff.base_buf)
  local base_win = diff.win
  diff.win = api.nvim_open_win(diff.buf, true, { split = "right", win = base_win })
  for _, win in ipairs({ base_win, diff.win }) do
    api.nvim_win_call(win, function()
      vim.cmd.diffthis()
    end)
    vim.wo[win].foldenable = true
  end
  diff.base_win = base_win
  vim.wo[base_win].winbar = "%#DiffDelete# now %* " .. diff.title
end

-- What the file has is shown as ghost lines above what is proposed.
local function paint(diff)
  api.nvim_buf_clear_namespace(diff.buf, space, 0, -1)
  local painted, last = 0, api.nvim_buf_line_count(diff.buf)
  diff.hunks = hunks(diff)
  for _, hunk in ipairs(diff.hunks) do
    local base, base_count, line, count = unpack(hunk)
    painted = painted + base_count + count
    if painted > MAX_MARKS then
      return
    end
    if count > 0 then
      local finish = math.min(line - 1 + count, last)
      for row = line - 1, finish - 1 do
        api.nvim_buf_set_extmark(diff.buf, space, row, 0, { line_hl_group = "DiffAdd" })
      end
    end
    if base_count > 0 then
      local ghosts = {}
      for _, text in ipairs(slice(diff.base_buf, base, base_count)) do
        ghosts[#ghosts + 1] = { { text == "" and " " or text, "DiffDelete" } }
      end
      local above = not (count == 0 and line > 0)
      local row = math.min(math.max(line - 1, 0), last - 1)
      local mark = { virt_lines = ghosts, virt_lines_above = above }
      api.nvim_buf_set_extmark(diff.buf, space, row, 0, mark)
    end
  end
end

local function show_inline(diff)
  api.nvim_win_set_buf(diff.win, diff.buf)
  paint(diff)
  -- Ghost lines above the first line are off the screen unless we scroll to them.
  local first = diff.hunks[1]
  if first and first[3] <= 1 and first[2] > 0 then
    api.nvim_win_call(diff.win, function()
      vim.fn.winrestview({ topfill = first[2], topline = 1 })
    end)
  end
end

refresh = function(diff)
  if diff.style == "inline" then
    paint(diff)
  else
    api.nvim_win_call(diff.win, function()
      vim.cmd.diffupdate()
    end)
  end
end

local function first_hunk(diff)
  if diff.style == "side" then -- Neovim has just compared them
    api.nvim_win_call(diff.win, function()
      if vim.fn.diff_hlID(1, 1) == 0 and vim.fn.diff_filler(1) == 0 then
        vim.cmd.normal({ "]c", bang = true })
      end
    end)
    return
  end
  local first = diff.hunks[1]
  if first then
    local row = math.max(1, math.min(first[3], api.nvim_buf_line_count(diff.buf)))
    api.nvim_win_set_cursor(diff.win, { row, 0 })
  end
end

local function ask_reason(diff)
  vim.ui.input({ prompt = "Why not? " }, function(reason)
    if reason then
      settle(diff, "rejected", reason ~= "" and reason or nil)
      require("dovetail.terminal").type(reason)
    end
  end)
end

-- The last key of each action, for the bar above the proposal.
local function hints()
  local function key(action)
    local list = config.options.diff.keys[action]
    return list[#list] and list[#list]:gsub("%%", "%%%%") or "-"
  end
  return ("%s accept %s reject %s/%s hunk %s why "):format(
    key("accept"), key("reject"), key("accept_hunk"), key("reject_hunk"), key("reject_with_reason")
  )
end

local function map_keys(diff)
  local keys = config.options.diff.keys
  local actions = {
    accept = function()
      settle(diff, "accepted")
    end,
    reject = function()
      settle(diff, "rejected")
    end,
    accept_hunk = function()
      decide(diff, true)
    end,
    reject_hunk = function()
      decide(diff, false)
    end,
    reject_with_reason = function()
      ask_reason(diff)
    end,
  }
  for action, run in pairs(actions) do
    for _, key in ipairs(keys[action] or {}) do
      for _, buf in ipairs({ diff.buf, diff.base_buf }) do
        vim.keymap.set("n", key, run, { buffer = buf, nowait = true, desc = "dovetail: " .. action })
      end
    end
  end
end

local function watch(diff)
  local function on(event, options)
    options.group = diff.group
    api.nvim_create_autocmd(event, options)
  end
  on("BufWriteCmd", {
    buffer = diff.buf,
    callback = function()
      vim.schedule(function()
        settle(diff, "accepted")
      end)
    end,
  })
  on("BufModifiedSet", { -- :q must not complain
    buffer = diff.buf,
    callback = function()
      vim.bo[diff.buf].modified = false
    end,
  })
  on({ "TextChanged", "TextChangedI" }, {
    buffer = diff.buf,
    callback = function()
      if diff.style == "inline" then
        paint(diff)
      end
    end,
  })
  on("WinClosed", {
    callback = function(event)
      local win = tonumber(event.match)
      if win == diff.win or win == diff.base_win then
        vim.schedule(function()
          settle(diff, "rejected")
        end)
      end
    end,
  })
  on("BufUnload", {
    buffer = diff.buf,
    callback = function()
      vim.schedule(function()
        settle(diff, "rejected")
      end)
    end,
  })
end

-- Where the user is now stays as it is; somebody who types is not interrupted.
local function open_tab(diff)
  diff.came_from = api.nvim_get_current_win()
  local mode = vim.fn.mode()
  local busy = mode:match("^[iRc]") ~= nil or M.current() ~= nil
  if mode:match("^[vV\22]") then
    vim.cmd.normal({ "\27", bang = true })
  end
  vim.cmd.tabnew({ mods = { silent = true } })
  diff.tab, diff.win = api.nvim_get_current_tabpage(), api.nvim_get_current_win()
  local empty = api.nvim_get_current_buf()
  return busy, empty
end

-- Why a diff of these files may not be shown, or nil.
local function refusal(paths)
  for _, path in ipairs(paths) do
    local buf = editor.buffer_of(path)
    if config.is_sensitive(path) or (buf and editor.is_private(buf)) then
      return "the file is marked sensitive: " .. path
    end
    if buf and vim.bo[buf].modified then
      return "file has unsaved changes (save or discard them first): " .. path
    end
  end
end

-- options: id, channel, path, old_path, tab_name, old, new
function M.open(options)
  local problem = refusal({ options.path, options.old_path })
  if problem then
    return nil, problem
  end
  local diff = {
    id = options.id,
    channel = options.channel,
    path = options.path,
    tab_name = options.tab_name,
    style = config.options.diff.style,
    format = format_of(options.old, options.new),
    group = api.nvim_create_augroup("dovetail_diff_" .. options.id, { clear = true }),
  }
  diff.title = vim.fn.fnamemodify(diff.path, ":t"):gsub("%%", "%%%%")
  local language = vim.filetype.match({ filename = diff.path }) or ""
  local name = vim.fs.basename(diff.path)
  local stem = ("dovetail://%d/%%s/%s"):format(diff.id, name:gsub("%%", "%%%%"))
  diff.base_buf = scratch(stem:format("now"), split(options.old, diff.format), language)
  diff.buf = scratch(stem:format("proposed"), split(options.new, diff.format), language)
  vim.bo[diff.base_buf].modifiable = false
  vim.bo[diff.buf].buftype = "acwrite"
  vim.bo[diff.buf].modified = false
  diff.tick = api.nvim_buf_get_changedtick(diff.buf)
  local busy, empty = open_tab(diff)
  diffs[diff.id] = diff
  if diff.style == "inline" then
    show_inline(diff)
  else
    show_side(diff)
  end
  pcall(api.nvim_buf_delete, empty, {})
  vim.wo[diff.win].winbar = "%#DiffAdd# proposed %* " .. diff.title .. " %=%<%#Comment#" .. hints()
  first_hunk(diff)
  map_keys(diff)
  watch(diff)
  if busy and api.nvim_win_is_valid(diff.came_from) then
    api.nvim_set_current_win(diff.came_from)
  end
  return { tab = api.nvim_tabpage_get_number(diff.tab) }
end

-- The server needs a diff no more. It has settled it itself.
function M.close(id)
  local diff = diffs[id]
  if diff then
    diff.settled = true
    diffs[id] = nil
    close_view(diff)
    fire("ClaudeCodeDiffRejected", diff)
  end
  return vim.NIL
end

-- The server of these diffs is gone: nobody waits for them any more.
function M.close_channel(channel)
  for _, diff in ipairs(vim.tbl_values(diffs)) do
    if diff.channel == channel then
      M.close(diff.id)
    end
  end
end

function M.current()
  local tab = api.nvim_get_current_tabpage()
  for _, diff in pairs(diffs) do
    if diff.tab == tab then
      return diff
    end
  end
end

function M.list()
  return vim.tbl_values(diffs)
end

function M.accept()
  local diff = M.current()
  return diff and settle(diff, "accepted")
end

function M.reject(reason)
  local diff = M.current()
  return diff and settle(diff, "rejected", reason)
end

return M
