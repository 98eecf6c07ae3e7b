import bz2
import gzip
import lzma
import os

import pytest

from mmb.data import MissingDataError, TableError
from mmb.data.files.delimited_text import first_bytes
from mmb.data.files.table_formats import read_table, table_files

TEXT = "x,y\n1,0\n2,1\n"


@pytest.mark.parametrize(  # with names, since gzip writes the time, which differs between workers
    ("content", "told"),
    [
        pytest.param(TEXT.encode("utf-16"), "UTF-16", id="UTF-16"),
        pytest.param(TEXT.encode("utf-16-le"), "UTF-16", id="UTF-16, little end first"),
        pytest.param(TEXT.encode("utf-16-be"), "UTF-16", id="UTF-16, big end first"),
        pytest.param(gzip.compress(TEXT.encode("utf-16")), "UTF-16", id="UTF-16 in gzip"),
        pytest.param(bz2.compress(TEXT.encode()), "bzip2", id="bzip2"),
        pytest.param(lzma.compress(TEXT.encode()), "xz", id="xz"),
        pytest.param(gzip.compress(gzip.compress(TEXT.encode())), "compressed twice", id="gzip in gzip"),
        pytest.param(gzip.compress(b"PAR1 and more"), "Parquet", id="Parquet in gzip"),
        pytest.param(gzip.compress(b"PK\x03\x04 and more"), "workbook", id="workbook in gzip"),
        pytest.param(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "workbook", id="workbook"),
        pytest.param(b"%PDF-1.7", "PDF", id="PDF"),
        pytest.param(bytes(3000), "zero bytes", id="zero bytes"),
    ],
)
def test_it_is_said_what_a_file_is(tmp_path, content, told):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(TableError, match=told):
        read_table(path)


@pytest.mark.parametrize("content", [TEXT.encode(), b"\xef\xbb\xbf" + TEXT.encode()])
def test_text_is_read(tmp_path, content):
    path = tmp_path / "t.csv"
    for compressed in (content, gzip.compress(content)):
        path.write_bytes(compressed)
        assert read_table(path).columns == {"x": ["1", "2"], "y": ["0", "1"]}


def test_links_to_nowhere_are_missing_also_in_a_folder(tmp_path):
    (tmp_path / "a.csv").write_text(TEXT)
    (tmp_path / "b.csv").symlink_to("nowhere.csv")
    with pytest.raises(MissingDataError, match=r"a link to nowhere\.csv"):
        first_bytes(tmp_path / "b.csv")
    with pytest.raises(MissingDataError, match=r"b\.csv"):
        table_files(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_a_pipe_is_not_missing_but_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(TableError, match="neither a file nor a folder"):
        first_bytes(tmp_path / "pipe.csv")
