"""tests/suite/folder_table.py: rows of a page from results of some of its files."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parent / "suite"))
import folder_table

PAGE = "| folder | files | CPU device | HEADRACE | share |\n| a | 2 | 10 | 9 | 90.0% |\n| b | 1 | 5 | 5 | 100.0% |\n"
EXPECTED = {"a/x_test.py::one": "a reason", "a/new_test.py::two": "another"}


def result(file, *cases):
    return {"file": file, "cases": {f"{file}::{case}": [outcome, "error"] for case, outcome in cases}}


def write(tmp_path, pairs, **options):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    folder_table.write_page(page, "", pairs, EXPECTED, 9, **options)
    return page.read_text()


def new_file():
    cases = [("one", "passed"), ("three", "passed")]
    return result("a/new_test.py", ("two", "failed"), *cases), result("a/new_test.py", ("two", "passed"), *cases)


def test_folders_with_fewer_files_than_the_page_keep_their_rows(tmp_path):
    text = write(tmp_path, [new_file()])
    assert "| a | 2 | 10 | 8 | 80.0% |" in text and "13 of 15 cases" in text


def test_more_files_are_added_to_the_rows(tmp_path):
    text = write(tmp_path, [new_file()], is_more=True)
    assert "| a | 3 | 13 | 11 | 84.6% |" in text and "| b | 1 | 5 | 5 | 100.0% |" in text
    assert "16 of 18 cases pass: 88.89%. 4 of 9 files" in text
    assert "a/x_test.py::one | a reason" in text and "a/new_test.py::two | another" in text
