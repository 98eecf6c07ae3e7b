import gzip
import io
import random
from datetime import timedelta

import pytest
import torch

import mmb.data
from mmb.data import DamagedDataError, TableError
from mmb.data.files.arrow_streams import START, single_batches
from mmb.data.files.table import is_blank
from mmb.data.files.table_formats import read_batches, read_table, read_training_table

polars = pytest.importorskip("polars")
zstandard = pytest.importorskip("zstandard")

TABLE = "age,city,sick\n1.5,rome,1\n,oslo,0\n-2e3, rome ,\nNA,,1\n"

END = START + bytes(4)  # of an Arrow stream


def _texts(table, name):
    codes, names = table.names(name)
    return [names[code] if code >= 0 else "" for code in codes]


def _same(left, right):
    for name in left.column_names:
        mine, other = left.numbers(name), right.numbers(name)
        assert torch.equal(mine.isnan(), other.isnan())
        assert torch.equal(mine.nan_to_num(posinf=torch.inf), other.nan_to_num(posinf=torch.inf))
        if bool(mine.isinf().any()):
            assert _texts(left, name) == _texts(right, name)
    assert torch.equal(left.fits, right.fits)


def test_rows_that_do_not_fit_are_blank_and_marked(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('\ufeffa , b\n1,"x,y"\n\n2\n3,z,4\n5,w\n', encoding="utf-8")
    table = read_table(path)
    assert table.columns == {"a": ["1", "", "", "5"], "b": ["x,y", "", "", "w"]}
    assert table.fits.tolist() == [True, False, False, True]
    with pytest.raises(TableError, match=r"\[2, 3\]"):
        read_training_table(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.tsv", "a\tb\n1,2\t3\n"),
        ("t.csv", "a;b\n1,2;3\n"),
        ("t.txt", "a|b\n1,2|3\n"),
        ("t.csv", 'a,b\n"1,2",3\n'),
        ("t.csv", 'a,b\r"1,2",3\r'),
        ("t.tsv", 'a,b\n"1,2",3\n'),
    ],
)
def test_separators_are_found(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(text.encode())
    assert read_table(path).columns == {"a": ["1,2"], "b": ["3"]}
    (batch,) = read_batches(path, text=["a"])
    assert batch.names("a").names == ["1,2"]


def test_cells_that_mean_unknown():
    gaps = ("", " ", ".", "NA", "n/a", "#N/A", "<NA>", "NaN", "null", "None", "?")
    assert all(map(is_blank, gaps))
    assert not any(is_blank(cell) for cell in ("0", "-", "no", "..", ".5"))


def test_every_format_gives_the_same_table(tmp_path):
    plain = tmp_path / "t.csv"
    plain.write_text(TABLE)
    frame = polars.read_csv(TABLE.encode(), null_values=["NA"])
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(TABLE.encode()))
    (tmp_path / "t.csv.zst").write_bytes(zstandard.compress(TABLE.encode()))
    frame.write_parquet(tmp_path / "t.parquet")
    frame.write_ipc(tmp_path / "t.arrow")
    frame.write_ipc_stream(tmp_path / "t.arrows")
    expected = read_table(plain)
    for name in ("t.csv", "t.csv.gz", "t.csv.zst", "t.parquet", "t.arrow", "t.arrows"):
        (batch,) = read_batches(tmp_path / name, text=["city"])
        _same(batch, expected)
        _same(read_table(tmp_path / name), expected)


def test_a_folder_is_read_file_by_file(tmp_path):
    for name in ("b.csv", "a.csv"):
        (tmp_path / name).write_text(f"name,x\n{name},1\n")
    table = read_table(tmp_path)
    assert table.columns["name"] == ["a.csv", "b.csv"]
    (tmp_path / "c.csv").write_text("name,y\nc,1\n")
    with pytest.raises(TableError, match=r"c\.csv.*'x'"):
        read_table(tmp_path)
    (tmp_path / "readme.md").write_text("hello")
    with pytest.raises(TableError, match=r"readme\.md"):
        read_table(tmp_path)


def test_folders_in_a_folder_are_refused_if_tables_are_in_them(tmp_path):
    inner = tmp_path / "k=1" / "deep"
    inner.mkdir(parents=True)
    (tmp_path / "_log").mkdir()
    (tmp_path / "_log" / "old.csv").write_text("x\n1\n")
    (inner / "p1.csv").write_text("x\n1\n")
    for _ in range(2):
        with pytest.raises(TableError, match=r"'k=1'.*deep.p1\.csv"):
            read_table(tmp_path)
        (tmp_path / "p0.csv").write_text("x\n2\n")
    (inner / "p1.csv").rename(inner / "notes.md")
    assert read_table(tmp_path).columns == {"x": ["2"]}


