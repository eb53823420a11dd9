-- require("dovetail").setup{}: everything starts here.
local M = {}

local function at_exit()
  require("dovetail.process").at_exit()
end

function M.setup(options)
  if vim.fn.has("nvim-0.10") == 0 then
    vim.api.nvim_err_writeln("dovetail needs Neovim 0.10 or later")
    return
  end
  local config = require("dovetail.config")
  config.set(options or {})
  if not vim.g.loaded_dovetail then -- added to 'runtimepath' after plugins were sourced
    vim.cmd.runtime("plugin/dovetail.lua")
  end
  local group = vim.api.nvim_create_augroup("dovetail", { clear = true })
  vim.api.nvim_create_autocmd("VimLeavePre", { group = group, callback = at_exit })
  if M.status().running then
    M.restart() -- with the new settings
  elseif config.options.auto_start then
    M.start()
  end
end

function M.start()
  require("dovetail.process").start()
end

function M.stop()
  require("dovetail.process").stop()
end

function M.restart()
  require("dovetail.process").restart()
end

function M.status()
  return require("dovetail.process").status()
end

-- For a status line: "" while nobody is connected.
function M.statusline()
  local status = M.status()
  return status.clients > 0 and ("claude:%d"):format(status.clients) or ""
end

function M.mcp_config()
  return require("dovetail.process").mcp_config()
end

-- Mention a file, or lines of it (from 1), to the client.
function M.mention(path, first, last)
  local process = require("dovetail.process")
  path = vim.fs.normalize(vim.fn.fnamemodify(path or vim.api.nvim_buf_get_name(0), ":p"))
  path = #path > 1 and path:gsub("/$", "") or path
  local editor = require("dovetail.editor")
  local buf = editor.buffer_of(path)
  local private = require("dovetail.config").is_sensitive(path) or (buf and editor.is_private(buf))
  if path == "" or private then
    process.say("there is no file to mention here", "WarningMsg")
    return
  end
  local from = first and first - 1 or vim.NIL
  local to = (last or first) and (last or first) - 1 or vim.NIL
  if not process.notify("mention", path, from, to) then
    process.say("the server is not running", "WarningMsg")
  end
end

function M.accept()
  return require("dovetail.diff").accept()
end

function M.reject(reason)
  return require("dovetail.diff").reject(reason)
end

return M
