"""The Lisp product: Common Lisp sessions for any MCP client, driving real SBCL processes.

How it hangs together, from the client down::

    evaluate.py, tools_*.py   the tools; each finds its Session and calls it
    sessions.py               Lisp: all sessions by name, made lazily; limits, spool folder
    session.py                Session: calls in order, interrupts, suspended evaluations, recovery
    image.py                  Image: requests and answers over a channel (attached Lisps, too)
    process.py                LispProcess: an Image that is an SBCL child of ours
    bridge/*.lisp             the other end, compiled together into one cached file (sbcl.py)

How to add a tool:

1. An operation in a file of ``bridge/`` (listed in ``sbcl.PARTS`` and in ``bridge.lisp``)::

       (define-operation ("describe-symbol") (&key name package)
         (call-in-package package
           (lambda () (object "text" (text-of …) "callers" (list …)))))

   It runs in the evaluation thread of the session. What it returns is the data of the answer:
   strings, numbers, lists (``[]`` for nil), ``(object "name" value …)``, ``:true``, ``:false``,
   ``:null``; a member of value ``:omit`` is left out. What it prints, warns and signals is in the
   answer without doing anything. Print user's objects with ``text-of`` or ``print-captured``, which
   are bounded and survive broken print methods. ``(call-in :sb-introspect "SB-INTROSPECT"
   "WHO-CALLS" …)`` loads contribs when they are needed. User code that it runs should be called
   through ``call-evaluator``, where backtraces end. ``:immediate t`` runs in the thread that
   reads the channel, also while an evaluation runs: never user code, and nothing slow.

2. A tool in a module ``tools_*.py``, registered by a function that ``product.py`` calls::

       outcome = await lisp.session(session).call("describe-symbol", {"name": name})
       answer = outcome.frame          # status "ok", "error", "interrupted", "killed"
       data = answer.read(SomeStruct)  # only if the status is "ok"

   ``render.failed(session, outcome)`` is the result for any other status, in the format of
   requirement 001. ``SessionLost`` and ``NoLispHere`` are ToolErrors: let them pass. Keyword
   arguments are written with underscores here and with hyphens there.

``session.on_answer(listener)`` hears every answer with the definitions in it, ``lisp.on_session``
every session; ``session.history``, ``session.outputs`` and ``session.journal`` are there to be
shown as resources.
"""
