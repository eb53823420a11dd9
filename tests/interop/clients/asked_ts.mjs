// The TypeScript clients, asked and told: node asked_ts.mjs '{"sdk": "v1", "mode": …, "plan": …}'
const load = (path) => import(new URL(`../../../.peers/node/node_modules/${path}`, import.meta.url));

const MODERN = "2026-07-28";
const LOG_LEVEL = "io.modelcontextprotocol/logLevel";
const RELATED = "io.modelcontextprotocol/related-task";
const TASKS = "io.modelcontextprotocol/tasks";
const PATIENCE = 30_000;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const task = JSON.parse(process.argv[2]);
const { plan, sdk, mode } = task;

// -- what differs between the two versions ---------------------------------------------------

async function version1() {
  const root = "@modelcontextprotocol/sdk/dist/esm";
  const { Client } = await load(`${root}/client/index.js`);
  const { StdioClientTransport } = await load(`${root}/client/stdio.js`);
  const { StreamableHTTPClientTransport } = await load(`${root}/client/streamableHttp.js`);
  const { InMemoryTaskStore } = await load(`${root}/experimental/tasks/stores/in-memory.js`);
  const types = await load(`${root}/types.js`);
  const schemas = {
    "elicitation/create": types.ElicitRequestSchema,
    "sampling/createMessage": types.CreateMessageRequestSchema,
    "roots/list": types.ListRootsRequestSchema,
    "notifications/message": types.LoggingMessageNotificationSchema,
    "notifications/tools/list_changed": types.ToolListChangedNotificationSchema,
    "notifications/resources/updated": types.ResourceUpdatedNotificationSchema,
    "notifications/elicitation/complete": types.ElicitationCompleteNotificationSchema,
    "notifications/tasks/status": types.TaskStatusNotificationSchema,
  };
  return {
    Client,
    StdioClientTransport,
    StreamableHTTPClientTransport,
    // The server may ask questions as tasks of this client.
    options: { taskStore: new InMemoryTaskStore() },
    capabilities: { tasks: { list: {}, cancel: {}, requests: { elicitation: { create: {} } } } },
    onRequest: (client, method, answer) => client.setRequestHandler(schemas[method], answer),
    onNotification: (client, method, hear) => client.setNotificationHandler(schemas[method], hear),
    call: (client, params, options) => client.callTool(params, undefined, options),
    revision: (client, transport) => transport.protocolVersion,
  };
}

async function version2() {
  const root = "@modelcontextprotocol/client/dist";
  const { Client, StreamableHTTPClientTransport } = await load(`${root}/index.mjs`);
  const { StdioClientTransport } = await load(`${root}/stdio.mjs`);
  const { z } = await load("zod/index.js");
  const anything = z.looseObject({});
  const own = new Set(["notifications/tasks"]); // not in the specification, so it needs a schema
  return {
    Client,
    StdioClientTransport,
    StreamableHTTPClientTransport,
    anything,
    options: { versionNegotiation: { mode } },
    capabilities: mode === "legacy" ? {} : { extensions: { [TASKS]: {} } },
    onRequest: (client, method, answer) => client.setRequestHandler(method, answer),
    onNotification: (client, method, hear) =>
      own.has(method)
        ? client.setNotificationHandler(method, { params: anything }, (params) => hear({ params }))
        : client.setNotificationHandler(method, hear),
    call: (client, params, options) => client.callTool(params, options),
    revision: (client) => client.getNegotiatedProtocolVersion(),
  };
}

const kit = await (sdk === "v1" ? version1() : version2());
const modern = typeof mode === "object" && mode?.pin === MODERN;

// -- answers as the plan says, and notes of what was asked and told ------------------------------

let heard = [];
const hear = (kind, what = {}) => heard.push({ kind, ...what });
const count = (kind) => heard.filter((one) => one.kind === kind).length;

async function until(wanted) {
  const end = Date.now() + PATIENCE;
  for (const [kind, number] of Object.entries(wanted)) {
    while (count(kind) < number) {
      if (Date.now() > end) return hear("nothing more", { wanted });
      await pause(10);
    }
  }
}

const times = {};

function chosen(message) {
  const answers = plan.elicit[message];
  times[message] = (times[message] ?? 0) + 1;
  return answers[Math.min(times[message], answers.length) - 1];
}

