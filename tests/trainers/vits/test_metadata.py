"""metadata.csv: common formats and refusals."""

from pathlib import Path

import pytest

from trainers.vits.errors import CorpusError
from trainers.vits.metadata import read_metadata


def write_metadata(folder: Path, content: str | bytes) -> Path:
    """Write a folder with this metadata.csv."""
    (folder / "metadata.csv").write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def read_texts(folder: Path, content: str | bytes) -> dict[str, str]:
    """Ids and texts of a file without refusals."""
    lines, refused = read_metadata(write_metadata(folder, content))
    assert not refused
    return {line.name: line.text for line in lines}


def reasons(folder: Path, content: str) -> dict[str, str]:
    """Refused lines and reasons."""
    return {one.name: one.reason for one in read_metadata(write_metadata(folder, content))[1]}


@pytest.mark.parametrize(
    "content",
    [
        "a|ez şev\nb|du\n",
        "a|ez şev\r\nb|du\r\n",
        "a|ez şev\rb|du",
        "\ufeffa|ez şev\nb|du",
        "\n a | ez \t s\u0327ev \n\n\nb|du\n  \n",
        "ID|Text\na|ez şev\nb|du",
        "id|text|speaker\na|ez şev|me\nb|du|me",
        "id|speaker|text\na|me|ez şev\nb|me|du",
    ],
)
def test_ways_to_write_the_same_lines(content: str, tmp_path: Path) -> None:
    assert read_texts(tmp_path, content) == {"a": "ez şev", "b": "du"}


def test_quotation_marks_are_characters_of_the_text(tmp_path: Path) -> None:
    assert read_texts(tmp_path, 'a|he said "go\nb|"no"') == {"a": 'he said "go', "b": '"no"'}


def test_of_three_columns_the_third_is_read_aloud_and_the_second_stands_in_for_it(tmp_path: Path) -> None:
    assert read_texts(tmp_path, "a|In 1945|in nineteen forty-five\nb|Yes, he|") == {
        "a": "in nineteen forty-five",
        "b": "Yes, he",
    }


def test_the_one_speaker_that_a_column_names_is_no_text(tmp_path: Path) -> None:
    lines = "".join(f"c{number}|text {number}|me\n" for number in range(9))
    assert read_texts(tmp_path, lines)["c3"] == "text 3"


@pytest.mark.parametrize("column", [1, 2])
def test_several_speakers_in_a_column_are_refused_by_name(column: int, tmp_path: Path) -> None:
    rows = [[f"c{number}", f"text {number}"] for number in range(12)]
    for number, row in enumerate(rows):
        row.insert(column, ("Dilan", "Zîn", "Ali")[number % 3])
    with pytest.raises(CorpusError, match=r"names 3 speakers \(Ali, Dilan, Zîn\); keep the lines of one"):
        read_texts(tmp_path, "\n".join("|".join(row) for row in rows))


def test_two_speakers_under_a_heading_are_refused_however_few_the_lines(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"2 speakers \(Ali, Zîn\)"):
        read_texts(tmp_path, "id|text|speaker\na|yek|Ali\nb|du|Zîn")


def test_recordings_in_the_folders_of_several_speakers_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"2 folders, which suggests several speakers \(p225, p226\)"):
        read_texts(tmp_path, "p225/a|yek\np226/b|du")


def test_a_folder_of_speakers_folders_is_refused_by_name(tmp_path: Path) -> None:
    for speaker in ("zîn", "ali"):
        (tmp_path / speaker).mkdir()
        write_metadata(tmp_path / speaker, "a|yek")
    with pytest.raises(CorpusError, match=r"2 speakers \(ali, zîn\).* prepare .*ali"):
        read_metadata(tmp_path)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (b"\n  \r\n", "is empty"),
        (b"id|text\n", "has only a heading"),
        ("a|şev\n".encode("utf-16"), "UTF-16; convert it: iconv"),
        ("a|şev\n".encode("utf-16-le"), "UTF-16; convert it: iconv"),
        ("a|ez\nb|şev\n".encode("cp1254"), r"not in UTF-8 \(line 2, byte 0xfe\)"),
        (b"a,text\nb,text\n", "1 columns"),
        (b"a|b|c|d\n", "4 columns"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_what_to_do(content: bytes, told: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=told) as refused:
        read_metadata(write_metadata(tmp_path, content))
    assert str(tmp_path / "metadata.csv") in refused.value.message


def test_a_folder_that_is_not_there_or_has_no_metadata_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"folder .* does not exist"):
        read_metadata(tmp_path / "none")
    with pytest.raises(CorpusError, match=r"has no metadata\.csv"):
        read_metadata(tmp_path)
    (tmp_path / "metadata.csv").mkdir()
    with pytest.raises(CorpusError, match=r"metadata\.csv cannot be read \(Is a directory\)"):
        read_metadata(tmp_path)


def test_bad_lines_are_reported_by_number_and_the_others_continue(tmp_path: Path) -> None:
    content = "a|yek\n|du\nc|\nd| \u00a0\ne|sê\x07\nf|a|b\na2|çar\n"
    assert reasons(tmp_path, content) == {
        "line 2": "line 2 of metadata.csv has no id; write id|text",
        "c": "line 3 of metadata.csv has no text; write the spoken words, or remove the line",
        "d": "line 4 of metadata.csv has no text; write the spoken words, or remove the line",
        "e": "line 5 of metadata.csv has a control character in the text 'sê\\x07'; remove it",
        "f": "line 6 of metadata.csv has 3 columns between |, most have 2; fix it",
    }
    assert [line.name for line in read_metadata(tmp_path)[0]] == ["a", "a2"]


@pytest.mark.parametrize("name", ["/etc/passwd", "../a", "x/../../a", "..\\a", "C:a", "\\\\server\\a"])
def test_an_id_that_leads_out_of_the_folder_is_refused(name: str, tmp_path: Path) -> None:
    assert "leads out of the folder" in reasons(tmp_path, f"{name}|yek\nb|du")[name]


def test_a_duplicate_id_is_not_used(tmp_path: Path) -> None:
    told = "the id is on lines {} of metadata.csv; keep one"
    assert reasons(tmp_path, "a|yek\nb|du\na|yek") == {"a": told.format("1, 3")}
    assert reasons(tmp_path, "a|yek\nb|du\na|sê\na|yek") == {"a": told.format("1, 3, 4")}
    assert [line.name for line in read_metadata(tmp_path)[0]] == ["b"]


def test_an_id_is_the_same_however_its_accents_were_typed(tmp_path: Path) -> None:
    assert read_texts(tmp_path, "c\u0327ar|yek\nb|du") == {"\u00e7ar": "yek", "b": "du"}
    assert "lines 1, 2" in reasons(tmp_path, "c\u0327ar|yek\n\u00e7ar|du\nb|du")["\u00e7ar"]
