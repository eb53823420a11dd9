// A certified OpenID provider that is not ours. It registers clients, signs Ann in and says
// yes for her, binds tokens to resources and keys, and rotates refresh tokens.
import http from "node:http";

const modules = new URL("../../../../.peers/oidc/node_modules/", import.meta.url);
const { Provider } = await import(new URL("oidc-provider/lib/index.js", modules));

const credentials = { grant_types: ["client_credentials"], redirect_uris: [], response_types: [] };
const clients = [
  {
    client_id: "robot",
    token_endpoint_auth_method: "private_key_jwt",
    jwks: JSON.parse(process.env.ROBOT_KEYS),
    ...credentials,
  },
  {
    client_id: "keeper",
    client_secret: process.env.KEEPER_SECRET,
    token_endpoint_auth_method: "client_secret_basic",
    ...credentials,
  },
];

function configuration() {
  return {
    clients,
    scopes: ["offline_access", "read", "write", "use"],
    pkce: { required: () => true },
    rotateRefreshToken: true,
    findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    interactions: { url: (ctx, interaction) => `/yes/${interaction.uid}` },
    features: {
      devInteractions: { enabled: false },
      registration: { enabled: true },
      clientCredentials: { enabled: true },
      dPoP: { enabled: true },
      resourceIndicators: {
        enabled: true,
        useGrantedResource: () => true,
        getResourceServerInfo: (ctx, resource) => ({
          scope: "read write use",
          audience: resource,
          accessTokenFormat: "jwt",
          accessTokenTTL: 600,
        }),
      },
    },
  };
}

// What the user does: sign in, then agree to everything.
async function answer(provider, request, response) {
  const { prompt, params, session } = await provider.interactionDetails(request, response);
  if (prompt.name === "login") {
    const login = { login: { accountId: "ann" } };
    return provider.interactionFinished(request, response, login);
  }
  const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  grant.addOIDCScope(params.scope ?? "");
  grant.addResourceScope(params.resource, params.scope ?? "");
  const consent = { consent: { grantId: await grant.save() } };
  return provider.interactionFinished(request, response, consent);
}

const server = http.createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, configuration());
  const serve = provider.callback();
  server.on("request", (request, response) =>
    request.url.startsWith("/yes/")
      ? answer(provider, request, response)
      : serve(request, response),
  );
  console.log(issuer);
});
