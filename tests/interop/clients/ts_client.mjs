// What the TypeScript clients see: node ts_client.mjs '{"sdk": "v1", "mode": …, "command": …}'
const load = (path) => import(new URL(`../../../.peers/node/node_modules/${path}`, import.meta.url));

const sdks = {
  v1: ["@modelcontextprotocol/sdk/dist/esm/client/index.js", "@modelcontextprotocol/sdk/dist/esm/client/stdio.js"],
  v2: ["@modelcontextprotocol/client/dist/index.mjs", "@modelcontextprotocol/client/dist/stdio.mjs"],
};

async function outcome(ask) {
  try {
    return await ask();
  } catch (error) {
    return { error: { code: error.code, message: error.message } };
  }
}

async function each(items, ask) {
  const seen = [];
  for (const item of items) seen.push(await outcome(() => ask(item)));
  return seen;
}

async function visit(client, transport, plan) {
  return {
    revision: client.getNegotiatedProtocolVersion?.() ?? transport.revision,
    server: client.getServerVersion(),
    instructions: client.getInstructions(),
    capabilities: client.getServerCapabilities(),
    tools: (await client.listTools()).tools,
    resources: (await client.listResources()).resources,
    templates: (await client.listResourceTemplates()).resourceTemplates,
    prompts: (await client.listPrompts()).prompts,
    calls: await each(plan.calls, ([name, args]) => client.callTool({ name, arguments: args })),
    reads: await each(plan.reads, (uri) => client.readResource({ uri })),
    gets: await each(plan.gets, ([name, args]) => client.getPrompt({ name, arguments: args })),
    completions: await each(plan.completions, ([ref, name, value, given]) =>
      client.complete({ ref, argument: { name, value }, context: { arguments: given } }),
    ),
  };
}

const task = JSON.parse(process.argv[2]);
const [index, stdio] = sdks[task.sdk];
const { Client } = await load(index);
const { StdioClientTransport } = await load(stdio);

const [command, ...args] = task.command;
const transport = new StdioClientTransport({ command, args });
transport.setProtocolVersion = (version) => (transport.revision = version);
const options = task.mode ? { versionNegotiation: { mode: task.mode } } : {};
const client = new Client({ name: "ts-client", version: "1.0.0" }, options);
client.onerror = (error) => console.error("client error:", error.message);
await client.connect(transport);
const seen = await visit(client, transport, task.plan);
await client.close();
console.log(JSON.stringify(seen));
