import base64
import hashlib
import html.parser
import json

import pytest

from mmb.report.page import embedded_json, page_text
from report.conftest import NAMES, ODD


class Parts(html.parser.HTMLParser):
    """Scripts, addresses and the policy of a page, as a parser sees them."""

    def __init__(self, text):
        super().__init__()
        self.scripts, self.addresses, self.policy, self.title, self._inside = [], [], None, "", None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        facts = dict(attributes)
        self._inside = tag
        if tag == "script":
            self.scripts.append([facts, ""])
        if tag == "meta" and "http-equiv" in facts:
            self.policy = facts["content"]
        self.addresses += [facts[name] for name in ("src", "href") if name in facts]
        assert not any(name.startswith("on") for name in facts)

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts[-1][1] += data
        if self._inside == "title":
            self.title += data


@pytest.mark.parametrize("text", [ODD, "<!--<script>", "\u2028\u2029", '"\\', "é"])
def test_json_in_a_page_is_the_same_data_and_no_markup(text):
    found = embedded_json({text: [text, None, 1.5]})
    assert json.loads(found) == {text: [text, None, 1.5]}
    assert not set(found) & set("<>&\u2028\u2029")


def test_nan_does_not_reach_the_page():
    with pytest.raises(ValueError):
        embedded_json({"auc": float("nan")})


def test_the_page_runs_its_own_scripts_alone_and_asks_for_nothing(written):
    path, content = written
    parts = Parts(path.read_text(encoding="utf-8"))
    assert [facts for facts, _ in parts.scripts] == [{"type": "application/json", "id": "data"}, {}]
    assert json.loads(parts.scripts[0][1]) == content
    mark = base64.b64encode(hashlib.sha256(parts.scripts[1][1].encode()).digest()).decode()
    assert f"script-src 'sha256-{mark}';" in parts.policy
    assert "default-src 'none'" in parts.policy
    assert all(address.startswith("#") for address in parts.addresses)


def test_titles_are_escaped_and_what_is_put_in_is_not_searched_again(written):
    _, content = written
    text = page_text({**content, "data": "@@DATA@@<title>&"})
    parts = Parts(text)
    assert parts.title.startswith("@@DATA@@<title>&:")
    assert len(parts.scripts) == 2
    assert json.loads(parts.scripts[0][1])["data"] == "@@DATA@@<title>&"


def test_names_reach_the_page_unchanged(written):
    assert written[1]["tasks"]["name"] == NAMES
