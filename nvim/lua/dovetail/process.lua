-- The server process: started, watched, started again with the same port and token.
local config = require("dovetail.config")

local api, uv = vim.api, vim.uv
local M = {}

-- Crashes within a minute after which we give up: something is wrong that a restart won't mend.
local MAX_CRASHES = 5

local state = {
  job = nil,
  channel = nil,
  wanted = false, -- whether it should be running
  port = nil,
  http_port = nil,
  token = nil,
  http_token = nil,
  lock = nil,
  clients = 0,
  crashes = {},
  last_words = nil,
}

function M.log_path()
  return vim.fs.joinpath(vim.fn.stdpath("log"), "dovetail.log")
end

local MAX_LOG = 1024 * 1024 -- then the log starts anew; the one before is kept

local function write_log(text)
  local path = M.log_path()
  vim.fn.mkdir(vim.fs.dirname(path), "p")
  local size = (uv.fs_stat(path) or {}).size or 0
  if size > MAX_LOG then
    uv.fs_rename(path, path .. ".1")
  end
  local file = uv.fs_open(path, "a", 384) -- 0600
  if file then
    uv.fs_write(file, text)
    uv.fs_close(file)
  end
end

-- One line that never asks for Enter.
function M.say(text, level)
  write_log(os.date("%Y-%m-%d %H:%M:%S ") .. text .. "\n")
  vim.schedule(function()
    local line = ("dovetail: " .. text):gsub("%s+", " ")
    local room = math.max(10, vim.v.echospace)
    if vim.fn.strdisplaywidth(line) > room then
      line = vim.fn.strcharpart(line, 0, room - 1) .. "…"
    end
    api.nvim_echo({ { line, level } }, false, {})
  end)
end

local function fire(name, data)
  pcall(api.nvim_exec_autocmds, "User", { pattern = name, modeline = false, data = data })
end

local function random_token()
  return (uv.random(32):gsub(".", function(byte)
    return ("%02x"):format(byte:byte())
  end))
end

-- -- called by the server ----------------------------------------------------------------------

function M.hello(channel)
  state.channel = channel
  return {
    port = state.port or 0,
    token = state.token,
    http_port = state.http_port or 0,
    http_token = state.http_token,
  }
end

function M.started(info)
  state.port, state.lock, state.http_port = info.port, info.lock, info.http_port
  fire("ClaudeCodeServerStarted", { port = info.port })
  return vim.NIL
end

function M.set_clients(count)
  local before = state.clients
  state.clients = count
  if count > before then
    fire("ClaudeCodeClientConnected", { clients = count })
  elseif count < before then
    fire("ClaudeCodeClientDisconnected", { clients = count })
  end
  return vim.NIL
end

function M.mention_dropped()
  M.say("no client is connected, so nothing was mentioned", "WarningMsg")
  return vim.NIL
end

-- -- life ---------------------------------------------------------------------------------------

