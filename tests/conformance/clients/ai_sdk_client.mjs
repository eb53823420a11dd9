// What the client of the AI SDK sees: node ai_sdk_client.mjs '{"url": …}' or '{"command": […]}'
const modules = new URL("../../../.peers/judges/node_modules/", import.meta.url);
const load = (path) => import(new URL(path, modules));

const { createMCPClient } = await load("@ai-sdk/mcp/dist/index.js");
const { Experimental_StdioMCPTransport: Stdio } = await load("@ai-sdk/mcp/dist/mcp-stdio/index.js");

const task = JSON.parse(process.argv[2]);
const stdio = () => new Stdio({ command: task.command[0], args: task.command.slice(1) });
const transport = task.url ? { type: "http", url: task.url } : stdio();
const client = await createMCPClient({ transport });
const tools = await client.tools();
const seen = {
  revision: client.initializeResult.protocolVersion,
  tools: Object.keys(tools).length,
  resources: (await client.listResources()).resources.length,
  templates: (await client.listResourceTemplates()).resourceTemplates.length,
  prompts: (await client.listPrompts()).prompts.length,
  text: await tools.greet.execute({ name: "ai" }, { messages: [], toolCallId: "1" }),
  error: await client.callTool({ name: "test_error_handling", arguments: {} }),
  read: await client.readResource({ uri: "test://template/7/data" }),
  prompt: await client.getPrompt({
    name: "test_prompt_with_arguments",
    arguments: { arg1: "a", arg2: "b" },
  }),
};
await client.close();
console.log(JSON.stringify(seen));
