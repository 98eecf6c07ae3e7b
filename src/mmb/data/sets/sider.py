"""SIDER: 1,427 marketed drugs, side effects in 27 system organ classes, no label missing.

From the Side Effect Resource (Kuhn et al., Nucleic Acids Research 2016, CC BY-NC-SA 4.0), as MoleculeNet
distributes it (Wu et al., Chemical Science 2018). 1.5% to 92% of a task's labels are positive. Features and
split are those of `moleculenet`: graphs or fingerprints, split by Bemis-Murcko scaffolds (80
/ 10 / 10, nothing random), or at random by a seed.
"""

from mmb.data.sets.moleculenet import MoleculeSet

_SET = MoleculeSet(
    name="sider",
    rows=(1427,),
    tasks=27,
    url="https://deepchemdata.s3-us-west-1.amazonaws.com/datasets/sider.csv.gz",
    table="sider",
)
get, prepare, load = _SET.get, _SET.prepare, _SET.load
