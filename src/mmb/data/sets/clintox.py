"""ClinTox: 1,478 drugs, whether each was approved, and whether it failed in trials for its toxicity.

From the SWEETLEAD and AACT databases, as MoleculeNet distributes it (Wu et al., Chemical Science 2018),
without the molecules that cannot be read; no license stated. Two tasks, 94% and 7.6% positive, no label
missing. Features and split are those of `moleculenet`: graphs or fingerprints, split by Bemis-Murcko
scaffolds (80 / 10 / 10, nothing random), or at random by a seed.
"""

from mmb.data.sets.moleculenet import MoleculeSet

_SET = MoleculeSet(
    name="clintox",
    rows=(1478,),
    tasks=2,
    url="https://deepchemdata.s3-us-west-1.amazonaws.com/datasets/clintox.csv.gz",
    table="clintox",
)
get, prepare, load = _SET.get, _SET.prepare, _SET.load
