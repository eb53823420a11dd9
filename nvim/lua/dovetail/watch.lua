-- Tells the servers what has changed. On the typing path: one flag, one timer.
--
-- The first change since the server looked says at once that what it knows is old; the timer then
-- sends what is true now. Nothing is registered while nobody listens.
local config = require("dovetail.config")
local editor = require("dovetail.editor")

local api = vim.api
local M = {}

local listeners = {} -- channel -> what it wants beyond the ordinary: {buffers = true}
local group
local timer
local armed = false
local moved, told = false, false -- the timer has work; the servers know that they know nothing
local pending = {} -- event and argument -> {event, argument, told}
local last_selection

local function tell(event, ...)
  for channel in pairs(listeners) do
    if not pcall(vim.rpcnotify, channel, event, ...) then
      listeners[channel] = nil
    end
  end
end
M.tell = tell

local function flush()
  armed = false
  local marked = pending
  pending = {}
  for _, mark in pairs(marked) do -- once more: the event may have come before the change
    tell(mark.event, mark.argument)
  end
  if moved then
    moved, told = false, false
    local ok, selection = pcall(editor.selection)
    local json = vim.json.encode(ok and selection or vim.NIL)
    if json == last_selection then
      tell("fresh")
    else
      last_selection = json
      tell("selection", json)
    end
  end
end

local scheduled = vim.schedule_wrap(flush)

local function arm()
  if not armed then
    armed = true
    timer:start(config.options.throttle_ms, 0, scheduled)
  end
end

local function on_move()
  if not told then
    told, moved = true, true
    tell("stale")
    arm()
  end
end

local function mark(event, argument)
  local key = argument and (event .. argument) or event
  if not (pending[key] and pending[key].told) then
    pending[key] = { event = event, argument = argument, told = true }
    tell(event, argument)
    arm()
  end
end

-- A server looks: it must be told of the next change again.
function M.read(what, ...)
  if what == "selection" then
    told = false
  end
  for _, each in pairs(pending) do
    if each.event == what then
      each.told = false
    end
  end
  return editor[what](...)
end

local function on_text(event)
  on_move()
  for _, wants in pairs(listeners) do
    if wants.buffers then
      mark("buffer", event.buf)
      return
    end
  end
end

local function on_visual_end()
  pcall(editor.keep)
  on_move()
  moved = true
  flush()
end

-- -- files written by somebody else ----------------------------------------------------------

local MAX_WATCHED = 256 -- directories; past that a file is read again when it is shown
local watched, watched_count = {}, 0

-- Read files again that have changed: those of a directory, or all.
local function reload(directory)
  for _, buf in ipairs(api.nvim_list_bufs()) do
    local path = api.nvim_buf_get_name(buf)
    if api.nvim_buf_is_loaded(buf) and (not directory or vim.fs.dirname(path) == directory) then
      editor.reload(path)
    end
  end
end

local function watch_directory(path)
  local directory = vim.fs.dirname(path)
  if not directory or watched[directory] or watched_count >= MAX_WATCHED then
    return
  end
  local handle = vim.uv.new_fs_event()
  local entry = { handle = handle, waiting = false }
  local ok = handle and handle:start(directory, {}, function()
    if not entry.waiting then
      entry.waiting = true
      vim.schedule(function()
        vim.defer_fn(function()
          entry.waiting = false
          reload(directory)
        end, 50)
      end)
    end
  end)
  if ok then
    watched[directory], watched_count = entry, watched_count + 1
  elseif handle then
    handle:close()
  end
end

local function watch_buffer(buf)
  if api.nvim_buf_is_loaded(buf) and editor.is_file(buf) then
    watch_directory(api.nvim_buf_get_name(buf))
  end
end

local function unwatch()
  for _, entry in pairs(watched) do
    entry.handle:stop()
    entry.handle:close()
  end
  watched, watched_count = {}, 0
end

-- -- registering -----------------------------------------------------------------------------

local function on(events, callback, pattern)
  api.nvim_create_autocmd(events, { group = group, callback = callback, pattern = pattern })
end

local function start()
  group = api.nvim_create_augroup("dovetail_watch", { clear = true })
  timer = timer or vim.uv.new_timer()
  last_selection = nil
  on({ "CursorMoved", "CursorMovedI", "WinEnter" }, on_move)
  on({ "TextChanged", "TextChangedI", "TextChangedP" }, on_text)
  on("ModeChanged", on_move, "*:[vV\22sS\19]*")
  on("ModeChanged", on_visual_end, "[vV\22sS\19]*:[^vV\22sS\19]*")
  on({ "BufAdd", "BufDelete", "BufWipeout", "BufFilePost", "BufModifiedSet", "FileType" }, function()
    mark("editors")
  end)
  on({ "BufEnter", "BufWritePost" }, function()
    mark("editors")
    on_move()
  end)
  on("DiagnosticChanged", function(event)
    mark("diagnostics", event.buf)
  end)
  on({ "BufReadPost", "BufWritePost" }, function(event)
    watch_buffer(event.buf)
  end)
  for _, buf in ipairs(api.nvim_list_bufs()) do
    watch_buffer(buf)
  end
  reload()
end

local function stop()
  if group then
    api.nvim_del_augroup_by_id(group)
    group = nil
    timer:stop()
    armed, moved, told, pending = false, false, false, {}
    unwatch()
  end
end

-- A server wants to be told, or no more. `wants` is nil or {buffers = true}.
function M.listen(channel, wants)
  listeners[channel] = wants
  if next(listeners) == nil then
    stop()
  elseif not group then
    start()
  end
  return vim.NIL
end

-- The lock file names the folders, so this is told even while there is no client. A language
-- server has its folders only after it was attached.
function M.follow_folders(channel)
  api.nvim_create_autocmd({ "DirChanged", "LspAttach", "LspDetach" }, {
    group = api.nvim_create_augroup("dovetail_folders_" .. channel, { clear = true }),
    callback = vim.schedule_wrap(function()
      pcall(vim.rpcnotify, channel, "folders")
    end),
  })
  return vim.NIL
end

-- A server is gone.
function M.forget(channel)
  M.listen(channel, nil)
  pcall(api.nvim_del_augroup_by_name, "dovetail_folders_" .. channel)
end

function M.is_watching()
  return group ~= nil
end

return M
