// MCPJam's own checks: node mcpjam_judge.mjs '{"url": …}' judges a server,
// '{"url": …, "oauth": {"protocolVersion": …, …}}' the way to a token for it.
const modules = new URL("../../../.peers/judges/node_modules/", import.meta.url);
const sdk = await import(new URL("@mcpjam/sdk/dist/index.js", modules));

const task = JSON.parse(process.argv[2]);
const test = task.oauth
  ? new sdk.OAuthConformanceTest({ serverUrl: task.url, ...task.oauth })
  : new sdk.MCPConformanceTest({ serverUrl: task.url });
process.stdout.write(JSON.stringify(await test.run()), () => process.exit(0));
