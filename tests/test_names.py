import pytest

from mmb._names import nearest


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("tox12", ["digits", "tox21"], "; did you mean 'tox21'?"),
        ("xyz", ["digits", "tox21"], "; expected one of: digits, tox21"),
        ("", {"digits": 1}, "; expected one of: digits"),
        ("xyz", (), "; expected one of: none"),
    ],
)
def test_says_what_is_known(name, known, said):
    assert nearest(name, known) == said
    assert nearest(name, iter(known)) == said
