-- Claude Code in a window of Neovim, connected to this editor.
local config = require("dovetail.config")
local process = require("dovetail.process")

local api = vim.api
local M = {}

local buf, job

local function window()
  if buf and api.nvim_buf_is_valid(buf) then
    for _, win in ipairs(api.nvim_tabpage_list_wins(0)) do
      if api.nvim_win_get_buf(win) == buf then
        return win
      end
    end
  end
end

local function open_window(shown)
  local o = config.options.claude
  local vertical = o.split == "right" or o.split == "left"
  local room = vertical and vim.o.columns or vim.o.lines
  local options = { split = o.split, win = -1 }
  options[vertical and "width" or "height"] = math.floor(room * o.size)
  return api.nvim_open_win(shown, true, options)
end

local function run(arguments)
  local command = vim.list_extend({}, config.options.claude.cmd)
  local path = process.mcp_config()
  if path then
    vim.list_extend(command, { "--mcp-config", path })
  end
  vim.list_extend(command, arguments)
  local options = {
    env = process.environment(),
    on_exit = function()
      job = nil
      if buf and api.nvim_buf_is_valid(buf) then
        api.nvim_buf_delete(buf, { force = true })
      end
      buf = nil
    end,
  }
  if vim.fn.has("nvim-0.11") == 1 then
    options.term = true
    return vim.fn.jobstart(command, options)
  end
  return vim.fn.termopen(command, options)
end

function M.toggle(arguments)
  local win = window()
  if win then
    api.nvim_win_close(win, true)
    return
  end
  if buf and api.nvim_buf_is_valid(buf) then
    open_window(buf)
    return
  end
  local program = config.options.claude.cmd[1]
  if vim.fn.executable(program) ~= 1 then
    process.say(("cannot run %s: set claude.cmd"):format(program), "ErrorMsg")
    return
  end
  if not process.status().running then
    process.start()
    vim.wait(2000, function()
      return process.status().port ~= nil
    end, 10)
  end
  buf = api.nvim_create_buf(false, true)
  open_window(buf)
  job = run(arguments)
end

-- Put words into Claude's prompt; the user sends them.
function M.type(text)
  if job then
    vim.fn.chansend(job, text)
  end
end

return M
