"""A task as each revision writes it: the core form of 2025-11-25, the extension of 2026."""

from typing import Any

import msgspec
from msgspec import Raw

from dovetail.server.tasks.record import TaskRecord
from dovetail.spec.meta import RELATED_TASK_KEY, SERVER_INFO_KEY

__all__ = ["core_result", "core_task", "extension_task", "related"]


def related(task_id: str) -> dict[str, Any]:
    """The ``_meta`` entry of every message that belongs to a task (digest S92)."""
    return {RELATED_TASK_KEY: {"taskId": task_id}}


def _common(record: TaskRecord) -> dict[str, Any]:
    task: dict[str, Any] = {"taskId": record.task_id, "status": record.status}
    if record.status_message is not None:
        task["statusMessage"] = record.status_message
    return {**task, "createdAt": record.created_at, "lastUpdatedAt": record.last_updated_at}


def core_task(record: TaskRecord) -> dict[str, Any]:
    task = {**_common(record), "ttl": record.ttl_ms}
    if record.poll_interval_ms is not None:
        task["pollInterval"] = record.poll_interval_ms
    return task


def core_result(outcome: bytes, task_id: str) -> dict[str, Any]:
    """What ``tasks/result`` of 2025-11-25 returns, even if the task was made in 2026-07-28."""
    result: dict[str, Any] = msgspec.json.decode(outcome)
    result.pop("resultType", None)
    if not isinstance(result.get("structuredContent", {}), dict):
        result["structuredContent"] = {"result": result["structuredContent"]}
    meta = {k: v for k, v in result.get("_meta", {}).items() if k != SERVER_INFO_KEY}
    return {**result, "_meta": {**meta, **related(task_id)}}


def extension_task(record: TaskRecord) -> dict[str, Any]:
    """With what the status calls for: questions, a result or an error (digest S100)."""
    task = {**_common(record), "ttlMs": record.ttl_ms}
    if record.poll_interval_ms is not None:
        task["pollIntervalMs"] = record.poll_interval_ms
    if record.status == "input_required":
        task["inputRequests"] = {k: Raw(v) for k, v in record.input_requests.items()}
    elif record.outcome is not None:
        # Made in 2025-11-25, a tool error is `failed`; here only JSON-RPC errors are (S100).
        task["status"] = "completed"
        task["result"] = {"resultType": "complete", **msgspec.json.decode(record.outcome)}
    elif record.status == "failed":
        task["error"] = Raw(record.error or _unexpected())
    return task


def _unexpected() -> bytes:
    return msgspec.json.encode({"code": -32603, "message": "Internal error"})
