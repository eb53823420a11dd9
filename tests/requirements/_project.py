"""The project's own rules: requirements 000 to 003, the decisions between them, issue 2."""

TABLE = """\
= requirement 000
R000-1 | A-E | server | engine | Requests come in on stdin and answers go out on stdout, a line
    each.
R000-2 | A-D | both | engine | A session runs: initialize, its answer, initialized, then calls.
R000-3 | A-D | server | engine | `initialize`, `notifications/initialized`, `tools/list` and
    `tools/call` are served.
R000-4 | A-E | both | engine | Requests, results, errors and notifications have the four shapes
    shown; `params` and `data` may be missing.
R000-5 | A-E | server | engine | A server whose tools never change declares `tools` without
    `listChanged`.
R000-6 | A-E | server | engine | stderr is for people: the protocol never uses it.
R000-7 | A-E | both | engine | A message is never pretty-printed and always ends in a newline.
R000-8 | A-E | server | engine | The five standard codes are used, each for the cause given to it.
R000-9 | A-D | server | engine | Nothing but ping is served before `initialize` has been answered.
R000-10 | A-D | server | engine | The revision answered is one both sides can speak.
R000-11 | A-D | server | engine | A strict server refuses calls that come before `initialized`.
R000-12 | A-D | server | engine | The handshake scenario: the whole start of a session, message by
    message.
R000-13 | A-E | server | engine | The malformed-request scenario: bad JSON, missing members, unknown
    methods, each answered and survived.
R000-14 | A-E | both | engine | `docs/protocol/` has pages on initialization, tools-list, tools-call
    and transport and both scenarios, and they agree with the tests.
R000-15 | A-E | both | engine | The vocabulary page defines the protocol's terms.
R000-16 | A-E | server | lisp | The server lists and runs `evaluate-lisp`.
= requirement 001
R001-1 | B | server | engine | `initialize` and its answer are the messages shown.
R001-2 | A-D | server | engine | `notifications/initialized` gets no answer.
R001-3 | A-D | server | engine | `tools/list` works without params and returns the tools in the
    shape shown.
R001-4 | A-E | server | engine | A call that worked returns content and `isError` false.
R001-5 | A-E | server | engine | A tool that failed returns a result with `isError` true, no
    protocol error.
R001-6 | A-E | server | engine | Each standard code has its one fixed message.
R001-7 | A-E | server | engine | `data` of -32600 says in words which member is missing.
R001-8 | A-E | server | engine | `data` of -32601 names the method that is not supported.
R001-9 | A-C | server | engine | The malformed example is answered with exactly the error shown.
R001-10 | A-E | server | engine | The unknown-method example is answered with exactly the error
    shown.
R001-11 | B | server | engine | The complete session shown runs as shown.
R001-12 | A-E | both | engine | Frames are UTF-8 and end at a newline.
R001-13 | A-E | server | engine | Diagnostics go to stderr.
R001-14 | A-E | server | engine | One message piped in by `echo` is answered before the process
    ends.
R001-15 | A-E | server | engine | Any JSON-RPC client can talk to the server: order of members,
    spacing and unknown members do not matter.
R001-16 | A-E | server | lisp | `evaluate-lisp` is described and answers as shown, errors included.
R001-17 | A-E | server | lisp | Evaluations of one session run one after the other, in order.
R001-18 | A-E | server | lisp | Planned there, built here: progress of long evaluations.
R001-19 | A-E | server | lisp | Planned there, built here: a running evaluation can be cancelled.
R001-20 | A-E | server | lisp | Planned there, built here: several separate sessions.
R001-21 | A-E | server | lisp | Planned there, built here: the Lisp image as resources.
R001-22 | A-E | server | lisp | The server starts from the command a client is configured with.
INV-001 | A-E | server | engine | Every valid request is answered exactly once, unless it is
    cancelled; notifications never are.
INV-002 | A-E | server | engine | No input ends the server: it answers with an error and goes on.
INV-005 | A-E | both | engine | All messages are well-formed: JSON, required members, right
    structure.
= requirement 002
R002-1 | D | both | engine | `jsonrpc` is the text 2.0 and nothing else.
R002-2 | D | both | engine | A request has `jsonrpc`, `id` and `method`; `params` is optional.
R002-3 | D | both | engine | An id is text or a number, not null, and not that of an open request.
R002-4 | D | both | engine | A response has an id and one of result and error.
R002-5 | D | both | engine | A notification has a method and no id.
R002-6 | D | both | engine | An error has a code and a message, and may have data.
R002-7 | D | server | engine | `initialize` without revision, capabilities or client info is
    refused.
R002-8 | D | server | engine | Its result has revision, capabilities and server info, and may have
    instructions.
R002-9 | D | client | client | The client sends `initialized` after a successful answer, and nothing
    but ping before it.
R002-10 | D | server | engine | Until `initialized` arrives only pings and logs start at the server.
R002-11 | D | server | engine | The revision is negotiated: the same if served, else our newest of
    the handshake.
R002-12 | D | client | client | A client disconnects if it cannot speak the answered revision.
R002-13 | D | both | engine | There is no message for the end: closing the transport is the end.
R002-14 | D | both | engine | Only features the peer declared are used.
R002-15 | D | server | engine | `prompts`, `resources`, `tools` and `completions` are declared as
    the server has them.
R002-16 | D | server | logging | `logging` is declared and works.
R002-17 | D | server | subscriptions | `listChanged` and `subscribe` are declared and kept.
R002-18 | D | server | tasks | `tasks` is declared with list, cancel and tool calls.
R002-19 | D | server | ask | Roots, sampling and elicitation of a client are understood, with tasks.
R002-20 | D | server | ask | An empty elicitation capability means forms only.
R002-21 | D | both | engine | On stdio a line is a message, and logs never mix into stdout.
R002-22 | D | both | http | A session id that was assigned is sent from then on.
R002-23 | D | both | http | The version header follows the handshake.
R002-24 | D | server | http | POST takes messages, GET opens the event stream.
R002-25 | D | server | http | Events are named `message` and hold the JSON.
R002-26 | D | both | http | A stream can be resumed after its last event.
R002-27 | D | server | http | Losing the stream cancels nothing.
= requirement 003
R003-01 | A-D | server | neovim | `initialize` is answered with the capabilities of the editor.
R003-02 | A-D | server | neovim | `notifications/initialized` is received and starts the service.
R003-03 | A-D | server | neovim | `tools/list` gives the registered tools.
R003-04 | A-D | server | neovim | `tools/call` runs a tool and answers with its result.
R003-05 | A-D | server | neovim | The server is named "Claude Code Neovim MCP".
R003-06 | B | server | neovim | 2025-03-26 is supported at least.
R003-07 | A-D | server | neovim | Requests, answers, errors and notifications have the shapes shown.
R003-08 | A-D | server | neovim | An unknown method is -32601.
R003-09 | A-D | server | neovim | `notifications/cancelled` ends the call and closes its diff.
R003-10 | A-D | server | neovim | `selection_changed` tells of a changed selection.
R003-11 | A-D | server | neovim | `at_mentioned` sends a file or lines of it.
R003-12 | A-D | server | neovim | Broken JSON is -32700, a broken request -32600.
R003-13 | A-D | server | neovim | Bad parameters are -32602.
R003-14 | A-D | server | neovim | `diagnostics_changed` tells whose diagnostics changed.
R003-15 | A-D | server | neovim | `log_event` reports events, if it is switched on.
R003-16 | A-D | server | neovim | A failure of ours is -32603 and hurts no other call.
= requirements/README.md
D-revisions | A-E | server | engine | All five revisions are served; the handshake answers the one
    asked for, else 2025-11-25.
D-null-id | A-E | server | engine | A null id is -32600, although document 001 allows it.
D-error-id | A-E | server | engine | An error for an unreadable id says `"id": null` as long as no
    revision is known, and in 2024-11-05 to 2025-06-18; later ones leave the id out.
D-error-data | A-E | server | engine | Error texts are those of document 001.
D-errors-minimal | A-E | server | engine | With `errors="minimal"` errors have no `data`.
D-unknown-tool | A-E | server | engine | An unknown tool is -32602, or -32601 if the policy says so.
D-bad-arguments | A-E | server | engine | Unfit arguments give an `isError` result with path,
    expectation and value, or -32602 if the policy says so.
D-unknown-arguments | A-E | server | engine | An argument the tool does not have is refused;
    `_meta`, `task`, `inputResponses` and `requestState` are not arguments.
D-unknown-members | A-E | server | engine | Members of params that a method does not know are
    ignored.
D-batches | A-E | server | engine | Batches are taken in 2025-03-26 and are -32600 in every other
    one.
D-batch-policy | B | server | engine | A server may leave out revisions; without 2025-03-26 it
    answers 2025-11-25 to who asks for it, and takes no batch.
D-before-initialize | A-D | server | engine | Before `initialize` is answered: ping is served, an
    unknown method -32601, all else -32600.
D-handshake-lenient | A-D | server | engine | By default requests are served as soon as `initialize`
    is answered.
D-handshake-strict | A-D | server | engine | With `handshake="strict"` they are -32600 until
    `initialized`; ping is not.
D-quiet-start | A-D | server | engine | Up to `initialized` the server sends no more than answers,
    pings and logs.
D-modern-no-gate | E | server | engine | A 2026-07-28 request is served before, during and after any
    handshake.
D-is-error | A-E | server | engine | A tool result always says `isError`.
D-wrap | C-E | server | engine | A value that is no object is wrapped as `result` in 2025-06-18 and
    2025-11-25, and sent as it is in 2026-07-28.
D-text-always | A-E | server | engine | A value always comes as a text block too.
D-golden | A-E | both | engine | Golden transcripts compare every member that a document shows.
D-oldest-on-stdio | A | server | engine | 2024-11-05 is served on stdio and in memory.
D-oldest-not-on-http | A | server | http | 2024-11-05 is not offered over Streamable HTTP.
D-order | A-E | server | lisp | While one evaluation runs, pings, cancellations, listings and other
    sessions are served.
D-lisp-name | A-E | server | lisp | The Lisp server is named `cl-mcp-server`, with our version.
D-lisp-lists | A-E | server | lisp | Products declare and list all they have, not only what the
    documents show.
D-editor-name | A-D | server | neovim | The editor's socket keeps the name of document 003.
D-editor-socket | A-D | server | neovim | The editor's WebSocket speaks the handshake revisions
    only; `server/discover` is -32601 there.
D-no-match | A-E | server | sources | No match is a success with an empty list and a text saying so.
D-sources-policy | A-E | server | sources | Sources: minimal errors, -32601 for an unknown tool but
    -32602 in 2026-07-28, -32602 for unfit arguments, no batches, strict handshake.
= issue 2, point 4
E-bad-json | A-E | server | engine | A line that is not JSON: -32700.
E-bad-utf8 | A-E | server | engine | Bytes that are not UTF-8, wherever in the message: -32700.
E-nan | A-E | server | engine | NaN and Infinity: -32700.
E-lone-surrogate | A-E | server | engine | Half a surrogate pair in an escape: -32700, without the
    parser's own words.
E-not-object | A-E | server | engine | A message that is a number, a text or null: -32600.
E-jsonrpc-missing | A-E | server | engine | No `jsonrpc`: -32600.
E-jsonrpc-wrong | A-E | server | engine | `jsonrpc` other than the text 2.0: -32600.
E-method-missing | A-E | server | engine | An id but no method, result or error: -32600.
E-method-wrong | A-E | server | engine | A method that is not text: -32600.
E-id-null | A-E | server | engine | The id null: -32600.
E-id-true | A-E | server | engine | The id true, or any other value that is no id: -32600.
E-id-float | A-E | server | engine | The id 1.5: -32600.
E-params-list | A-E | server | engine | Params that are a list: refused.
E-params-string | A-E | server | engine | Params that are a text or another scalar: refused.
E-result-and-error | A-E | both | engine | Both result and error: refused; whoever waits for that
    answer hears of the fault, and nobody else.
E-stray-response | A-E | both | engine | A response to nothing we asked is dropped.
E-duplicate-id | A-E | server | engine | An id that is still in flight: -32600, and the first
    request is answered all the same.
E-second-initialize | A-D | server | engine | `initialize` again: -32600, and the session stays as
    it is.
E-unknown-method | A-E | server | engine | A method we do not know: -32601.
E-unknown-notification | A-E | server | engine | A notification we do not know, or a wrong one:
    nothing.
E-empty-batch | B | server | engine | An empty batch, or one with bad elements: -32600 for it, or
    for each of them.
E-batch-initialize | B | server | engine | `initialize` inside a batch is refused.
E-oversize | A-E | server | engine | A frame over the limit is answered, skipped without being kept,
    and the next one is served.
E-overdeep | A-E | server | engine | Nesting over the limit is answered and survived.
E-crlf | A-E | server | engine | A frame that ends in CRLF is served.
E-no-newline | A-E | server | engine | A last frame without newline is served.
E-empty-line | A-E | server | engine | Empty lines are ignored.
E-removed-method | E | server | engine | A method that 2026-07-28 dropped is -32601 when it comes
    with the envelope.
E-legacy-in-meta | E | server | engine | An envelope that names a handshake revision: -32022.
E-handler-crash | A-E | server | engine | A crash in a handler is -32603, in a tool an `isError`
    result; the text is fixed and the traceback only in the log.
= issue 2, points 2 and 3
F-layers | A-E | both | engine | Imports point downward and the core does no I/O.
F-phase-table | A-E | both | engine | Every pair of phase and message does what the table says; an
    illegal one leaves the phase as it was.
F-surface-drift | A-E | both | engine | The tables agree with the pinned official schemas.
F-examples | E | both | engine | The official examples decode and encode to the same JSON.
F-one-pipe | A-E | server | engine | The era is decided message by message: discover first and
    initialize afterwards works on one pipe.
F-discover | E | server | engine | Discover lists revisions, capabilities, instructions and cache
    stamps, with the server's name in `_meta`.
F-check-order | E | server | engine | Of several faults the first counts: envelope, revision,
    method, capability, params.
F-no-leak | A-E | both | engine | No member, content kind, method or code goes to a revision that
    does not know it.
F-no-stamps | A-D | server | engine | Results of the handshake era have no `resultType`, `ttlMs`,
    `cacheScope` or server name in `_meta`.
F-downgrade | A-C | server | engine | Content a revision lacks is sent as text.
F-cancel | A-E | server | engine | A cancelled request stops, and its id is never answered.
F-limit-in-flight | A-E | server | engine | Requests over the limit wait, over the queue's limit are
    refused; ping and cancel get through.
F-limit-output | A-E | server | engine | A reader that is too slow stops new work, not pings, and
    memory stays bounded.
F-coalesced-writes | A-E | both | engine | What is sent in one turn of the loop is one write.
F-split-input | A-E | both | engine | How bytes are cut into chunks makes no difference.
F-json-corpus | A-E | both | engine | The JSON layer accepts and refuses what the JSON test corpus
    says.
= issue 2, point 5
F-tool-schema | A-E | server | engine | Signature and docstring make the input schema: object at the
    root, types, constraints, defaults, descriptions.
F-tool-types | A-E | server | engine | msgspec types, dataclasses, TypedDict, Enum, Literal and
    constraints work as arguments.
F-pydantic | A-E | server | engine | pydantic models work, and pydantic is imported only for them.
F-handwritten-schema | A-E | server | engine | A tool may bring its own JSON Schema, which is
    enforced.
F-strict-arguments | A-E | server | engine | Nothing is coerced: "1" is no number, 1 no truth value.
F-integral-floats | A-E | server | engine | 1.0 is an integer where one is asked for, 1.5 is not.
F-sync-thread | A-E | server | engine | A sync tool does not block the loop, unless it is declared
    inline.
F-async-loop | A-E | server | engine | An async tool runs on the loop, beside others.
F-structured-output | C-E | server | engine | A return type gives output schema and structured
    content where the revision has them.
F-content-kinds | A-E | server | engine | Tools return text, images, audio, resources and links.
F-tool-error | A-E | server | engine | An author's error text reaches the model in an `isError`
    result.
F-metadata | A-E | server | engine | Title, annotations and icons are listed where the revision has
    them.
F-resource-static | A-E | server | engine | A resource with a fixed URI is listed and read, as text
    or bytes.
F-resource-template | A-E | server | engine | An RFC 6570 template is listed, matched and its
    variables handed over.
F-prompt | A-E | server | engine | A prompt lists its arguments and returns messages.
F-completion | A-E | server | engine | Arguments of prompts and templates are completed; values over
    the limit are cut and counted.
F-completion-context | C-E | server | engine | A completer sees the arguments already given.
F-pagination | A-E | server | engine | Long lists come in pages that hold everything once.
F-cursor | A-E | server | engine | A cursor is opaque; without one a list starts at the beginning.
F-listing-cache | A-E | server | engine | A list is encoded once for each revision, and anew after a
    change.
F-duplicate-name | A-E | server | engine | Registering a name or URI twice raises.
F-policy-names | A-E | server | engine | A policy that does not exist is refused when the server is
    made.
F-many-tools | A-E | server | engine | A call costs the same among a thousand tools.
= issue 2, point 6
F-stdio-print | A-E | server | engine | Prints of user code and of its child processes go to stderr.
F-stdio-stdin | A-E | server | engine | User code that reads stdin gets nothing of the protocol.
F-stdio-eof | A-E | server | engine | At the end of input what is in flight is answered, within a
    time limit, then the process ends with 0.
F-sigterm | A-E | server | engine | SIGTERM ends the process cleanly: handlers cancelled, no orphan.
F-sigint | A-E | server | engine | So does SIGINT, without a traceback.
F-broken-pipe | A-E | server | engine | So does a client that is gone.
F-no-logging-config | A-E | server | engine | The library never configures logging.
F-cli-serve | A-E | server | engine | `dovetail serve TARGET` runs the server of a file or a module,
    and says what is wrong with a bad target.
F-log-level | A-E | server | engine | `--log-level` sets what goes to stderr.
F-wire-log | A-E | server | engine | `--wire-log` writes every message, both ways, as JSON lines.
F-terminal-hint | A-E | server | engine | On a terminal one line on stderr says what to do.
= issue 2, points 7 and 8
F-memory-pair | A-E | both | engine | The in-memory pair goes through encoded bytes.
F-recorder | A-E | both | engine | The recorder checks every message against the official schema of
    its revision.
F-recorder-closed | A-E | both | engine | It refuses members the revision does not list.
F-budget-calls | A-E | server | engine | One async call costs at most 60 Python calls on the server
    side.
F-budget-tasks | A-E | server | engine | It costs one task, three `call_soon` and no thread.
F-import-light | A-E | both | engine | Importing the library loads neither pydantic nor jsonschema.
F-real-peers | A-E | server | engine | The official and other clients list, call, read and get over
    stdio.
F-examples-run | A-E | server | engine | The programs in `examples/` and the README's first one run.
F-serve-default | A-E | server | engine | `scripts/serve` without arguments starts a working server.
F-manifest | A-E | both | engine | This list, the marks of the tests and the generated table agree.
= digest §9 and §10, HTTP side of rules above
H-status | E | server | http | Errors of 2026-07-28 come with their status: 400 for envelope,
    header, revision and capability, 404 for a method.
= docs/operations.md
N-one-suite | B-E | server | nodes | Every backplane passes one test-suite.
N-session | B-D | server | nodes | A session is found from any node, and served by the one that
    has it.
N-forged-id | B-D | server | nodes | An invented session id is refused without asking the engine.
N-resume | B-D | server | nodes | Any node resumes any stream.
N-routed | B-D | server | nodes | Answers, cancellations and DELETE reach the node that waits.
N-fan-out | B-E | server | nodes | Changes are told to the clients of all nodes.
N-tasks | DE | server | nodes | A task is read, answered and cancelled on any node.
N-state | E | server | nodes | Nodes that share the keys open each other's `requestState`.
N-no-engine | E | server | nodes | A plain call asks the engine nothing.
N-principal | B-E | server | nodes | What belongs to a principal is found by nobody else, on any
    node.
N-killed | B-E | server | nodes | What a killed node had goes on elsewhere, or is answered with
    an error, once.
N-handed-over | B-D | server | nodes | A node that is stopped hands its sessions over at once.
N-away | B-E | server | nodes | Without the engine what needs it is 503 with Retry-After, and
    the rest goes on.
N-back | B-E | server | nodes | An engine that comes back, even empty, is used again without help.
N-proxy | B-E | server | nodes | Two nodes serve as one behind nginx, as the documentation has it.
"""