async function elicit(request, extra) {
  const { params } = request;
  const related = params._meta?.[RELATED]?.taskId ?? null;
  hear("elicit", { params, related });
  const answer = chosen(params.message);
  if (!params.task) return answer;
  const made = await extra.taskStore.createTask({ ttl: 60_000 });
  setTimeout(() => extra.taskStore.storeTaskResult(made.taskId, "completed", answer), 20);
  return { task: made };
}

function sample({ params }) {
  hear("sample", { params });
  const { content } = params.messages.at(-1);
  const block = Array.isArray(content) ? content.at(-1) : content;
  if (block.text === "reject") {
    throw Object.assign(new Error("User rejected sampling request"), { code: -1 });
  }
  if (block.type === "tool_result") return plan.sample.after;
  return plan.sample[params.tools ? "tool" : "text"];
}

function roots() {
  hear("roots");
  return { roots: plan.roots };
}

function listenToAll(client) {
  kit.onRequest(client, "elicitation/create", elicit);
  kit.onRequest(client, "sampling/createMessage", sample);
  kit.onRequest(client, "roots/list", roots);
  kit.onNotification(client, "notifications/tools/list_changed", () => hear("tools_changed"));
  kit.onNotification(client, "notifications/resources/updated", ({ params }) =>
    hear("updated", { uri: params.uri }),
  );
  kit.onNotification(client, "notifications/elicitation/complete", ({ params }) =>
    hear("complete", { id: params.elicitationId }),
  );
  const status = modern ? "notifications/tasks" : "notifications/tasks/status";
  kit.onNotification(client, status, ({ params }) => hear("task", params));
}

// -- the steps of the plan -----------------------------------------------------------------------

class Steps {
  constructor(client, transport) {
    this.client = client;
    this.transport = transport;
    kit.onNotification(client, "notifications/message", ({ params }) => hear("log", params));
  }

  async run(steps) {
    const seen = {};
    for (const step of steps) {
      heard = [];
      const result = await outcome(() => this[step.op](step.with ?? {}));
      await until(step.until ?? {});
      seen[step.name] = { result: result ?? null, heard };
    }
    return seen;
  }

  async call({ tool, arguments: given, level }) {
    const params = { name: tool, arguments: given };
    if (level && modern) params._meta = { [LOG_LEVEL]: level };
    else if (level) await this.client.setLoggingLevel(level);
    const onprogress = ({ progress, total = null, message = null }) =>
      hear("progress", { progress, total, message });
    return kit.call(this.client, params, { onprogress });
  }

  // The tool ends after its progress has been seen.
  async paced({ tool, arguments: given, progress }) {
    const running = this.call({ tool, arguments: given });
    await until({ progress });
    await this.call({ tool: "go_on", arguments: {} });
    return running;
  }

  read({ uri }) {
    return this.client.readResource({ uri });
  }

  get({ prompt, arguments: given }) {
    return this.client.getPrompt({ name: prompt, arguments: given });
  }

  async tools() {
    return (await this.client.listTools()).tools.map((tool) => tool.name);
  }

  roots_changed() {
    return this.client.sendRootsListChanged();
  }

  async listen({ uri }) {
    if (!modern) return this.client.subscribeResource({ uri });
    const filter = { toolsListChanged: true, resourceSubscriptions: [uri] };
    this.subscription = await this.client.listen(filter);
    return this.subscription.honoredFilter;
  }

  async unlisten({ uri }) {
    if (!modern) return this.client.unsubscribeResource({ uri });
    await this.subscription.close();
    return this.subscription.closed;
  }

  // -- tasks

  async task(step) {
    if (modern) return this.extensionTask(step);
    return sdk === "v1" ? this.streamedTask(step) : this.coreTask(step);
  }

  // Version 1 knows the tasks of 2025-11-25, as an experiment.
  async streamedTask({ tool, arguments: given }) {
    const statuses = [];
    let id;
    let result;
    const options = { task: { ttl: 60_000 }, onprogress: (p) => hear("progress", p) };
    const { tasks } = this.client.experimental;
    const params = { name: tool, arguments: given };
    for await (const message of tasks.callToolStream(params, undefined, options)) {
      if (message.type === "taskCreated") id = message.task.taskId;
      if (message.type === "taskStatus") statuses.push(message.task.status);
      if (message.type === "result") result = message.result;
      if (message.type === "error") result = { error: explained(message.error) };
    }
    const listed = (await tasks.listTasks()).tasks.some((one) => one.taskId === id);
    statuses.push((await tasks.getTask(id)).status);
    return { taskId: id, statuses, result, listed };
  }

  // Version 2 has removed them, but sends any request whose result it is given a schema for.
  ask(method, params) {
    return this.client.request({ method, params }, kit.anything);
  }

