"""The policy that a page of predictions shows."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confrank.cli.source import Source
from confrank.phrasing import about

if TYPE_CHECKING:
    from confrank.decisions.policy import Policy


def policy_for_page(path: str | None, page: Path | None, files: Sequence[str]) -> "Policy | None":
    """The policy to show; an error if there is no page to show it on, or more than one file."""
    from confrank.decisions.policy import Policy

    if path is None:
        return None
    if page is None:
        raise ValueError("expected --report with --policy, which the page shows, but got none")
    if len(files) > 1:
        raise ValueError(f"expected one file with --policy, but got {len(files)}")
    return Policy.load(path)


def decision_of(policy: "Policy", path: str, source: Source) -> dict[str, Any]:
    """What the page says about a policy and what it does to the predictions."""
    from confrank.decisions.outcome import outcome_of
    from confrank.report.policy_section import policy_section

    with about(source.name):
        outcome = outcome_of(policy, source.predictions)
    return policy_section(policy, outcome, Path(path).name, Path(path).read_bytes())
