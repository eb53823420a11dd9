-- Settings: the defaults, and what setup() was given.
local M = {}

M.version = "0.1.0"

M.defaults = {
  cmd = { "dovetail" }, -- how the server is started; "serve neovim --editor-stdio" is added
  auto_start = true, -- start the server in setup()
  http = false, -- open Streamable HTTP for other agents, on loopback with a bearer token
  write = false, -- let other agents change buffers and save files
  exec = false, -- let other agents run Ex commands
  execute_code = false, -- offer executeCode; every call is confirmed by you
  outside = false, -- let tools open and save files outside the workspace folders
  log_events = false, -- send log_event notifications
  single_client = false, -- a new client closes the one before it
  folders = {}, -- more workspace folders
  tools = {}, -- tools of your own for other agents
  throttle_ms = 20, -- at most one selection per so many milliseconds
  diff = {
    style = "side", -- "side" by side, or "inline"
    write_on_accept = false, -- Claude Code writes the file itself
    keys = {
      accept = { "<CR>", "ga" },
      reject = { "q", "gx" },
      accept_hunk = { "gA" },
      reject_hunk = { "gX" },
      reject_with_reason = { "gR" },
    },
  },
  claude = { cmd = { "claude" }, split = "right", size = 0.4 },
  log_level = "warning",
  -- Buffers whose text never leaves the editor: globs of a name or a whole path. A buffer
  -- with b:dovetail_ignore set is one of them too.
  sensitive = {
    ".env", ".env.*", "*.pem", "*.key", "*.p12", "*.pfx", "*.gpg", "*.asc", "*.kdbx",
    "id_rsa", "id_ecdsa", "id_ed25519", ".netrc", ".npmrc", ".pypirc", "credentials",
  },
}

M.options = vim.deepcopy(M.defaults)

local patterns, verdicts, count

local function compile()
  patterns, verdicts, count = {}, {}, 0
  for _, glob in ipairs(M.options.sensitive) do
    patterns[#patterns + 1] = vim.regex("\\C" .. vim.fn.glob2regpat(glob))
  end
end

local function check_keys(given, known, where)
  for key, value in pairs(given) do
    if known[key] == nil then
      error(("dovetail: unknown setting %s%s"):format(where, key), 0)
    end
    if key ~= "cmd" and type(known[key]) ~= type(value) then
      local text = "dovetail: setting %s%s must be a %s, not a %s"
      error(text:format(where, key, type(known[key]), type(value)), 0)
    end
    if type(known[key]) == "table" and next(known[key]) and not vim.islist(known[key]) then
      check_keys(value, known[key], where .. key .. ".")
    end
  end
end

function M.set(given)
  check_keys(given, M.defaults, "")
  M.options = vim.tbl_deep_extend("force", M.defaults, given)
  for _, owner in ipairs({ M.options, M.options.claude }) do
    if type(owner.cmd) == "string" then
      owner.cmd = { owner.cmd }
    end
  end
  compile()
end

-- Whether a path is one of those whose text stays here.
function M.is_sensitive(path)
  if not patterns then
    compile()
  end
  local verdict = verdicts[path]
  if verdict == nil then
    verdict = false
    local name = vim.fs.basename(path)
    for _, pattern in ipairs(patterns) do
      if pattern:match_str(name) or pattern:match_str(path) then
        verdict = true
        break
      end
    end
    if count > 5000 then
      verdicts, count = {}, 0
    end
    verdicts[path], count = verdict, count + 1
  end
  return verdict
end

return M
