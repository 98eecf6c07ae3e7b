import pytest

pytest.importorskip("polars")
pytest.importorskip("zstandard")

from table_mutations import Mutations


def test_mutated_tables_and_recipes_are_refused_or_read_as_they_say(tmp_path):
    mutations = Mutations(tmp_path)
    for number in range(160):  # `benchmarks/mutations.py` runs thousands
        mutations.run(number)
    outcomes = mutations.outcomes
    assert min(outcomes["refused"], outcomes["read"], outcomes["rows scored"]) > 10
    assert outcomes["trained"] > 0
