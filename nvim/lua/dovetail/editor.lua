-- What the server reads of the editor and does in it. Every function takes plain arguments and
-- returns a value for JSON, or nil and a text that says why not. Nothing here prints.
local config = require("dovetail.config")
local text = require("dovetail.text")

local api, fn = vim.api, vim.fn
local M = {}

-- -- which buffers are files --------------------------------------------------------------

function M.is_private(buf)
  local marked = vim.b[buf].dovetail_ignore or vim.b[buf].mcp_ignore
  return (marked and marked ~= 0) or config.is_sensitive(api.nvim_buf_get_name(buf))
end

-- A buffer that is a file to the world: no terminal, no help, no diff of ours, no secret.
function M.is_file(buf)
  if not api.nvim_buf_is_valid(buf) or vim.bo[buf].buftype ~= "" then
    return false
  end
  local name = api.nvim_buf_get_name(buf)
  return name ~= "" and not name:find("^%a[%w+.-]+://") and not M.is_private(buf)
end

-- The buffer of a path, whatever it is.
function M.buffer_of(path)
  local real = vim.uv.fs_realpath(path)
  for _, buf in ipairs(api.nvim_list_bufs()) do
    local name = api.nvim_buf_get_name(buf)
    if name ~= "" and (name == path or name == real) then
      return buf
    end
  end
end

-- The buffer of a path or of a number, only if it is one that may be shown.
function M.find(place)
  if type(place) == "number" then
    local ok = api.nvim_buf_is_valid(place) and api.nvim_buf_is_loaded(place)
    local shown = ok and (M.is_file(place) or api.nvim_buf_get_name(place) == "")
    return shown and not M.is_private(place) and place or nil
  end
  local buf = M.buffer_of(place)
  return buf and M.is_file(buf) and buf or nil
end

local function loaded(place)
  local buf = M.find(place)
  if buf and api.nvim_buf_is_loaded(buf) then
    return buf
  end
end

-- -- selection ----------------------------------------------------------------------------

local VISUAL = { v = "v", V = "V", ["\22"] = "\22", s = "v", S = "V", ["\19"] = "\22" }
local kept -- the last visual selection, current until the cursor moves away from it
local latest -- what was last seen in a file

local function described(buf, region)
  region.path = api.nvim_buf_get_name(buf)
  region.buffer = buf
  region.lines = api.nvim_buf_line_count(buf)
  region.dirty = vim.bo[buf].modified
  return region
end

local function cursor_only(buf, cursor)
  local unit = text.units(text.line(buf, cursor[1]), cursor[2])
  local here = { cursor[1] - 1, unit }
  return { text = "", start = here, finish = here, reversed = false, empty = true }
end

local function still_kept(buf, cursor)
  return kept
    and kept.buf == buf
    and kept.tick == api.nvim_buf_get_changedtick(buf)
    and kept.cursor[1] == cursor[1]
    and kept.cursor[2] == cursor[2]
end

