-- The commands. Modules are loaded when one is used.
if vim.g.loaded_dovetail then
  return
end
vim.g.loaded_dovetail = true

local function command(name, run, options)
  vim.api.nvim_create_user_command(name, run, options)
end

command("ClaudeCode", function(given)
  require("dovetail.terminal").toggle(given.fargs)
end, { nargs = "*", desc = "Show or hide Claude Code" })

command("ClaudeCodeStatus", function()
  local process = require("dovetail.process")
  local status = process.status()
  if status.running and status.port then
    process.say(("port %d, %d clients connected"):format(status.port, status.clients))
  else
    process.say("not running" .. (status.last_words and (": " .. status.last_words) or ""))
  end
end, { bar = true, desc = "Say whether the server runs, and for whom" })

command("ClaudeCodeStop", function()
  require("dovetail").stop()
end, { bar = true, desc = "Stop the server" })

command("ClaudeCodeRestart", function()
  require("dovetail").restart()
end, { bar = true, desc = "Start the server anew, on the same port" })

command("ClaudeAtMention", function(given)
  local path = given.args ~= "" and given.args or nil
  if given.range > 0 then
    require("dovetail").mention(path, given.line1, given.line2)
  else
    require("dovetail").mention(path)
  end
end, { nargs = "?", range = true, complete = "file", desc = "Mention a file or lines to Claude" })

command("ClaudeCodeLog", function()
  vim.cmd.split({ args = { vim.fn.fnameescape(require("dovetail.process").log_path()) } })
end, { bar = true, desc = "Show the log" })

command("ClaudeCodeAccept", function()
  require("dovetail").accept()
end, { bar = true, desc = "Accept the diff of this tab page" })

command("ClaudeCodeReject", function(given)
  require("dovetail").reject(given.args ~= "" and given.args or nil)
end, { nargs = "*", desc = "Reject the diff of this tab page, with a reason if you like" })
