import pytest
import torch

from mmb.data.inputs import featurize
from mmb.data.inputs.featurize import Featurizer, parse
from mmb.data.inputs.graphs import ATOM_DIMS, BOND_DIMS, GraphInputs
from mmb.data.inputs.molecule_cache import PackedBits
from processes import fork_server
from tiny_runs import wait_until
from worker_tasks import featurize_forever, has_ended

np = pytest.importorskip("numpy")
Chem = pytest.importorskip("rdkit.Chem")
ogb_features = pytest.importorskip("ogb.utils.features")
ogb_mol = pytest.importorskip("ogb.utils.mol")

SMILES = [
    "Cl[C@H](/C=C/C)Br",
    "O1C=C[C@H]([C@H]1O2)c3c2cc(OC)c4c3OC(=O)C5=C4CCC(=O)5",
    "C",
    "[Na+].[Cl-]",
    "c1ccccc1C#N",
    "CC(=O)N1CCC2(CC1)NC(=O)N(c1ccccc1)N2",
]
BAD = "CC(=O)O[AlH3]OC(C)=O"  # more bonds than RDKit allows aluminium


def graphs(smiles, **options):
    arrays = Featurizer("graph", **options)(smiles)
    return GraphInputs.from_arrays({k: torch.from_numpy(v) for k, v in arrays.items()}), arrays


def test_dimensions_are_those_of_ogb():
    assert list(ATOM_DIMS) == ogb_features.get_atom_feature_dims()
    assert list(BOND_DIMS) == ogb_features.get_bond_feature_dims()


def test_graphs_equal_those_of_ogb():
    inputs, _ = graphs(SMILES)
    for row, text in enumerate(SMILES):
        expected = ogb_mol.smiles2graph(text)
        batch = inputs[torch.tensor([row])]
        assert batch.atoms.tolist() == expected["node_feat"].tolist()
        # The same edges with the same features; only their order differs: ours is by target, then source.
        edges = sorted(
            (j, i, *f)
            for (i, j), f in zip(
                expected["edge_index"].T.tolist(), expected["edge_feat"].tolist(), strict=True
            )
        )
        source, target = batch.edges.tolist()
        assert [(j, i, *f) for i, j, f in zip(source, target, batch.bonds.tolist(), strict=True)] == edges


def test_two_processes_do_what_one_does(monkeypatch):
    monkeypatch.setattr(featurize, "_PIECE", 10)
    smiles = (SMILES * 2)[:11]
    seen = []
    one = Featurizer(scaffolds=True)(smiles, workers=1)
    two = Featurizer(scaffolds=True)(
        smiles, workers=2, progress=lambda done, total: seen.append((done, total))
    )
    assert all(np.array_equal(one[key], two[key]) and one[key].dtype == two[key].dtype for key in one)
    assert seen == [(10, 11), (11, 11)]


def test_processes_end_with_the_one_that_started_them(tmp_path):
    parent = fork_server().Process(target=featurize_forever, args=(tmp_path,))
    parent.start()
    wait_until(lambda: len(list(tmp_path.glob("worker-*[0-9]"))) == 2)
    workers = [int(path.name.split("-")[1]) for path in tmp_path.glob("worker-*[0-9]")]
    parent.kill()
    parent.join()
    wait_until(lambda: all(has_ended(worker) for worker in workers), 20)


def test_what_cannot_be_read_keeps_its_place():
    inputs, arrays = graphs(["CC", "not smiles", "", BAD, "O"])
    assert arrays["usable"].tolist() == [True, False, False, False, True]
    assert len(inputs) == 5
    lone = inputs[torch.tensor([1])]
    assert len(lone.atoms) == 1
    assert lone.edges.shape == (2, 0)
    bits = Featurizer("fingerprint", bits=64)(["CC", "not smiles"])
    assert bits["usable"].tolist() == [True, False]
    assert bits["packed"][0].any()
    assert not bits["packed"][1].any()


def test_leniency_reads_impossible_valences():
    assert parse(BAD, strict=True) is None
    assert parse(BAD, strict=False).GetNumAtoms() == 9
    assert parse("not smiles", strict=False) is None
    inputs, arrays = graphs([BAD], strict=False)
    assert arrays["usable"].all()
    assert len(inputs[torch.tensor([0])].atoms) == 9


def test_large_molecules_get_larger_numbers():
    _, arrays = graphs(["C" * 256])
    assert arrays["neighbours"].dtype == np.uint8
    inputs, arrays = graphs(["C" * 300, "CC"])
    assert arrays["neighbours"].dtype == np.int16
    assert inputs[torch.tensor([0])].edges.max() == 299


def test_fingerprints_equal_those_of_rdkit():
    from rdkit.Chem import rdFingerprintGenerator

    packed = Featurizer("fingerprint", radius=3, bits=512)(SMILES)["packed"]
    morgan = rdFingerprintGenerator.GetMorganGenerator(radius=3, fpSize=512)
    expected = np.stack([morgan.GetFingerprintAsNumPy(Chem.MolFromSmiles(s)) for s in SMILES])
    rows = torch.tensor([4, 0])
    bits = PackedBits(torch.from_numpy(packed))[rows]
    assert bits.dtype == torch.float32
    assert np.array_equal(bits.numpy(), expected[rows])


def test_scaffolds_are_numbered_by_first_appearance():
    smiles = ["CCc1ccccc1", "CCO", "Oc1ccccc1", "C1CC1C", "CC", BAD]
    arrays = Featurizer("fingerprint", scaffolds=True, strict=False)(smiles)
    assert arrays["scaffold"].tolist() == [0, 1, 0, 2, 1, 1]


def test_an_empty_list_is_an_empty_set():
    inputs, arrays = graphs([])
    assert len(inputs) == 0
    assert arrays["atom_table"].shape == (0, 9)


@pytest.mark.parametrize("wrong", [{"features": "maccs"}, {"bits": 12}, {"bits": 0}, {"radius": -1}])
def test_options_are_checked(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Featurizer(**wrong)
