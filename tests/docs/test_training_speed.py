"""The benchmark of training steps runs without a GPU, in small."""

import json
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_every_kind_of_line_is_printed(monkeypatch, capsys):
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setattr("mmb.models.image_networks._WIDTHS", (8, 12, 16, 20))  # to be quick
    import training_speed

    training_speed.main(["--small", "--parts", "graphs", "resnet18", "host", "--cases", "CE", "MMB-pAUC"])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["steps"]
    assert not [line for line in found if "error" in line]
    cases = {(line["part"], line["case"]) for line in found}
    assert cases >= {
        ("graphs", "CE, kernel by kernel"),
        ("graphs", "torch alone, batch built"),
        ("resnet18", "resnet18, MMB-pAUC, kernel by kernel"),
        ("host", "CE"),
    }
    (counted,) = [line["operations"] for line in found if (line["part"], line["case"]) == ("host", "CE")]
    assert sum(counted["optimizer"].values()) == 2  # fused
    # Whatever depends on the batch alone is done once: casts, products and messages are what each layer has.
    assert sum(counted["forward"].values()) + sum(counted["backward"].values()) <= 265
