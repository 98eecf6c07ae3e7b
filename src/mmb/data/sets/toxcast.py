"""ToxCast: 8,576 compounds, 617 in vitro assays, 71% of labels missing.

From the ToxCast program of the US Environmental Protection Agency, as MoleculeNet distributes it (Wu et
al., Chemical Science 2018), no license stated. 0.3% to 83% of a task's measured labels are positive; some
tasks have only 19 positives. Features and split are those of `moleculenet`: graphs or fingerprints, split
by Bemis-Murcko scaffolds (80 / 10 / 10, nothing random), or at random by a seed.
"""

from mmb.data.sets.moleculenet import MoleculeSet

_SET = MoleculeSet(
    name="toxcast",
    rows=(8576, 8577),
    tasks=617,
    url="https://deepchemdata.s3-us-west-1.amazonaws.com/datasets/toxcast_data.csv.gz",
    table="toxcast",
)
get, prepare, load = _SET.get, _SET.prepare, _SET.load
