"""The report as one HTML page that needs nothing else."""

from html import escape

from dovetail.check.report.findings import Finding, findings, shown, verdict
from dovetail.check.rules import RULES
from dovetail.check.run import Report, Result

__all__ = ["as_html"]

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --must: #c62828; --should: #b26a00;
  --pass: #2e7d32 }
@media (prefers-color-scheme: dark) { :root { --must: #ff7961; --should: #ffb74d;
  --pass: #81c784 } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem; margin: 0 } h2 { font-size: 1.2rem; margin-top: 2.5rem }
.verdict { padding: .6rem 1rem; border-left: .4rem solid var(--pass); margin: 1rem 0;
  background: #8881 }
.verdict.MUST { border-color: var(--must) } .verdict.SHOULD { border-color: var(--should) }
article { border: 1px solid var(--line); border-radius: .5rem; padding: .8rem 1rem; margin: 1rem 0 }
article h3 { margin: 0 0 .3rem; font-size: 1.05rem } article p { margin: .3rem 0 }
article.known { opacity: .6 }
.level { font-weight: 700; font-size: .8rem; margin-right: .5rem }
.level.MUST { color: var(--must) } .level.SHOULD { color: var(--should) }
pre { overflow-x: auto; background: #8881; padding: .5rem .7rem; border-radius: .3rem;
  font-size: .85rem }
pre b { font-weight: 600; opacity: .7 }
table { border-collapse: collapse; width: 100%; font-size: .9rem }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .5rem; text-align: center }
th:first-child, td:first-child { text-align: left }
.pass { color: var(--pass) } .fail { color: var(--must); font-weight: 700 } .skip { opacity: .4 }
small { opacity: .7 }
"""
_MARKS = {"pass": "✓", "fail": "✗", "skip": "–"}


def as_html(report: Report, baseline: frozenset[str]) -> str:
    end = verdict(report, baseline)
    name = escape(f"{report.server.get('name', '?')} {report.server.get('version', '')}".strip())
    return "".join(
        [
            '<!doctype html><html lang="en"><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{name}: the contract</title><style>{_STYLE}</style>",
            f"<h1>{name}</h1>",
            f"<p><small>{escape(report.target)} over {report.transport}, ",
            f"{report.seconds:.1f} s; speaks {', '.join(report.revisions)}</small></p>",
            f'<p class="verdict {end.worst or ""}"><strong>{name}</strong> {escape(end.line)}.</p>',
            "<h2>What to change</h2>" if report.failures() else "",
            *(_article(finding, report) for finding in findings(report, baseline)),
            "<h2>Every rule</h2>",
            _table(report),
            "</html>\n",
        ]
    )


def _article(finding: Finding, report: Report) -> str:
    everywhere = finding.revisions == report.revisions
    where = "every revision" if everywhere else ", ".join(finding.revisions)
    wire = "".join(
        f"<b>{'→' if entry.way == 'sent' else '←'}</b> {escape(shown(entry.frame))}\n"
        for entry in finding.wire
    )
    level = f'<span class="level {finding.level}">{finding.level}</span>'
    return (
        f'<article class="{"known" if finding.known else ""}" id="{finding.rule.id}">'
        f"<h3>{level}{escape(finding.rule.text)}</h3>"
        f"<p><small>{finding.rule.id}, {escape(finding.rule.section)}; in {where}"
        f"{', known' if finding.known else ''}</small></p>"
        f"<p>{escape(finding.detail)}</p>"
        + (f"<pre>{wire}</pre>" if wire else "")
        + f"<p><strong>Fix:</strong> {escape(finding.rule.fix)}</p></article>"
    )


def _table(report: Report) -> str:
    by_rule: dict[str, dict[str, Result]] = {}
    for result in report.results:
        by_rule.setdefault(result.rule.id, {})[result.revision] = result
    head = "".join(f"<th>{revision}</th>" for revision in report.revisions)
    rows = [
        f'<tr><td title="{escape(RULES[id].text)}">{id}</td>'
        + "".join(_cell(cells.get(revision)) for revision in report.revisions)
        + "</tr>"
        for id, cells in by_rule.items()
    ]
    return f"<table><tr><th>rule</th>{head}</tr>{''.join(rows)}</table>"


def _cell(result: Result | None) -> str:
    if result is None:
        return "<td></td>"
    kind = result.outcome
    return f'<td class="{kind}" title="{escape(result.detail)}">{_MARKS[kind]}</td>'
