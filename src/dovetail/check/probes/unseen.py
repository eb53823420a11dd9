"""Sentences of the contract that no program can see from outside, each with the reason.

They stand in the contract all the same: it is for people who write servers, too.
"""

from dovetail.check.rules import unseen

_ASKS = "Only a tool that asks its user shows this, and a checker is no user."
_INSIDE = "It happens inside the server, or between it and others."
_OWN = "It concerns requests of the server's own, which a checker cannot provoke."
_SLOW = "It needs a tool that runs long and does no harm; no server says which that is."
_SIGNED_IN = "It needs tokens of several people or for other servers."
_PROSE = "It is about the meaning of texts, which a program cannot judge."

# id | revisions | covers | section | text | why
_TABLE = f"""
own-ids | ABCDE | X3 X4 | Base Protocol, Requests | Requests of the server have ids that are not in use. | {_OWN}
own-cancel | ABCD | X18 | Utilities, Cancellation | The server cancels only requests of its own. | {_OWN}
own-transport | ABCDE | X16 X17 X43 | Transports, Custom Transports | Another transport carries the same messages and keeps the security of its protocol. | Only the transports of the specification, and ours, can be tried.
meta-keys | CDE | X26 X27 | Base Protocol, _meta | Keys of _meta keep their grammar, and trace members their formats. | What is in _meta is anybody's own; nothing tells a wrong key from a new one.
no-fetch | E | X29 | 2026-07-28, JSON Schema | References to the network are not fetched. | {_INSIDE}
extensions | E | X34 X35 | 2026-07-28, Extensions | An extension that only one side knows is not used. | It depends on what each extension means.
sampling-data | ABCDE | X36 | Client Features, Sampling | Sensitive data in sampling is handled with care. | {_PROSE}
sampling-tools | DE | X39 X40 S86 S87 | Client Features, Sampling | Tool use in sampling is answered at once and alone, and only asked where declared. | {_ASKS}
tokens-safe | BCDE | X42 S69 S70 S71 S72 S73 S74 S80 S81 | Authorization | Tokens are judged first, meant for this server, kept apart and passed to nobody. | {_SIGNED_IN}
client-caching | E | X44 X45 | 2026-07-28, Caching | Polling is spread, and private answers stay private. | It is the duty of clients.
capability-needed | E | S6 S18 | 2026-07-28, Capabilities | What the client did not declare is not used; -32021 says what is needed. | {_ASKS}
input-required | E | S15 S16 S17 S20 S21 | 2026-07-28, Multi Round-Trip Requests | Questions come only from calls, reads and prompts, with state or requests in them. | {_ASKS}
state-sealed | E | S19 | 2026-07-28, Multi Round-Trip Requests | State that comes back is checked. | {_ASKS}
listen-end | E | S25 S30 | 2026-07-28, Subscriptions | The end of a subscription is tagged, too. | Only a server that stops shows it.
log-secrets | ABCDE | S27 | Utilities, Logging | Log messages hold no secrets. | {_PROSE}
cancelled-silence | E | S28 S29 | 2026-07-28, Cancellation | After a cancellation nothing more is sent for a request. | {_SLOW}
own-stream | E | S31 | 2026-07-28, Transports, Streamable HTTP | A request's stream carries only what is about it. | Nothing in a notification says what it is about.
paths | E | S37 | Server Features, Resources, Security | Paths cannot leave their root. | To try it would be to attack the files of whoever runs the check.
uri-schemes | CDE | S39 | Server Features, Resources, URIs | Schemes of one's own keep RFC 3986. | It is checked with the schema of every message.
cache-access | E | S43 | 2026-07-28, Caching | Access does not depend on cacheScope. | {_SIGNED_IN}
http-sse | A | S46 | 2024-11-05, Transports, HTTP with SSE | The old transport has an event endpoint and one for messages. | The checker does not speak the old transport.
get-stream | BCD | S52 S55 R002-27 | Transports, Streamable HTTP | A GET stream carries no answers unless it resumes, and then only those of its stream. | {_SLOW}
intermediaries | E | S64 | 2026-07-28, Transports, Streamable HTTP | Intermediaries pass on headers they do not know. | It is the duty of proxies.
own-authorization | B | S66 | 2025-03-26, Authorization | A server that is its own authorization server keeps the rules of OAuth. | {_SIGNED_IN}
elicitation | CDE | S75 S76 S77 S78 S79 S82 S83 S84 S85 R002-19 R002-20 | Client Features, Elicitation | Questions are in a mode the client has, ask no secrets in forms, and take no for an answer. | {_ASKS}
tasks-run | D | S88 S89 S90 S91 S92 S94 S96 X24 X25 | 2025-11-25, Tasks | A task starts working, ends once, and gives what the call would have given. | {_SLOW}
tasks-extension-run | E | S97 S98 S99 S100 S101 | 2026-07-28, Tasks Extension | A task is made only for those who declared it, and can be read at once. | {_SLOW}
"""

for _line in _TABLE.strip().splitlines():
    _id, _revisions, _covers, _section, _text, _why = (part.strip() for part in _line.split("|"))
    unseen(
        _id,
        _text,
        why=_why,
        section=_section,
        revisions=_revisions,
        covers=tuple(_covers.split()),
    )