  async started(tool, given) {
    const params = { name: tool, arguments: given, task: { ttl: 60_000 } };
    return (await this.ask("tools/call", params)).task.taskId;
  }

  async coreTask({ tool, arguments: given }) {
    const taskId = await this.started(tool, given);
    const before = await this.ask("tasks/get", { taskId });
    const result = await outcome(() => this.ask("tasks/result", { taskId }));
    const after = await this.ask("tasks/get", { taskId });
    const listed = (await this.ask("tasks/list", {})).tasks.some((one) => one.taskId === taskId);
    return { taskId, statuses: [before.status, after.status], result, listed };
  }

  // It refuses a task as the result of a call, so its id is taken from the transport.
  async startedExtension(tool, given) {
    const { onmessage } = this.transport;
    let taskId;
    this.transport.onmessage = (message, extra) => {
      taskId ??= message.result?.taskId;
      onmessage(message, extra);
    };
    const refused = await outcome(() => this.client.callTool({ name: tool, arguments: given }));
    this.transport.onmessage = onmessage;
    return { taskId, refused };
  }

  async extensionTask({ tool, arguments: given, told = 0 }) {
    const { taskId, refused } = await this.startedExtension(tool, given);
    const subscription = await this.client.listen({ taskIds: [taskId] });
    const statuses = [];
    let found;
    let answered = false;
    do {
      found = await this.ask("tasks/get", { taskId });
      statuses.push(found.status);
      if (found.status === "input_required" && !answered) {
        answered = true;
        const inputResponses = {};
        for (const [key, request] of Object.entries(found.inputRequests)) {
          inputResponses[key] = await elicit(request);
        }
        await this.ask("tasks/update", { taskId, inputResponses });
      }
      await pause(20);
    } while (!["completed", "failed", "cancelled"].includes(found.status));
    await until({ task: told });
    await subscription.close();
    return { taskId, refused, statuses, result: found.result ?? found.error };
  }

  async task_cancelled({ tool, arguments: given }) {
    if (sdk === "v1") return this.streamCancelled(tool, given);
    const taskId = modern
      ? (await this.startedExtension(tool, given)).taskId
      : await this.started(tool, given);
    const cancelled = await outcome(() => this.ask("tasks/cancel", { taskId }));
    return { cancelled, status: (await this.ask("tasks/get", { taskId })).status };
  }

  async streamCancelled(tool, given) {
    const { tasks } = this.client.experimental;
    const options = { task: { ttl: 60_000 } };
    let cancelled;
    let last;
    for await (const message of tasks.callToolStream({ name: tool, arguments: given }, undefined, options)) {
      if (message.type === "taskCreated") cancelled = await tasks.cancelTask(message.task.taskId);
      last = message;
    }
    return { cancelled, status: cancelled.status, error: explained(last.error) };
  }
}

function explained(error) {
  const { code, message, data } = error;
  return data === undefined ? { code, message } : { code, message, data };
}

async function outcome(ask) {
  try {
    return await ask();
  } catch (error) {
    return { error: explained(error) };
  }
}

function open(number) {
  if (task.urls) return new kit.StreamableHTTPClientTransport(new URL(task.urls[number]));
  const [command, ...args] = task.command;
  const transport = new kit.StdioClientTransport({ command, args });
  transport.setProtocolVersion = (version) => (transport.protocolVersion = version);
  return transport;
}

async function visit(steps, able) {
  const transport = open(able ? 0 : 1);
  const capabilities = { elicitation: { form: {}, url: {} }, sampling: { tools: {} }, roots: {} };
  if (!modern) capabilities.roots.listChanged = true;
  Object.assign(capabilities, kit.capabilities);
  const options = { ...kit.options, capabilities: able ? capabilities : {} };
  if (!able) delete options.taskStore;
  const client = new kit.Client({ name: "ts-client", version: "1.0.0" }, options);
  client.onerror = (error) => console.error("client error:", error.message);
  if (able) listenToAll(client);
  const walk = new Steps(client, transport);
  await client.connect(transport);
  const seen = await walk.run(steps);
  const revision = kit.revision(client, transport);
  client.onerror = undefined; // over HTTP it reports the end of its own stream as an error
  await transport.terminateSession?.();
  await client.close();
  return { revision, seen };
}

const able = await visit(plan.steps, true);
const bare = await visit(plan.bare, false);
console.log(JSON.stringify({ revision: able.revision, steps: able.seen, bare: bare.seen }));
process.exit(0);
