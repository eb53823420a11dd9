-- Yes or no in a floating window. Neovim goes on meanwhile.
local api = vim.api
local M = {}

local open = {} -- number -> {win, buf, channel}

local function finish(number, yes)
  local question = open[number]
  if not question then
    return
  end
  open[number] = nil
  pcall(vim.rpcnotify, question.channel, "answer", number, yes)
  pcall(api.nvim_win_close, question.win, true)
  pcall(api.nvim_buf_delete, question.buf, { force = true })
end

function M.ask(channel, number, title, text)
  local buf = api.nvim_create_buf(false, true)
  local lines = vim.split(text, "\n", { plain = true })
  lines[#lines + 1] = ""
  lines[#lines + 1] = "y: yes, this once    n: no"
  api.nvim_buf_set_lines(buf, 0, -1, false, lines)
  vim.bo[buf].modifiable = false
  vim.bo[buf].bufhidden = "wipe"
  local width = math.min(vim.o.columns - 4, 100)
  local height = math.max(1, math.min(#lines, vim.o.lines - 6))
  local win = api.nvim_open_win(buf, true, {
    relative = "editor",
    row = math.max(0, math.floor((vim.o.lines - height) / 2) - 1),
    col = math.max(0, math.floor((vim.o.columns - width) / 2)),
    width = width,
    height = height,
    border = "rounded",
    title = " " .. title .. " ",
    style = "minimal",
  })
  open[number] = { win = win, buf = buf, channel = channel }
  local function map(keys, yes)
    for _, key in ipairs(keys) do
      vim.keymap.set("n", key, function()
        finish(number, yes)
      end, { buffer = buf, nowait = true })
    end
  end
  map({ "y", "Y" }, true)
  map({ "n", "N", "q", "<Esc>" }, false)
  api.nvim_create_autocmd("WinClosed", {
    pattern = tostring(win),
    once = true,
    callback = function()
      vim.schedule(function()
        finish(number, false)
      end)
    end,
  })
  return vim.NIL
end

function M.close(number)
  finish(number, false)
  return vim.NIL
end

-- The server that asked is gone.
function M.close_channel(channel)
  for number, question in pairs(vim.deepcopy(open)) do
    if question.channel == channel then
      finish(number, false)
    end
  end
end

local function shown(value)
  return type(value) == "string" and value or vim.inspect(value)
end

-- The code was shown to the user, who said yes.
function M.run_lua(code)
  local said = {}
  local chunk, problem = loadstring(code, "=executeCode")
  if not chunk then
    return nil, problem
  end
  local environment = setmetatable({
    print = function(...)
      said[#said + 1] = table.concat(vim.tbl_map(shown, { ... }), "\t")
    end,
  }, { __index = _G })
  setfenv(chunk, environment)
  local results = { pcall(chunk) }
  if not results[1] then
    return nil, tostring(results[2])
  end
  for index = 2, #results do
    said[#said + 1] = shown(results[index])
  end
  return table.concat(said, "\n")
end

return M