-- Called when Visual mode ends: a selection is not lost because the hands were quick.
function M.keep()
  local buf = api.nvim_get_current_buf()
  if not M.is_file(buf) then
    return
  end
  local kind = fn.visualmode()
  local first, last = fn.getpos("'<"), fn.getpos("'>")
  if first[2] == 0 or last[2] == 0 or last[2] > api.nvim_buf_line_count(buf) then
    return
  end
  last[3] = math.min(last[3], #text.line(buf, last[2]) + 1)
  kept = {
    buf = buf,
    tick = api.nvim_buf_get_changedtick(buf),
    cursor = api.nvim_win_get_cursor(0),
    region = text.region(buf, first, last, kind),
  }
end

-- The selection, or the place of the cursor, in the current file; in a terminal or a diff,
-- that of the file where one was before.
function M.selection()
  local buf = api.nvim_get_current_buf()
  if not M.is_file(buf) then
    if latest and not M.is_file(latest.buffer) then
      latest = nil
    end
    return latest or vim.NIL
  end
  local kind = VISUAL[fn.mode()]
  local cursor = api.nvim_win_get_cursor(0)
  local region
  if kind then
    kept = nil
    region = text.region(buf, fn.getpos("v"), fn.getpos("."), kind)
  elseif still_kept(buf, cursor) then
    region = vim.deepcopy(kept.region)
  else
    region = cursor_only(buf, cursor)
  end
  latest = described(buf, region)
  return latest
end

-- -- editors, folders, diagnostics ----------------------------------------------------------

local kinds = {} -- path -> filetype of files that are not loaded

local function filetype(buf, path)
  local kind = vim.bo[buf].filetype
  if kind ~= "" or path == "" or api.nvim_buf_is_loaded(buf) then
    return kind
  end
  if kinds[path] == nil then
    kinds[path] = vim.filetype.match({ filename = path }) or ""
  end
  return kinds[path]
end

function M.editors()
  local rows, current = {}, api.nvim_get_current_buf()
  for _, buf in ipairs(api.nvim_list_bufs()) do
    local bo = vim.bo[buf]
    if bo.buflisted and bo.buftype == "" then
      local path = api.nvim_buf_get_name(buf)
      if path == "" and not M.is_private(buf) or M.is_file(buf) then
        local lines = api.nvim_buf_line_count(buf)
        rows[#rows + 1] = { buf, path, filetype(buf, path), lines, bo.modified, buf == current }
      end
    end
  end
  return rows
end

function M.folders()
  local seen, list = {}, {}
  local function add(path)
    if path and path ~= "" and path ~= "/" and not seen[path] then
      seen[path] = true
      list[#list + 1] = path
    end
  end
  local cwd = fn.getcwd()
  for _, path in ipairs({ cwd, vim.uv.fs_realpath(cwd) or "" }) do
    add(path)
  end
  for _, path in ipairs(config.options.folders) do
    add(vim.fs.normalize(path))
  end
  for _, client in ipairs(vim.lsp.get_clients()) do
    for _, folder in ipairs(client.workspace_folders or {}) do
      add(vim.uri_to_fname(folder.uri))
    end
  end
  return list
end

local function diagnostic(buf, item)
  local function unit(lnum, col)
    local line = api.nvim_buf_is_loaded(buf) and text.line(buf, lnum + 1)
    return line and text.units(line, col) or col
  end
  local last, last_col = item.end_lnum or item.lnum, item.end_col or item.col
  return {
    message = item.message,
    severity = item.severity,
    source = item.source,
    code = item.code ~= nil and tostring(item.code) or nil,
    range = { item.lnum, unit(item.lnum, item.col), last, unit(last, last_col) },
  }
end

-- Of the buffers given, or of all that have any: {buffer, path, items}.
function M.diagnostics(bufs)
  local rows = {}
  if not bufs then
    local having = {}
    for _, item in ipairs(vim.diagnostic.get()) do
      having[item.bufnr] = true
    end
    bufs = vim.tbl_keys(having)
    table.sort(bufs)
  end
  for _, buf in ipairs(bufs) do
    local path, items = "", {}
    if M.is_file(buf) then
      path = api.nvim_buf_get_name(buf)
      for _, item in ipairs(vim.diagnostic.get(buf)) do
        items[#items + 1] = diagnostic(buf, item)
      end
    end
    rows[#rows + 1] = { buf, path, items }
  end
  return rows
end

function M.snapshot()
  return {
    selection = M.selection(),
    editors = M.editors(),
    folders = M.folders(),
    diagnostics = M.diagnostics(),
    pid = fn.getpid(),
    version = tostring(vim.version()),
    settings = M.settings(),
  }
end

-- What the server must know of the settings.
function M.settings()
  local o = config.options
  return {
    write = o.write,
    exec = o.exec,
    execute_code = o.execute_code,
    outside = o.outside,
    log_events = o.log_events,
    write_on_accept = o.diff.write_on_accept,
    single_client = o.single_client,
    http = o.http,
  }
end

-- -- files ----------------------------------------------------------------------------------

-- Where the swap file of a path would be in one entry of 'directory', without its extension.
local function swap_base(directory, path)
  if directory:sub(-2) == "//" then
    return directory:sub(1, -2) .. path:gsub("/", "%%")
  end
  if directory == "." or directory:sub(1, 2) == "./" then
    local folder = vim.fs.dirname(path) .. directory:sub(2)
    return vim.fs.joinpath(folder, "." .. vim.fs.basename(path))
  end
  return vim.fs.joinpath(directory, vim.fs.basename(path))
end

-- Whether another editor has a file open, or crashed with it.
local function has_swap(path)
  path = vim.uv.fs_realpath(path) or path
  for directory in vim.gsplit(vim.o.directory, ",", { plain = true }) do
    local base = swap_base(fn.expand(directory), path)
    for letter in ("ponml"):gmatch(".") do
      local file = base .. ".sw" .. letter
      if vim.uv.fs_stat(file) then
        local info = fn.swapinfo(file)
        if info.error or vim.fs.normalize(info.fname) == vim.fs.normalize(path) then
          return true
        end
      end
    end
  end
  return false
end

-- A file of the agent's choosing must not set options here (modelines), nor stop us with a
-- question because of a swap file: if another editor has it, it is read-only here.
local function load(path)
  local buf = fn.bufadd(path)
  if api.nvim_buf_is_loaded(buf) then
    vim.bo[buf].buflisted = true
    return buf
  end
  local modeline, taken = vim.go.modeline, has_swap(path)
  vim.go.modeline = false
  vim.bo[buf].modeline = false
  vim.bo[buf].swapfile = false
  local ok, problem = pcall(fn.bufload, buf)
  vim.go.modeline = modeline
  if not ok then
    pcall(api.nvim_buf_delete, buf, { force = true })
    return nil, tostring(problem)
  end
  vim.bo[buf].readonly = vim.bo[buf].readonly or taken
  vim.bo[buf].swapfile = not taken and vim.go.swapfile
  vim.bo[buf].buflisted = true
  return buf
end

local function is_plain(win)
  return api.nvim_win_get_config(win).relative == ""
    and vim.bo[api.nvim_win_get_buf(win)].buftype == ""
    and not vim.wo[win].diff
    and not vim.wo[win].winfixbuf
end

-- Where a file may be shown: the current window, or the first that holds a file.
local function window()
  local wins = api.nvim_tabpage_list_wins(0)
  table.insert(wins, 1, api.nvim_get_current_win())
  for _, win in ipairs(wins) do
    if is_plain(win) then
      return win
    end
  end
  return api.nvim_open_win(0, false, { split = "left", win = -1 })
end

local function locate(all, wanted, from)
  local first, last = all:find(wanted, from, true)
  if first then
    return first, last
  end
end

local function position(buf, offset)
  local count = api.nvim_buf_line_count(buf)
  local low, high = 1, count
  while low < high do -- the last line that begins at or before the offset
    local middle = math.floor((low + high + 1) / 2)
    if api.nvim_buf_get_offset(buf, middle - 1) < offset then
      low = middle
    else
      high = middle - 1
    end
  end
  return { low, offset - 1 - api.nvim_buf_get_offset(buf, low - 1) }
end

-- First and last place ({line, byte}, inclusive) of what the arguments name, or nil and why not.
local function wanted_range(buf, a)
  if a.startText and a.startText ~= "" then
    local all = table.concat(api.nvim_buf_get_lines(buf, 0, -1, false), "\n")
    local first, last = locate(all, a.startText, 1)
    if not first then
      return nil, ("Opened file, but text %q was not found"):format(a.startText)
    end
    local message = ("Opened file and selected text %q"):format(a.startText)
    if a.endText and a.endText ~= "" then
      local _, finish = locate(all, a.endText, last + 1)
      if not finish then
        return nil, ("Opened file, but text %q was not found"):format(a.endText)
      end
      last = finish
      message = ('Opened file and selected text from "%s" to "%s"'):format(a.startText, a.endText)
    end
    local from, to = position(buf, first), position(buf, last)
    if a.selectToEndOfLine then
      to[2] = math.max(0, #text.line(buf, to[1]) - 1)
    end
    return { from, to }, message
  end
  if a.startLine > 0 then
    local count = api.nvim_buf_line_count(buf)
    local first = math.max(1, math.min(a.startLine, count))
    local last = math.max(first, math.min(a.endLine, count))
    local to = { last, math.max(0, #text.line(buf, last) - 1) }
    return { { first, 0 }, to }, ("Opened file and selected lines %d to %d"):format(first, last)
  end
end

local function select(win, range)
  local from, to = range[1], range[2]
  api.nvim_win_set_cursor(win, from)
  if win == api.nvim_get_current_win() and fn.mode() == "n" then
    vim.cmd.normal({ "v", bang = true })
    api.nvim_win_set_cursor(win, to)
  end
end

-- Show a file. Somebody who types is not taken away from where they type.
function M.open_file(a)
  local buf, problem = load(a.filePath)
  if not buf then
    return nil, problem
  end
  local message = "Opened file: " .. a.filePath
  if a.makeFrontmost then
    local free = fn.mode():match("^[nvV\22t]") ~= nil
    local win = window()
    if free or win ~= api.nvim_get_current_win() then
      if VISUAL[fn.mode()] then
        vim.cmd.normal({ "\27", bang = true })
      end
      local ok, why = pcall(api.nvim_win_set_buf, win, buf)
      if not ok then
        return nil, tostring(why)
      end
      if free then
        api.nvim_set_current_win(win)
      end
      local range, said = wanted_range(buf, a)
      message = said or message
      if range then
        select(win, range)
      end
    end
  end
  local lines = api.nvim_buf_line_count(buf)
  return { message = message, languageId = vim.bo[buf].filetype, lineCount = lines }
end

function M.is_dirty(path)
  local buf = loaded(path)
  return buf and { dirty = vim.bo[buf].modified } or vim.NIL
end

-- Whether the file was changed behind the buffer's back. :write would stop and ask.
local function changed_on_disk(buf)
  local changed = false
  local id = api.nvim_create_autocmd("FileChangedShell", {
    callback = function(event)
      changed = changed or event.buf == buf
      vim.v.fcs_choice = ""
    end,
  })
  pcall(vim.cmd.checktime, { args = { tostring(buf) }, mods = { emsg_silent = true } })
  api.nvim_del_autocmd(id)
  return changed
end

function M.save(path)
  local buf = loaded(path)
  if not buf then
    return vim.NIL
  end
  if vim.bo[buf].modified and changed_on_disk(buf) then
    return nil, "the file has changed on disk since it was read"
  end
  local ok, problem = pcall(api.nvim_buf_call, buf, function()
    vim.cmd.write({ mods = { silent = true } })
  end)
  if not ok then
    return nil, tostring(problem):gsub("^.-(E%d+:)", "%1")
  end
  return { saved = true }
end

-- Read a buffer again after somebody else wrote its file; unsaved changes stay.
function M.reload(path)
  local buf = loaded(path)
  if buf and not vim.bo[buf].modified and vim.uv.fs_stat(path) then
    local autoread = vim.o.autoread
    vim.o.autoread = true
    pcall(vim.cmd.checktime, { args = { tostring(buf) }, mods = { silent = true, emsg_silent = true } })
    vim.o.autoread = autoread
  end
  return vim.NIL
end

return M