def test_a_column_that_one_file_lacks_is_shown_with_its_likely_twin(tmp_path):
    (tmp_path / "a.csv").write_text("age,name,sick\n1,x,1\n")
    (tmp_path / "b.csv").write_text("age,nome,sick\n2,y,0\n")
    with pytest.raises(
        TableError, match=r"b\.csv.*no column 'name'.*'age', 'nome', 'sick'.*nearest is 'nome'"
    ):
        list(read_batches(tmp_path, ["name", "sick"]))


def _stream(*frames):
    """An Arrow stream of a batch for each frame."""
    written = []
    for frame in frames:
        frame.write_ipc_stream(file := io.BytesIO())
        written.append(file.getvalue().removesuffix(END))
    schema = written[0].index(START, 1)  # the other batches follow without it
    return b"".join([written[0], *(one[schema:] for one in written[1:]), END])


def test_an_arrow_stream_is_read_batch_by_batch(tmp_path):
    path = tmp_path / "t.bin"
    frames = [
        polars.DataFrame({"k": [3 * j, 3 * j + 1, None], "kind": ["a", None, str(j)]}) for j in range(4)
    ]
    path.write_bytes(_stream(*frames))
    batches = list(read_batches(path, ["k"]))
    assert [(batch.first, batch.column_names) for batch in batches] == [(3 * j, ["k"]) for j in range(4)]
    assert read_table(path).columns == {
        "k": [cell for j in range(4) for cell in (str(3 * j), str(3 * j + 1), "")],
        "kind": [cell for j in range(4) for cell in ("a", "", str(j))],
    }
    assert max(map(len, single_batches(path))) == len(_stream(frames[0])) - len(END)  # one batch at a time


def test_dictionaries_of_an_arrow_stream_take_each_others_place(tmp_path):
    path = tmp_path / "t.bin"
    frames = [
        polars.DataFrame({"kind": polars.Series(names, dtype=polars.Categorical)})
        for names in (["a", "b"], ["c", "a"], ["b", None])
    ]
    path.write_bytes(_stream(*frames))
    found = [list(polars.read_ipc_stream(io.BytesIO(one))["kind"]) for one in single_batches(path)]
    assert found == [list(frame["kind"]) for frame in frames]
    assert _texts(read_training_table(path), "kind") == ["a", "b", "c", "a", "b", ""]


def test_an_arrow_stream_may_have_no_rows_and_may_be_cut_short(tmp_path):
    path = tmp_path / "t.bin"
    frame = polars.DataFrame({"k": [1, 2], "kind": ["a", "b"]})
    path.write_bytes(_stream(frame.clear()))
    assert [(len(batch), batch.column_names) for batch in read_batches(path)] == [(0, ["k", "kind"])]
    whole = _stream(frame)
    for end in range(5, len(whole) - len(END)):
        path.write_bytes(whole[:end])
        if end != whole.index(START, 1):  # where nothing but the schema is left, which is a stream
            with pytest.raises(DamagedDataError, match="cut short"):
                list(read_batches(path))
    path.write_bytes(whole[:12] + b"\x7f\x7f" + whole[14:])
    with pytest.raises(DamagedDataError):
        list(read_batches(path))


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow"])
def test_rows_that_polars_does_not_reach_are_missed(tmp_path, monkeypatch, name):
    """Where it panics in a damaged file, its batches end as if there were no more rows."""
    frame = polars.DataFrame({"k": [1, 2, 3]})
    (frame.write_parquet if "parquet" in name else frame.write_ipc)(tmp_path / name)
    monkeypatch.setattr(polars.LazyFrame, "collect_batches", lambda *_, **__: iter([frame.head(2)]))
    with pytest.raises(DamagedDataError, match=r"only 2 of its 3 rows"):
        list(read_batches(tmp_path / name))


def test_what_is_not_a_table_is_refused_by_what_it_is(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"PK\x03\x04rest")
    with pytest.raises(TableError, match="workbook"):
        read_table(path)
    path.write_bytes(gzip.compress(TABLE.encode() * 9)[:-20])
    with pytest.raises(DamagedDataError, match="cut short"):
        read_table(path)
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(DamagedDataError, match="cannot be read"):
        read_table(path)
    path.write_bytes(TABLE.encode() + b"1,\xff,1\n")
    with pytest.raises(TableError, match=r"data row 5.*UTF-8 in column 'city'.*0xff"):
        read_table(path)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"1,\xe9,0\n", r"data row 301.*in column 'city' \(byte 0xe9\)"),
        (b'1,"\xe9",0\n', r"data row 301.*is not UTF-8 \(byte 0xe9\)"),  # quoted, so which column is unsure
    ],
)
def test_a_byte_that_is_not_text_is_found_in_its_row(tmp_path, line, told):
    path, rows = tmp_path / "t.csv", b"1.5,rome,1\n" * 300
    path.write_bytes(b"age,city,sick\n" + rows + line + rows)
    for read in (read_table, lambda file: list(read_batches(file))):
        with pytest.raises(TableError, match=told):
            read(path)
    path.write_bytes(b"age,\xe9,sick\n" + rows)
    with pytest.raises(TableError, match="its header is not UTF-8"):
        read_table(path)


