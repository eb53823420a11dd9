"""The report as JSON, as JUnit XML, and as the list of failures that a baseline keeps."""

import json
from typing import Any
from xml.etree import ElementTree as Xml

from dovetail.check.report.findings import findings, key, shown, verdict
from dovetail.check.run import Report

__all__ = ["as_baseline", "as_json", "as_junit", "read_baseline"]


def as_json(report: Report, baseline: frozenset[str]) -> str:
    end = verdict(report, baseline)
    value: dict[str, Any] = {
        "target": report.target,
        "transport": report.transport,
        "server": report.server,
        "revisions": list(report.revisions),
        "seconds": round(report.seconds, 3),
        "verdict": {
            "worst": end.worst,
            "passed": end.passed,
            "failed": end.failed,
            "skipped": end.skipped,
            "text": end.line,
        },
        "findings": [
            {
                "rule": finding.rule.id,
                "level": finding.level,
                "known": finding.known,
                "revisions": list(finding.revisions),
                "text": finding.rule.text,
                "section": finding.rule.section,
                "found": finding.detail,
                "fix": finding.rule.fix,
                "wire": [{"way": e.way, "frame": shown(e.frame)} for e in finding.wire],
            }
            for finding in findings(report, baseline)
        ],
        "results": [
            {
                "rule": result.rule.id,
                "revision": result.revision,
                "outcome": result.outcome,
                "level": result.level,
                "detail": result.detail,
            }
            for result in report.results
        ],
    }
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def as_junit(report: Report, baseline: frozenset[str]) -> str:
    """One suite per revision, one case per rule; a known failure counts as skipped."""
    root = Xml.Element("testsuites", name="dovetail check")
    for revision in report.revisions:
        results = [result for result in report.results if result.revision == revision]
        suite = Xml.SubElement(root, "testsuite", name=revision, tests=str(len(results)))
        failures = skipped = 0
        for result in results:
            case = Xml.SubElement(suite, "testcase", classname=revision, name=result.rule.id)
            if result.outcome == "skip" or key(result) in baseline:
                skipped += 1
                Xml.SubElement(case, "skipped", message=result.detail)
            elif result.outcome == "fail":
                failures += 1
                problem = Xml.SubElement(case, "failure", type=result.level, message=result.detail)
                problem.text = _printable(
                    f"{result.rule.text}\n{result.rule.fix}\n"
                    + "\n".join(f"{entry.way}: {shown(entry.frame)}" for entry in result.wire)
                )
        suite.set("failures", str(failures))
        suite.set("skipped", str(skipped))
    return Xml.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str) -> str:
    """XML has no control characters, not even escaped."""
    return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text)


def as_baseline(report: Report, baseline: frozenset[str]) -> str:
    """A line per failure; an old baseline is replaced."""
    lines = sorted(key(result) for result in report.failures())
    return "# Known failures: `dovetail check --baseline` reports only others.\n" + "".join(
        f"{line}\n" for line in lines
    )


def read_baseline(text: str) -> frozenset[str]:
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return frozenset(line for line in lines if line)
