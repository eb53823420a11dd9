"""The protocol's rules: every line of digest §13."""

TABLE = """\
= digest §13.1
X1 | A-E | both | engine | All we put on the wire is JSON-RPC 2.0.
X2 | A-E | both | engine | The id of a request is text or a whole number; null is no id.
X3 | A-D | both | engine | Within one session our requests all have different ids.
X4 | E | both | engine | A new request never takes the id of one of ours that is still open.
X5 | A-E | both | engine | An answer repeats the id it was asked under, value and JSON type alike;
    only an error for an unreadable id goes without.
X6 | A-C | both | engine | An answer holds a result or an error, never both and never neither.
X7 | DE | both | engine | A success holds `result`; a failure holds `error` with a code and a
    message.
X8 | A-E | both | engine | The code of an error is an integer.
X9 | A-E | both | engine | What we send as a notification has no id member.
X10 | B-E | both | engine | A notification is met with silence, also when it is unknown or wrong.
X11 | B | both | engine | An array of messages is taken apart and answered.
X12 | B-E | both | engine | Bytes on the wire are UTF-8.
X13 | A-E | both | engine | Base protocol and lifecycle are there up to 2025-11-25; base protocol,
    per-request versions and message patterns from 2026-07-28.
X14 | CD | both | engine | After the handshake only the agreed revision and the declared
    capabilities are used.
X15 | A-E | both | engine | One message is one line: no raw newline inside.
X16 | A-E | both | engine | A transport of our own, such as the in-memory pair, carries the same
    messages, lifecycle and request metadata as stdio.
X17 | E | both | engine | Every transport brings requests and notifications to the server, and only
    answers and notifications back.
X18 | A-D | both | engine | We cancel only what we asked ourselves and what is still open.
X19 | A-E | both | engine | A cancellation that crosses the answer, or names nothing, does no harm.
X20 | A-D | both | engine | `ping` gets an empty result at once, whatever else is running.
X21 | A-E | both | progress | A progress token is text or a whole number, different for each open
    request.
X22 | A-E | both | progress | The progress value of one token only grows.
X23 | A-E | both | progress | Progress is sent for open requests alone, never after their answer.
X24 | D | both | tasks | A task goes on using the token of its request until it has ended.
X25 | D | both | tasks | A task is stopped by `tasks/cancel`, not by the cancelled notification.
X26 | C-E | both | engine | `_meta` keys we write keep the key grammar; keys we do not know are left
    alone.
X27 | E | both | client | Trace members of `_meta` have the W3C formats. // the server only passes
    them on; the client writes them
X28 | DE | both | engine | A schema without `$schema` is read as 2020-12, one with it by the dialect
    it names; a dialect we lack is reported.
X29 | E | both | engine | A `$ref` to the network is not fetched.
X30 | E | both | engine | No code of ours lies in -32000…-32019, and one that arrives from there,
    but -32002, means nothing special.
X31 | E | both | engine | From -32020…-32099 only the three codes of the revision are sent, each for
    its own cause.
X32 | E | both | engine | -32002 and -32042 are not sent in 2026-07-28.
X33 | E | both | engine | `resultType` is one of the core values, or one that an extension known to
    both sides adds.
X34 | E | both | tasks | The name of an extension has a prefix and keeps the `_meta` key grammar.
X35 | E | both | tasks | An extension that only one side knows is not used: core behaviour, or an
    error that says why.
X36 | A-E | both | host | Sensitive data in sampling is handled with care. // only the application
    knows what is sensitive
X37 | A-E | both | engine | A completion request is checked before a completer sees it. // rate and
    access are the server author's
X38 | A-E | both | engine | Prompt arguments are checked before the prompt runs, and its messages
    before they leave.
X39 | DE | both | ask | A user message with tool results in sampling has nothing else in it.
X40 | DE | both | ask | Each tool use in sampling gets its own result in the very next user message.
X41 | E | both | http | Header names are compared without regard to case.
X42 | B-E | both | auth | Tokens are stored safely and travel over HTTPS or loopback.
X43 | B-E | both | websocket | A transport that is neither stdio nor HTTP authenticates in the way
    its own protocol recommends.
X44 | E | both | client | Polling is spread by jitter and slows down on failure.
X45 | E | both | client | A privately cached answer stays within its authorization.
= digest §13.2, lifecycle and discovery
S1 | A-D | server | engine | `initialize` is answered with revision, capabilities and server info.
S2 | A-D | server | engine | An offered revision we serve is the one answered; else we name one we
    do.
S3 | E | server | engine | `server/discover` works without anything before it.
S4 | E | server | engine | A revision we do not serve gets -32022 with what we serve and what was
    asked.
S5 | E | server | engine | A request without one of the required `_meta` keys gets -32602 naming it.
S6 | E | server | engine | What a client did not declare is not used; if it is needed, -32021 says
    what, in the shape of a capabilities object.
S7 | E | server | engine | Revision, capabilities and identity come from the request at hand, never
    from an earlier one or from the pipe.
S8 | E | server | lisp | What outlives a call has a name that the client passes each time. // the
    engine keeps nothing between calls; products with state mint the names
S9 | E | server | engine | The server asks nothing: no request ever leaves it.
S10 | E | server | engine | Each result says its `resultType`.
S11 | E | server | ask | Input from the client is asked for in an `input_required` result.
S12 | A-E | server | engine | What the server offers it declares, and what it did not declare it
    does not serve.
S13 | E | server | engine | A declared list can be listed, even when it is empty.
S14 | E | server | engine | A list is the same on every connection and whatever was called before.
= digest §13.2, asking for input
S15 | E | server | ask | Only tool calls, resource reads and prompt gets may ask for input.
S16 | E | server | ask | Such a result has questions, state, or both.
S17 | E | server | ask | The questions are elicitation, sampling or roots, each under its own key.
S18 | E | server | ask | Nothing is asked that the request did not declare, mode by mode.
S19 | E | server | ask | State that comes back is sealed and checked; a broken seal is refused.
S20 | E | server | host | State for one use is remembered and refused the second time. // only
    the tool's author knows what must not happen twice; our states are bound and expire
S21 | E | server | ask | No resource is held in the hope of an answer.
= digest §13.2, notifications and cancellation
S22 | E | server | subscriptions | The acknowledgement is the first thing a listener hears.
S23 | E | server | subscriptions | A listener hears only of the kinds it asked for.
S24 | E | server | subscriptions | Every notification to a listener carries the id of its
    subscription.
S25 | E | server | subscriptions | So does the result that ends it.
S26 | E | server | logging | Log messages go to requests that set a level, on their own stream.
S27 | A-E | server | logging | Log messages hold no secrets, no personal data and no internals. //
    nothing of ours goes to the client's log; what an author writes there is the author's
S28 | E | server | http | A client that hangs up has cancelled its request.
S29 | E | server | engine | After a cancellation nothing more is sent for that request.
S30 | E | server | subscriptions | The server's own cancelled notification may name a listen request
    and nothing else. // the pages disagree; we end a listen by its result
S31 | E | server | http | A request's stream carries what is about that request.
= digest §13.2, tools, resources, prompts
S32 | A-E | server | engine | A tool never sees arguments that do not fit its schema. // access,
    rate and the content of results are the server author's
S33 | C-E | server | engine | Structured results fit the output schema that was listed.
S34 | DE | server | engine | Every input schema is a JSON Schema with an object at its root.
S35 | E | server | http | `x-mcp-header` marks are checked at registration: token, unique, plain
    types, reachable through properties.
S36 | A-E | server | engine | URIs are checked before a handler sees them; bytes are sent as base64.
S37 | E | server | engine | A path from a `file://` URI cannot leave its root.
S38 | A-E | server | engine | A resource that is not there is an error (-32602, before 2026-07-28
    -32002), not an empty list.
S39 | C-E | server | engine | A URI that is not RFC 3986 cannot be registered.
S40 | A-E | server | engine | Images and audio are base64 with a MIME type; embedded resources have
    a URI and text or a blob.
S41 | E | server | engine | `ttlMs` and `cacheScope` are on all six kinds of cacheable result.
S42 | E | server | engine | All pages of one list have the same `cacheScope`.
S43 | E | server | engine | Unless the author says otherwise, results are private and already stale.
S44 | A-E | server | engine | A completion returns no more than 100 values.
= digest §13.2, transports
S45 | A-E | server | engine | stdout carries MCP messages and nothing else.
S46 | A | server | http | The old two-endpoint HTTP transport. // left out on purpose; what is shown
    is that it is refused
S47 | B-E | server | http | One path serves it all: POST, and GET up to 2025-11-25.
S48 | B-E | server | http | The origin of every connection is checked; a foreign one gets 403.
S49 | B-E | server | http | A notification we take is 202 without a body.
S50 | B-E | server | http | A request is answered by JSON or by an event stream.
S51 | B-D | server | http | GET opens an event stream or is 405.
S52 | B-D | server | http | Answers do not appear on a GET stream that resumes nothing.
S53 | B-D | server | http | Each message travels on one stream only.
S54 | B-D | server | http | No two events of a session share an id.
S55 | B-D | server | http | Resuming a stream replays that stream alone.
S56 | B-D | server | http | A session id is visible ASCII.
S57 | B-D | server | http | A session that has ended is 404.
S58 | CD | server | http | A version header we cannot read or serve is 400.
S59 | E | server | http | A version header that contradicts the body is 400 with -32020.
S60 | E | server | http | An unknown method is 404 with -32601.
S61 | E | server | http | No version header: refused, or taken for the oldest HTTP revision.
S62 | E | server | http | A standard header that is missing, malformed or different from the body,
    once decoded, is 400 with -32020.
S63 | E | server | http | Mirrored argument headers are compared with the arguments, and wanted only
    where an argument has a value.
S64 | E | server | host | Intermediaries pass on headers they do not know. // we are no proxy
= digest §13.2, authorization
S65 | B-E | server | bearer | No token or a bad one is 401, too little scope 403, nonsense 400.
S66 | B | server | host | A server that is its own authorization server keeps the OAuth rules. // we
    are a resource server only
S67 | C-E | server | bearer | Protected resource metadata names an authorization server.
S68 | C-E | server | bearer | A 401 shows the way to that metadata.
S69 | B-E | server | bearer | The token is judged before the request is.
S70 | C-E | server | bearer | Only tokens made for this server count, and none is passed on.
S71 | E | server | bearer | A wider scope includes the narrower ones it stands for.
S72 | C-E | server | host | A proxy with one upstream client id asks each user for each client. //
    we are no proxy
S73 | C-E | server | host | The consent page of such a proxy resists forgery and framing. // we are
    no proxy
S74 | C-E | server | http | A session id or a state handle proves nobody's identity.
= digest §13.2, elicitation and sampling
S75 | C-E | server | ask | Secrets are never asked for in a form.
S76 | DE | server | ask | Only modes the client declared are used.
S77 | DE | server | ask | A question has its message, and its schema or its URL.
S78 | D | server | ask | The completion notice goes to the client that was asked, with its id.
S79 | D | server | ask | -32042 lists the URL questions that block a request, and serves no other
    end.
S80 | DE | server | ask | What is kept about a question belongs to a user, not to a session id.
S81 | DE | server | ask | A question is tied to the identity we verified, not to a claimed one.
S82 | DE | server | host | The URL shown to a user holds no private data and logs nobody in. // the
    server author writes the URL
S83 | DE | server | host | A third party's credentials never pass through the client. // the server
    author runs that flow
S84 | DE | server | host | The person at the URL is the one who was asked. // the page behind the
    URL is the server author's
S85 | DE | server | ask | Declined, cancelled and unanswered are all handled.
S86 | DE | server | ask | Sampling has tools only where the client declared that.
S87 | DE | server | ask | After a tool use the next message brings all its results and no more.
= digest §13.2, tasks of 2025-11-25
S88 | D | server | tasks | Tasks are declared, or `task` is ignored.
S89 | D | server | tasks | A task has an id of ours, starts working, moves only along legal steps,
    and ends once.
S90 | D | server | tasks | Accepting a task returns it with its times and its actual lifetime.
S91 | D | server | tasks | `tasks/result` waits for the end and returns what the call would have.
S92 | D | server | tasks | Messages about a task name it in `_meta`.
S93 | D | server | tasks | A tool that needs a task is -32601 without one; a wrong id, cursor or
    cancel is -32602.
S94 | D | server | tasks | A cancelled task is so before the answer leaves, and for good.
S95 | D | server | tasks | The list reaches every task that can be got.
S96 | D | server | tasks | A task is visible to its owner only; without owners its id is
    unguessable.
= digest §13.2, the tasks extension
S97 | E | server | tasks | No task for a request that did not declare them; -32021 if there is no
    other way.
S98 | E | server | tasks | `task` is the type of the creating result alone.
S99 | E | server | tasks | A task can be read before its handle is out.
S100 | E | server | tasks | Reading a task gives the shape of its status; failed means a JSON-RPC
    error.
S101 | E | server | tasks | A question's key is used once in the life of a task.
S102 | E | server | tasks | Update and cancel are acknowledged; unknown ids are -32602, undeclared
    use -32021.
S103 | E | server | tasks | The old capability, method and parameter have no effect in the new form.
= digest §13.3, lifecycle and envelope
C1 | A-D | client | client | The first thing a client does is `initialize`.
C2 | A-D | client | client | It says `notifications/initialized` once that has worked.
C3 | A-D | client | client | `initialize` is neither cancelled nor sent in a batch.
C4 | A-D | client | client | A client that cannot speak the answered revision leaves.
C5 | E | client | client | Every request carries revision and capabilities.
C6 | A-E | client | client | Capabilities are declared at the handshake, or on each request they are
    meant for.
C7 | E | client | client | No `resultType` means complete; one we do not know makes the answer
    invalid.
C8 | E | client | client | Falling back to the handshake does not hang on one error code.
C9 | E | client | client | A client sends no answers.
C10 | E | client | client | All questions are answered before the request is repeated.
C11 | E | client | client | State is returned exactly as it came, or not at all.
C12 | E | client | client | The repeated request has an id of its own.
C13 | E | client | client | Answers and state serve that one repetition.
C14 | E | client | client | On stdio a client cancels by notification, and only its own open
    requests.
C15 | E | client | client | When a stream breaks, its request is sent anew under a new id.
C16 | E | client | client | Events on stdio are told apart by subscription, and listening is resumed
    after a reconnect.
C17 | E | client | client | A cached answer serves the same question, the same user, and never one
    that carried answers.
C18 | A-E | client | client | Cursors are opaque, belong to their session, and may be empty.
= digest §13.3, HTTP and stdio
C19 | A | client | client | Posting to the endpoint of the old HTTP transport. // left out on
    purpose
C20 | B-E | client | client | Each message is a POST of its own.
C21 | B-E | client | client | JSON and event streams are both accepted.
C22 | B-D | client | client | A session id is sent along, and a lost session begun again.
C23 | C-E | client | client | The version header is sent and agrees with the body.
C24 | D | client | client | The server's wish to wait is honoured before reconnecting.
C25 | E | client | client | Method and name are repeated in headers.
C26 | E | client | client | Marked arguments are mirrored in headers, encoded as prescribed.
C27 | E | client | client | A tool with an invalid mark is dropped on HTTP.
C28 | A-E | client | client | Only messages are written to the server's stdin.
= digest §13.3, trust and user interface
C29 | B-E | client | host | Tool annotations of a stranger are not believed. // the application
    decides whom it trusts
C30 | DE | client | host | Icons are fetched and drawn with care. // we draw nothing
C31 | A-D | client | client | A change of roots is announced if that was promised.
C32 | A-E | client | client | Roots are file URIs that the user allowed.
C33 | A-E | client | host | Model hints are tried in order, token limits kept. // the application
    owns the model
C34 | DE | client | client | Sampling with tools is an error where it was not declared.
C35 | DE | client | client | A question without mode is a form; decline and cancel are possible. //
    what the user sees is the application's
C36 | DE | client | host | A URL is shown in full and opened only with consent. // the application
    opens URLs
C37 | D | client | client | A mode we lack is -32602; notices about unknown ids are ignored.
C38 | D | client | client | A task is asked for where server and tool allow it, and always where the
    tool demands it. // tasks of the server are built; this comes with the client
C39 | E | client | client | A call may return its result or a task; either is handled. // the
    same
C40 | A-E | client | host | The user agrees before data is shown, tools run or models asked. // the
    application has the user
C41 | C-E | client | host | The command of a local server is shown in full and approved. // the
    application installs servers
C42 | C-E | client | auth | Authorization URLs are web URLs and never pass through a shell.
= digest §13.3, authorization
C43 | B-E | client | auth | The token is in its header on each request, never in the URL.
C44 | B | client | auth | In 2025-03-26 metadata is looked for at the origin, then the default
    paths.
C45 | C-E | client | auth | A 401 and the metadata behind it lead to the authorization server.
C46 | C-E | client | auth | Its own metadata is looked for in the prescribed places, in order.
C47 | C-E | client | auth | The server meant is named in each authorization and token request.
C48 | C-E | client | auth | A server gets tokens of its own authorization server only.
C49 | C-E | client | auth | PKCE always, S256 where possible, nothing where it is not announced.
C50 | C-E | client | auth | Redirect URIs are the registered ones.
C51 | DE | client | auth | The scopes of a challenge decide.
C52 | DE | client | auth | A client metadata document lives at its own client id and names the
    client.
C53 | E | client | auth | A client id is there before the flow begins.
C54 | E | client | auth | Metadata of another issuer is refused.
C55 | E | client | auth | The issuer is noted before the redirect and compared byte by byte after
    it.
C56 | E | client | auth | Credentials belong to one issuer and are not carried to another.
C57 | E | client | auth | Dynamic registration states the application type.
C58 | E | client | auth | Refresh tokens are kept secret and not taken for granted.
= digest §13.4
AS1 | C-E | both | host | OAuth 2.1 for both kinds of client. // duty of the authorization server
AS2 | C-E | both | host | Discoverable metadata with PKCE methods. // duty of the authorization
    server
AS3 | C-E | both | host | Exact redirects, HTTPS, rotating refresh tokens. // duty of the
    authorization server
AS4 | DE | both | host | Client metadata documents are checked. // duty of the authorization server
AS5 | E | both | host | Sending the issuer is announced. // duty of the authorization server
= digest §13.5, servers
SH-server-info | E | server | engine | Each result carries the server's name in `_meta`.
SH-tool-order | E | server | engine | Tools are listed in the same order every time.
SH-stop-work | A-E | server | engine | A cancelled handler is stopped, not left running.
SH-bad-cursor | A-E | server | engine | A cursor we did not make is -32602.
SH-text-block | C-E | server | engine | Structured content is repeated as a text block.
SH-name-versions | E | server | engine | A server without handshake revisions names what it speaks
    when it refuses `initialize`.
SH-stdin-eof | A-E | server | engine | The end of stdin ends the server.
SH-listen-end | E | server | subscriptions | A listen that the server ends gets its result first.
SH-sse | E | server | http | Event streams are unbuffered and kept alive by comments.
SH-no-sessions | E | server | http | GET and DELETE are 405, session headers are ignored.
SH-local-bind | B-E | server | http | A local server listens on the loopback address only.
SH-integer-headers | E | server | http | Integers in headers are compared as numbers.
SH-log-level | A-E | server | logging | A log level that does not exist is -32602.
SH-scopes | E | server | bearer | One challenge names all scopes needed, without offline access.
SH-ask-again | E | server | ask | Missing or unfit answers are asked for again.
= digest §13.5, clients
SH-client-info | E | client | client | Each request says who asks.
SH-probe | E | client | client | A client finds out the era by `server/discover` and remembers it.
SH-retry-version | E | client | client | Refused for its revision, a client picks one of those
    offered.
SH-late-answer | A-E | client | engine | An answer nobody waits for any more is dropped.
SH-timeouts | A-E | client | client | Every request has a deadline, is cancelled then, and has a
    hard cap.
SH-check-output | C-E | client | client | Structured results are checked against the listed schema.
SH-old-not-found | E | client | client | -32002 of an old server is understood.
SH-ttl | E | client | client | A missing or negative lifetime is none.
SH-restart | E | client | client | A server process that died is started again.
SH-refresh-headers | E | client | client | After a header mismatch the tools are listed anew.
SH-acknowledged | E | client | client | What was acknowledged is compared with what was asked.
SH-tool-errors | A-E | client | host | Tool errors are shown to the model. // the application owns
    the model
SH-same-names | A-E | client | host | Tools of the same name from two servers are told apart. // the
    application joins servers
SH-step-up | E | client | auth | More scopes are added to the old ones, a limited number of times.
= digest §13.5, both
SH-identity | E | both | engine | Behaviour does not depend on the peer's name, nor on its being
    given.
SH-schema-bounds | E | both | client | Schemas of a peer are bounded in depth and size. // the
    server reads only its author's schemas
SH-cancel-reason | A-E | both | engine | The reason of a cancellation reaches the log.
SH-rate | A-E | both | progress | Progress and logs are thinned out when they come too fast. //
    progress by a bucket; logs by their level only, because a lost log is worse than a late one
"""
