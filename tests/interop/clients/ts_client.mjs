// What the TypeScript clients see: node ts_client.mjs '{"sdk": "v1", "mode": …, "command" or "url": …}'
const load = (path) => import(new URL(`../../../.peers/node/node_modules/${path}`, import.meta.url));

const v1 = "@modelcontextprotocol/sdk/dist/esm/client";
const v2 = "@modelcontextprotocol/client/dist";
const sdks = {
  v1: { client: `${v1}/index.js`, stdio: `${v1}/stdio.js`, http: `${v1}/streamableHttp.js` },
  v2: { client: `${v2}/index.mjs`, stdio: `${v2}/stdio.mjs`, http: `${v2}/index.mjs` },
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
    revision: client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion,
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
const sdk = sdks[task.sdk];
const { Client } = await load(sdk.client);

async function open() {
  if (task.url) {
    const { StreamableHTTPClientTransport } = await load(sdk.http);
    return new StreamableHTTPClientTransport(new URL(task.url));
  }
  const { StdioClientTransport } = await load(sdk.stdio);
  const [command, ...args] = task.command;
  const transport = new StdioClientTransport({ command, args });
  transport.setProtocolVersion = (version) => (transport.protocolVersion = version);
  return transport;
}

const transport = await open();
const options = task.mode ? { versionNegotiation: { mode: task.mode } } : {};
const client = new Client({ name: "ts-client", version: "1.0.0" }, options);
client.onerror = (error) => console.error("client error:", error.message);
await client.connect(transport);
const seen = await visit(client, transport, task.plan);
client.onerror = undefined; // over HTTP it reports the end of its own stream as an error
await transport.terminateSession?.();
await client.close();
console.log(JSON.stringify(seen));
