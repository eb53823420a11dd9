local M = {}

local function check_server(health, process, config)
  local command = config.options.cmd[1]
  if vim.fn.executable(command) ~= 1 then
    health.error(("%s cannot be run"):format(command), { "pip install 'dovetail[neovim]'", "or set cmd in setup{}" })
    return
  end
  local arguments = vim.list_extend(vim.list_extend({}, config.options.cmd), { "--version" })
  local result = vim.system(arguments, { text = true }):wait(5000)
  local version = vim.trim(result.stdout or "")
  if result.code ~= 0 then
    health.error(("%s --version failed: %s"):format(command, vim.trim(result.stderr or "")))
  elseif version ~= "dovetail " .. config.version then
    health.warn(("%s is installed, the plugin is %s"):format(version, config.version), { "update the older one" })
  else
    health.ok(version)
  end
  local status = process.status()
  if status.running and status.port then
    health.ok(("serving on port %d, %d clients"):format(status.port, status.clients))
  else
    health.warn("the server is not running", { status.last_words or 'require("dovetail").setup{} starts it' })
  end
end

local function check_lock(health, process)
  local lock = process.status().lock
  if not lock or lock == "" then
    health.warn("there is no lock file, so Claude Code will not find this editor", { ":ClaudeCodeLog says why" })
    return
  end
  local found = vim.uv.fs_stat(lock)
  if not found then
    health.error(("the lock file %s is gone"):format(lock), { ":ClaudeCodeRestart" })
  elseif found.mode % 64 ~= 0 then
    health.error(("others can read the lock file %s"):format(lock), { "chmod 600 " .. lock })
  else
    health.ok("lock file " .. lock)
  end
end

function M.check()
  local health, config = vim.health, require("dovetail.config")
  local process = require("dovetail.process")
  health.start("dovetail")
  if vim.fn.has("nvim-0.10") == 1 then
    health.ok("Neovim " .. tostring(vim.version()))
  else
    health.error("Neovim 0.10 or later is needed")
  end
  check_server(health, process, config)
  check_lock(health, process)
  local claude = config.options.claude.cmd[1]
  if vim.fn.executable(claude) == 1 then
    health.ok(claude .. " can be run")
  else
    health.info(claude .. " cannot be run from here; :ClaudeCode needs it")
  end
end

return M
