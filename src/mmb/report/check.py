"""One thing that was checked about a run, and the verdict of them all."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

Status = Literal["good", "remark", "unknown", "bad"]


class Check(NamedTuple):
    """What was checked: its status, a title of a few words, what was found, and what to do."""

    status: Status
    title: str
    text: str
    advice: str = ""


def verdict_of(checks: Sequence[Check], good: str) -> dict[str, Any]:
    """A `"verdict"` of one sentence, its `"status"`, the `"advice"` and the `"checks"` as dicts.

    The worst status decides. `good` is the verdict if nothing stands out.
    """
    starts: dict[Status, str] = {"bad": "Not working", "unknown": "Cannot tell", "remark": "Working, but"}
    for status, start in starts.items():
        if found := [check for check in checks if check.status == status]:
            titles = "; ".join(check.title for check in found)
            verdict = f"{start} {titles}." if status == "remark" else f"{start}: {found[0].title}."
            advice = [check.advice for check in found if check.advice]
            break
    else:
        status, verdict, advice = "good", good, []
    shown = [check._asdict() for check in checks]
    return {"status": status, "verdict": verdict, "advice": " ".join(advice), "checks": shown}
