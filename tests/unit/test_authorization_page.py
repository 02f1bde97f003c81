"""docs/authorization.md has the table of rights and the differences from Kafka as they are now; its other rows are what
live brokers answered (tests/rights)."""

from tests.rights.page import PAGE, recorded, rows_of, static


def test_the_page_of_rights_is_up_to_date() -> None:
    page = PAGE.read_text()
    assert static(rows_of(page), recorded()) == page, "HOLDFAST_REWRITE=1 pytest tests/rights writes it anew"