local function crashed_too_often()
  local now = uv.now()
  state.crashes[#state.crashes + 1] = now
  while state.crashes[1] and now - state.crashes[1] > 60000 do
    table.remove(state.crashes, 1)
  end
  return #state.crashes > MAX_CRASHES
end

local launch

local function on_exit(job, code) -- the channel of an RPC job has its number
  pcall(require("dovetail.watch").forget, job)
  pcall(require("dovetail.diff").close_channel, job)
  pcall(require("dovetail.confirm").close_channel, job)
  fire("ClaudeCodeServerStopped", { code = code })
  if job ~= state.job then
    return
  end
  state.job, state.channel, state.clients = nil, nil, 0
  if not state.wanted or vim.v.exiting ~= vim.NIL then
    return
  end
  if code == 2 or crashed_too_often() then -- 2: it has said why it will not run
    state.wanted = false
    M.say(state.last_words or ("the server ended with " .. code), "ErrorMsg")
    return
  end
  write_log(("the server ended with %d and is started again\n"):format(code))
  vim.defer_fn(launch, 50 * (2 ^ (#state.crashes - 1) - 1))
end

local function on_stderr(_, lines)
  local text = table.concat(lines, "\n")
  if text ~= "" then
    write_log(text)
    for line in text:gmatch("[^\n]+") do
      state.last_words = line:gsub("^dovetail: ", "")
    end
  end
end

launch = function()
  if not state.wanted or state.job then
    return
  end
  local command = vim.list_extend({}, config.options.cmd)
  local rest = { "serve", "neovim", "--editor-stdio", "--log-level", config.options.log_level }
  vim.list_extend(command, rest)
  if vim.fn.executable(command[1]) ~= 1 then
    state.wanted = false
    M.say(("cannot run %s: install dovetail[neovim], or set cmd"):format(command[1]), "ErrorMsg")
    return
  end
  local ok, job = pcall(vim.fn.jobstart, command, {
    rpc = true,
    on_exit = on_exit,
    on_stderr = on_stderr,
  })
  if not ok or job <= 0 then
    state.wanted = false
    M.say("the server cannot be started: " .. tostring(job), "ErrorMsg")
    return
  end
  state.job = job
end

function M.start()
  state.token = state.token or random_token()
  state.http_token = state.http_token or random_token()
  state.wanted, state.crashes, state.last_words = true, {}, nil
  launch()
end

-- Waits for its end, so that it can take its lock file with it.
function M.stop()
  state.wanted = false
  if state.job then
    local job = state.job
    vim.fn.jobstop(job)
    vim.fn.jobwait({ job }, 500)
  end
  if state.lock and state.lock ~= "" then
    uv.fs_unlink(state.lock)
    state.lock = nil
  end
end

function M.restart()
  M.stop()
  state.job = nil
  M.start()
end

function M.status()
  local known, pid = pcall(vim.fn.jobpid, state.job or -1)
  return {
    running = state.job ~= nil and state.channel ~= nil,
    port = state.port,
    http_port = state.http_port,
    clients = state.clients,
    lock = state.lock,
    pid = known and pid or nil,
    last_words = state.last_words,
  }
end

function M.notify(event, ...)
  if state.channel then
    return pcall(vim.rpcnotify, state.channel, event, ...)
  end
  return false
end

-- -- for Claude Code --------------------------------------------------------------------------

-- A file for `claude --mcp-config` that gives its model the tools for other agents.
function M.mcp_config()
  local server
  if state.http_port and state.http_port ~= 0 then
    server = {
      type = "http",
      url = ("http://127.0.0.1:%d/mcp"):format(state.http_port),
      headers = { Authorization = "Bearer " .. state.http_token },
    }
  else
    local o = config.options
    local arguments = vim.list_slice(o.cmd, 2)
    vim.list_extend(arguments, { "serve", "neovim" })
    vim.list_extend(arguments, o.write and { "--write" } or {})
    vim.list_extend(arguments, o.exec and { "--exec" } or {})
    server = { type = "stdio", command = o.cmd[1], args = arguments }
  end
  local path = vim.fs.joinpath(vim.fn.stdpath("run"), ("dovetail-%d.json"):format(vim.fn.getpid()))
  uv.fs_unlink(path)
  local file, problem = uv.fs_open(path, "wx", 384) -- 0600: it may hold a token
  if not file then
    return nil, problem
  end
  uv.fs_write(file, vim.json.encode({ mcpServers = { nvim = server } }))
  uv.fs_close(file)
  state.mcp_config = path
  return path
end

function M.environment()
  local function with_loopback(name)
    local rest = vim.env[name]
    return (rest and rest ~= "" and rest .. "," or "") .. "localhost,127.0.0.1,::1"
  end
  return {
    CLAUDE_CODE_SSE_PORT = tostring(state.port or ""),
    ENABLE_IDE_INTEGRATION = "true",
    FORCE_CODE_TERMINAL = "true",
    CLAUDE_CODE_IDE_SKIP_AUTO_INSTALL = "true",
    NO_PROXY = with_loopback("NO_PROXY"),
    no_proxy = with_loopback("no_proxy"),
  }
end

function M.at_exit()
  M.stop()
  if state.mcp_config then
    uv.fs_unlink(state.mcp_config)
  end
end

return M
