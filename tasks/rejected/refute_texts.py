"""Make rejected texts of descriptions that failed a check: real errors of the writing model (ours).

Reads ``DifferenceRow`` (the chosen ones), all descriptions of the same pairs, and the checks of the build
(``CheckRow``); writes ``RejectedTextRow`` by the maker "refuted". A description counts as wrong if a check speaks
against it. Of several, the closest to the chosen text is taken: of the same things, not both can be right.
"""

from collections.abc import Iterator, Mapping, Sequence

from pairwright.schemas.checks import speaks_against
from pairwright.schemas.claims import CLAIMS
from pairwright.schemas.config import RejectedTextsConfig
from pairwright.schemas.rows import NO_ROWS, CheckRow, DifferenceRow, Dropped, Images, Pairs, RejectedTextRow
from pairwright.tasks.rejected import check_texts
from pairwright.tasks.rejected.check_texts import TRUTH_USES, Truth
from pairwright.tasks.store.stage import Stage, Uses

CHECKED = ("controlled", "grounded", "judged")
Checks = Mapping[str, tuple[CheckRow, ...]]


def refute_texts(
    rows: Sequence[DifferenceRow],
    config: RejectedTextsConfig,
    *,
    pairs: Pairs,
    images: Images,
    described: Mapping[str, tuple[DifferenceRow, ...]],
    controlled: Checks = NO_ROWS,
    grounded: Checks = NO_ROWS,
    judged: Checks = NO_ROWS,
) -> Iterator[RejectedTextRow | Dropped]:
    """Yield, for each chosen description, the closest one that failed, or ``Dropped`` if none did."""
    del config  # no setting applies
    tables = (controlled, grounded, judged)
    for row in rows:
        checks = [check for table in tables for check in table.get(row.subject, ())]
        yield _refute(
            row, described.get(row.subject, ()), checks=checks, truth=check_texts.truth_of(row, pairs, images)
        )


def _refute(
    row: DifferenceRow, described: Sequence[DifferenceRow], *, checks: Sequence[CheckRow], truth: Truth
) -> RejectedTextRow | Dropped:
    against: dict[str, list[CheckRow]] = {}
    for check in checks:
        if speaks_against(check):
            against.setdefault(check.description, []).append(check)
    # A model's text follows the template, which would reveal it beside a person's text.
    failed = [one for one in described if one.key in against and one.key != row.key and not row.is_given]
    if not failed:
        return Dropped(source_key=row.key, reason="no description failed")
    doubtful = {check.description for check in checks if not check.passed}
    passed = [one for one in described if one.key not in doubtful]
    ranked = sorted(failed, key=lambda one: (-check_texts.likeness(row.text, one.text), one.key))
    for skipped, one in enumerate(ranked):
        if not check_texts.is_description_true(one, (row, *passed), truth):
            note = "; ".join(f"{check.why} ({check.score:.3g})" for check in against[one.key])
            return check_texts.rejected_row(
                row,
                one.text,
                maker="refuted",
                note=note,
                claims=CLAIMS.validate_json(one.claims),
                skipped_true=skipped,
                served=one.served,
            )
    return Dropped(source_key=row.key, reason="all that failed are as true", detail=f"{len(ranked)} failed")


STAGE = Stage(
    name="refuted",
    version=3,
    group="rejected",
    reads={"differences": DifferenceRow},
    writes=RejectedTextRow,
    function=refute_texts,
    config="rejected_texts",
    uses=(
        *TRUTH_USES,
        Uses(table="described", row=DifferenceRow, kind="many", counts=True),
        *(Uses(table=name, row=CheckRow, kind="many", counts=True) for name in CHECKED),
    ),
)