def test_a_file_that_is_cut_between_two_rows_is_not_read_as_a_shorter_one(tmp_path):
    path = tmp_path / "t.csv.zst"
    whole = zstandard.compress("".join(["a,b\n", *(f"{k},{k * k}\n" for k in range(100_000))]).encode())
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DamagedDataError, match="cut short"):
        list(read_batches(path))


def test_blocks_and_lines_agree_on_odd_text(tmp_path, monkeypatch):
    """polars reads what is regular; whatever else is in a file, tables are those of the csv module."""
    from mmb.data.files import frames

    monkeypatch.setattr(frames, "_BLOCK", 64)
    draw = random.Random(0)
    cells = [
        "1",
        "-2.5",
        "",
        "NA",
        "x",
        " 7 ",
        "1_0",
        "inf",
        '"a,b"',
        '"two\nlines"',
        "1e400",
        "Nan",
        "é",
        "+3",
    ]
    seen = set()
    for case in range(150):
        width = draw.choice([1, 2, 4])
        odd = draw.random() < 0.6
        rows = [
            ",".join(
                draw.choice(cells if odd else cells[:3]) for _ in range(width + (odd * draw.random() > 0.55))
            )
            for _ in range(draw.randrange(30))
        ]
        end = draw.choice(["\n", "\r\n"])
        path = tmp_path / f"{case}.csv"
        path.write_bytes(end.join([",".join("abcd"[:width]), *rows, *[""] * draw.randrange(2)]).encode())
        whole = read_table(path)
        batches = list(read_batches(path, text="abcd"[:width]))
        seen |= {type(batch).__name__ for batch in batches}
        joined = type(whole)(
            path,
            {name: [cell for batch in batches for cell in batch.cells(name)] for name in whole.columns},
            torch.cat([batch.fits for batch in batches]),
        )
        _same(joined, whole)
        firsts = [batch.first for batch in batches]
        assert firsts == [sum(map(len, batches[:k])) for k in range(len(batches))]
        numbers = [torch.cat([batch.numbers(n) for batch in read_batches(path)]) for n in whole.columns]
        for name, found in zip(whole.columns, numbers, strict=True):
            assert torch.equal(found.nan_to_num(nan=-7.0), whole.numbers(name).nan_to_num(nan=-7.0))
    assert seen == {"TextTable", "FrameTable"}


def test_rows_that_end_in_carriage_returns_beside_the_header_are_read(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"a,b\r1,2\n3,4\r5,6\n")
    (batch,) = read_batches(tmp_path / "t.csv")
    assert batch.cells("a") == ["1", "3", "5"]


def test_durations_are_seconds_and_what_is_nested_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("MMB_DATA", str(tmp_path / "root"))
    path = tmp_path / "t.parquet"
    frame = polars.DataFrame(
        {
            "wait": [timedelta(minutes=k) for k in range(40)],
            "list": [[k, k] for k in range(40)],
            "bytes": [b"x"] * 40,
            "y": [k % 3 == 0 for k in range(40)],
        }
    )
    frame.write_parquet(path)
    assert next(read_batches(path)).numbers("wait").tolist() == [60.0 * k for k in range(40)]
    data = mmb.data.load("table", path=path, labels="y")
    assert data.encoder.feature_names == ("wait",)
    assert list(data.details["left_out"]) == ["list", "bytes"]
    batch = next(data.encoder.batches(path))  # predictions have all columns
    assert batch.columns["list"][2] == "[2, 2]"
    assert torch.equal(batch.inputs, data.inputs)
    with pytest.raises(TableError, match=r"'list'.*List"):
        mmb.data.load("table", path=path, labels="y", features="list,wait")


def test_no_rows_of_a_damaged_file_are_left_out(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    polars.DataFrame({"x": [k / 7 for k in range(300)]}).write_parquet(path)
    # so polars does at some damage, without an error
    monkeypatch.setattr(polars.LazyFrame, "collect_batches", lambda self, **_: [self.collect().head(200)])
    batches = read_batches(path)
    assert len(next(batches)) == 200
    with pytest.raises(DamagedDataError, match="only 200 of its 300 rows"):
        next(batches)


def test_text_on_which_polars_gives_up_is_read_line_by_line(tmp_path, monkeypatch):
    def panic(*_, **__):  # as where it may open no more files
        raise polars.exceptions.PanicException("Too many open files")

    path = tmp_path / "t.csv"
    path.write_text(TABLE)
    monkeypatch.setattr(polars, "read_csv", panic)
    ages = torch.cat([batch.numbers("age") for batch in read_batches(path)])
    assert ages[::2].tolist() == [1.5, -2000]
