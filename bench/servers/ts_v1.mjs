// `add` on the TypeScript SDK, version 1.
const load = (path) => import(new URL(`../../.peers/node/node_modules/${path}`, import.meta.url));

const { McpServer } = await load("@modelcontextprotocol/sdk/dist/esm/server/mcp.js");
const { StdioServerTransport } = await load("@modelcontextprotocol/sdk/dist/esm/server/stdio.js");
const { z } = await load("zod/index.js");

const server = new McpServer({ name: "bench", version: "1.0.0" });

server.registerTool(
  "add",
  {
    description: "Add two numbers.",
    inputSchema: { a: z.number().int(), b: z.number().int() },
    outputSchema: { result: z.number().int() },
  },
  async ({ a, b }) => ({
    content: [{ type: "text", text: String(a + b) }],
    structuredContent: { result: a + b },
  }),
);

await server.connect(new StdioServerTransport());
