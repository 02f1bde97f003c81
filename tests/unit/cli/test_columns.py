"""Tables of plain text."""

from holdfast.cli.columns import USUAL, table_lines

HEADER = ("KEY", "VALUE", "SOURCE")
ROWS = [("a.key", "1", "DEFAULT"), ("another", "x" * 100, "STATIC")]


def test_a_pipe_gets_one_line_a_row_and_a_long_value_moves_no_other() -> None:
    lines = list(table_lines(HEADER, ROWS, folded=1))
    assert len(lines) == 3
    assert lines[1].split() == ["a.key", "1", "DEFAULT"]
    assert len(lines[1]) <= USUAL
    assert lines[2] == f"another  {'x' * 100}  STATIC"


def test_a_terminal_gets_lines_that_fit() -> None:
    lines = list(table_lines(HEADER, ROWS, width=40, folded=1))
    assert max(map(len, lines)) <= 40
    assert "".join(line[9:32].strip() for line in lines[2:]) == "x" * 100
    assert [line[:7].strip() for line in lines] == ["KEY", "a.key", "another", "", "", "", ""]
    assert lines[0].index("SOURCE") == lines[1].index("DEFAULT") == lines[2].index("STATIC")


def test_what_is_too_narrow_is_whole() -> None:
    lines = list(table_lines(HEADER, [("k" * 47, "y" * 20, "DEFAULT")], width=20, folded=1))
    assert lines[1].startswith("k" * 47 + "  " + "y" * 11 + "  DEFAULT")
    assert lines[2].strip() == "y" * 9


def test_numbers_are_on_the_right_and_no_line_ends_in_blanks() -> None:
    lines = list(table_lines(("BROKER", "RACK"), [("1", "-"), ("12345678", "")], right=(0,)))
    assert lines == ["  BROKER  RACK", "       1  -", "12345678"]


def test_what_is_longer_than_its_column_may_be_is_alone_with_that() -> None:
    lines = list(table_lines(("A", "B"), [("long enough", "1"), ("a", "2")], most={0: 4}))
    assert lines == ["A     B", "long enough  1", "a     2"]
