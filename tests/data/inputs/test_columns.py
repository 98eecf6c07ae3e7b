import json
from functools import partial

import pytest
import torch

import mmb.data
from mmb.data import TableError, encoder_from_json
from new_files import read_new


def test_what_stands_among_numbers_is_named_and_not_one_hot(tmp_path):
    path, rows = tmp_path / "typo.csv", [f"{r / 10},{r % 3},{r % 2}" for r in range(60)]
    rows[41] = '"4,1",3+,1'  # 3+ is one of a few codes: a category
    path.write_text("\n".join(["level,children,sick", *rows]) + "\n")
    split = {"fractions": [0.98, 0.01, 0.01]}
    with pytest.raises(TableError, match=r"'level'.*'4,1'.* 42"):
        mmb.data.load("csv", path=path, labels="sick", **split)
    names = mmb.data.load("csv", path=path, labels="sick", drop="level", **split).encoder.feature_names
    assert list(names) == [f"children={value}" for value in ("0", "1", "2", "3+")]


def test_identifiers_are_not_silently_one_hot(tmp_path):
    path = tmp_path / "ids.csv"
    path.write_text("name,sick\n" + "".join(f"p{r},{r % 2}\n" for r in range(100)))
    with pytest.raises(TableError, match=r"no column is left.*'name'.*identifier"):
        mmb.data.load("csv", path=path, labels="sick")
    with pytest.raises(TableError, match="identifier"):
        mmb.data.load("csv", path=path, labels="sick", features="name")


def test_a_cell_far_out_leaves_the_others_apart(tmp_path):
    path = tmp_path / "table.csv"
    cells = [*(f"{k % 7}" for k in range(40)), "999999999"]
    path.write_text("x,y\n" + "\n".join(f"{cell},{k % 2}" for k, cell in enumerate(cells)) + "\n")
    with pytest.warns(UserWarning, match=r"'x'.*999999999.* 41.* 1 to 5"):
        data = mmb.data.load("csv", path=path, labels="y", fractions=(1, 0, 0))
    usual = data.inputs[:40, 0]
    assert float(usual.max() - usual.min()) > 1
    assert usual.max() < float(data.inputs[40, 0]) <= 4
    encoder = encoder_from_json(json.loads(json.dumps(data.encoder.to_json())))
    assert torch.equal(read_new(encoder, path)[0], data.inputs)


def test_long_tails_leave_the_middle_apart(tmp_path):
    """Amounts that are normal on a logarithmic scale; of a column without tails, nothing changes."""
    path = tmp_path / "table.csv"
    z = torch.randn(999, generator=torch.Generator().manual_seed(0), dtype=torch.float64).sort().values
    rows = [f"{float(v.mul(1.5).exp())!r},{k},{k % 2}" for k, v in enumerate(z)]
    path.write_text("\n".join(["amount,even,y", *rows]) + "\n")
    load = partial(mmb.data.load, "csv", path=path, labels="y", fractions=(1, 0, 0))
    data, plain = load(spread="quartiles"), load()
    amount, before = data.inputs[:, 0], plain.inputs[:, 0]
    quarter, half, three = (amount[k] for k in (249, 499, 749))
    assert float(half) == pytest.approx(0, abs=1e-6)
    assert float(three - quarter) == pytest.approx(1.349, abs=0.1)
    assert float(before[749] - before[249]) < 0.6  # where tails have widened the deviation
    assert bool((amount.diff() > 0).all())
    assert float(amount.max()) < 4
    assert float(before.std(correction=0)) == pytest.approx(1)
    assert torch.equal(data.inputs[:, 1], plain.inputs[:, 1])
    encoder = encoder_from_json(json.loads(json.dumps(data.encoder.to_json())))
    assert torch.equal(read_new(encoder, path)[0], data.inputs)


def test_codes_with_underscores_are_names(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("site,y\n1_20,1\n12_0,0\n1_20,0\n3_4,1\n")
    data = mmb.data.load("csv", path=path, labels="y", fractions=(1, 0, 0))
    assert data.encoder.feature_names == ("site=12_0", "site=1_20", "site=3_4")


def test_decimal_commas_with_commas_between_cells_are_refused_rather_than_one_hot(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("level,y\n" + "".join(f'"{k},{k}",{k % 2}\n' for k in range(30)))
    with pytest.raises(TableError, match=r"'level'.*commas.*'\d+,\d+'"):
        mmb.data.load("table", path=path, labels="y", fractions=(1, 0, 0))


@pytest.mark.parametrize(
    ("before", "after"), [("", "%"), ("$ ", ""), ("-€", ""), ("", " mg"), ("", ".5 mmol/l"), ("£2,", ".50 m")]
)
def test_numbers_with_the_same_sign_or_unit_are_numbers(tmp_path, before, after):
    path = tmp_path / "table.csv"
    cells = [f"{before}{k}{after}" for k in range(100, 160)]
    path.write_text("level,y\n" + "".join(f'"{c}",{k % 2}\n' for k, c in enumerate(cells)) + "NA,1\n")
    data = mmb.data.load("table", path=path, labels="y", fractions=(1, 0, 0))
    expected = torch.arange(60) * (-1.0 if before == "-€" else 1.0)
    expected = torch.cat([expected, expected.median()[None]])
    assert data.encoder.feature_names == ("level",)
    assert torch.corrcoef(torch.stack([data.inputs[:, 0], expected]))[0, 1] > 0.99999
    encoder = encoder_from_json(json.loads(json.dumps(data.encoder.to_json())))
    assert torch.equal(read_new(encoder, path)[0], data.inputs)
    path.write_text("level\n7 miles\n")
    [rows] = encoder.batches(path)
    assert "'7 miles' is not a number written like" in rows.problems[0]


def test_few_amounts_are_names(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("term,y\n" + "".join(f"{12 * (k % 3)} months,{k % 2}\n" for k in range(30)))
    data = mmb.data.load("table", path=path, labels="y", fractions=(1, 0, 0))
    assert data.encoder.feature_names == ("term=0 months", "term=12 months", "term=24 months")


@pytest.mark.parametrize("cell", ["< {}", "{} {}", "1,{} mg"])
def test_numbers_with_other_units_are_refused_and_not_left_out(tmp_path, cell):
    path = tmp_path / "table.csv"
    cells = [cell.format(k, "mg" if k % 2 else "g") for k in range(100, 160)]
    path.write_text("level,x,y\n" + "".join(f'"{c}",{k},{k % 2}\n' for k, c in enumerate(cells)))
    with pytest.raises(TableError, match=r"'level' has numbers with signs or units"):
        mmb.data.load("table", path=path, labels="y", fractions=(1, 0, 0))


def test_an_encoder_of_an_earlier_version_finds_the_index_without_a_name(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(",x\n0,5\n1,7\n")
    encoder = encoder_from_json({"kind": "columns", "columns": [{"name": "x"}, {"name": ""}]})
    assert read_new(encoder, path)[0].tolist() == [[5, 0], [7, 1]]


def test_every_missing_column_is_named_at_once(tmp_path):
    path = tmp_path / "new.csv"
    path.write_text("A,b\n1,2\n")
    encoder = encoder_from_json({"kind": "columns", "columns": [{"name": name} for name in "abcd"]})
    with pytest.raises(TableError, match=r"lacks 'a', 'c', 'd'.* 'A', 'b'"):
        next(encoder.batches(path))
