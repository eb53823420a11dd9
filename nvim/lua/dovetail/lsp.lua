-- Questions to language servers. They take their time, so answers come as events.
local buffers = require("dovetail.buffers")
local text = require("dovetail.text")

local api = vim.api
local M = {}

local modern = vim.fn.has("nvim-0.11") == 1

local function request(client, method, params, callback, buf)
  if modern then
    return client:request(method, params, callback, buf)
  end
  return client.request(method, params, callback, buf)
end

local function supports(client, method, buf)
  if modern then
    return client:supports_method(method, buf)
  end
  return client.supports_method(method, { bufnr = buf })
end

local function clients_for(method, buf)
  return vim.tbl_filter(function(client)
    return supports(client, method, buf)
  end, vim.lsp.get_clients({ bufnr = buf }))
end

-- A line and column (from 1, UTF-16) as this client counts them.
local function position(client, buf, line, column)
  local content = text.line(buf, line)
  local unit = text.units(content, text.byte_of(content, column), client.offset_encoding)
  return { line = line - 1, character = unit }
end

local function params_for(client, buf, a)
  local params = vim.deepcopy(a.params)
  if a.line then
    local here = position(client, buf, a.line, a.column)
    params.textDocument = { uri = vim.uri_from_bufnr(buf) }
    params.position = here
    if params.context and params.context.diagnostics then
      params.range = { start = here, ["end"] = position(client, buf, a.line, #text.line(buf, a.line) + 1) }
      params.position = nil
      params.context.diagnostics = vim.lsp.diagnostic
        and vim.lsp.diagnostic.from
        and vim.lsp.diagnostic.from(vim.diagnostic.get(buf, { lnum = a.line - 1 }))
        or {}
    end
  elseif a.place then
    params.textDocument = { uri = vim.uri_from_bufnr(buf) }
  end
  return params
end

-- Ask every server of the buffer (of any buffer without `place`); all answers in one event.
-- a: place, line, column, method, params, channel, id
function M.ask(a)
  local buf, problem
  if a.place then
    buf, problem = buffers.wanted(a.place)
    if not buf then
      return nil, problem
    end
    if a.line and (a.line < 1 or a.line > api.nvim_buf_line_count(buf)) then
      return nil, ("there is no line %d in %s"):format(a.line, a.place)
    end
  end
  local clients = clients_for(a.method, buf)
  if #clients == 0 then
    return nil, ("no language server here answers %s"):format(a.method)
  end
  local answers, left = {}, #clients
  for _, client in ipairs(clients) do
    request(client, a.method, params_for(client, buf, a), function(failure, result)
      answers[#answers + 1] = {
        client = client.id,
        error = failure and (failure.message or tostring(failure)) or nil,
        result = result == nil and vim.NIL or result,
      }
      left = left - 1
      if left == 0 then
        pcall(vim.rpcnotify, a.channel, "lsp", a.id, vim.json.encode(answers))
      end
    end, buf)
  end
  return { clients = #clients }
end

-- Files an edit names, whether it lists them as changes or as document changes.
local function files_of(edit)
  local files = {}
  for uri in pairs(edit.changes or {}) do
    files[#files + 1] = vim.uri_to_fname(uri)
  end
  for _, change in ipairs(edit.documentChanges or {}) do
    local uri = change.textDocument and change.textDocument.uri or change.newUri or change.uri
    files[#files + 1] = uri and vim.uri_to_fname(uri) or nil
  end
  table.sort(files)
  return files
end

function M.edited_files(edit)
  return files_of(edit)
end

-- Change the buffers as a server proposed; nothing is saved.
function M.apply(client_id, edit)
  local client = vim.lsp.get_client_by_id(client_id)
  if not client then
    return nil, "the language server is gone"
  end
  local ok, problem = pcall(vim.lsp.util.apply_workspace_edit, edit, client.offset_encoding)
  if not ok then
    return nil, tostring(problem)
  end
  return { files = files_of(edit) }
end

-- Some servers give the edit of an action only when asked once more.
function M.resolve(channel, id, client_id, action)
  local client = vim.lsp.get_client_by_id(client_id)
  if not client then
    return nil, "the language server is gone"
  end
  if not supports(client, "codeAction/resolve") then
    return nil, "the language server does not say what this action does"
  end
  request(client, "codeAction/resolve", action, function(failure, result)
    local answer = { client = client_id, result = result == nil and vim.NIL or result }
    answer.error = failure and (failure.message or tostring(failure)) or nil
    pcall(vim.rpcnotify, channel, "lsp", id, vim.json.encode({ answer }))
  end)
  return vim.NIL
end

function M.execute(client_id, command)
  local client = vim.lsp.get_client_by_id(client_id)
  if not client then
    return nil, "the language server is gone"
  end
  request(client, "workspace/executeCommand", {
    command = command.command,
    arguments = command.arguments,
  }, function() end)
  return vim.NIL
end

return M
